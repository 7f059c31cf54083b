// Runs of elements as boxes: every element once, in order.
#include "io/checkpoint/boxes.hpp"

#include <gtest/gtest.h>

namespace spillway::io {

namespace {

/// Flat indices of a box's elements in C order, counted one by one.
std::vector<std::int64_t> elements_of(Box const& box, std::vector<std::int64_t> const& shape) {
  std::vector<std::int64_t> indices;
  std::vector<std::uint64_t> at(shape.size(), 0);
  while (true) {
    std::int64_t flat = 0;
    for (std::size_t d = 0; d < shape.size(); ++d)
      flat = flat * shape[d] + static_cast<std::int64_t>(box.start[d] + at[d]);
    indices.push_back(flat);
    std::size_t d = shape.size();
    while (d > 0 && ++at[d - 1] == box.extent[d - 1]) at[--d] = 0;
    if (d == 0) return indices;
  }
}

void check_all_runs(std::vector<std::int64_t> const& shape) {
  std::int64_t const count = shard::element_count(shape);
  for (std::int64_t begin = 0; begin <= count; ++begin)
    for (std::int64_t end = begin; end <= count; ++end) {
      std::vector<std::int64_t> seen;
      auto const boxes = boxes_of(shape, {begin, end});
      EXPECT_LE(boxes.size(), 2 * shape.size() - 1);
      for (auto const& box : boxes) {
        auto const elements = elements_of(box, shape);
        ASSERT_EQ(box.elements.begin, elements.front());
        ASSERT_EQ(box.elements.end, elements.back() + 1);
        seen.insert(seen.end(), elements.begin(), elements.end());
      }
      std::vector<std::int64_t> wanted;
      for (std::int64_t i = begin; i < end; ++i) wanted.push_back(i);
      ASSERT_EQ(seen, wanted) << "[" << begin << ", " << end << ")";
    }
}

}  // namespace

TEST(BoxesTest, one_dimension_is_one_box) { check_all_runs({11}); }
TEST(BoxesTest, rows_are_split_at_their_borders) { check_all_runs({5, 7}); }
TEST(BoxesTest, three_dimensions_are_split_at_every_level) { check_all_runs({3, 4, 5}); }
TEST(BoxesTest, four_dimensions_with_extents_of_one) { check_all_runs({2, 1, 3, 4}); }

TEST(BoxesTest, whole_rows_are_one_box) {
  auto const boxes = boxes_of(std::vector<std::int64_t>{100, 64}, {640, 1280});
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_EQ(boxes[0].start, (std::vector<std::uint64_t>{10, 0}));
  EXPECT_EQ(boxes[0].extent, (std::vector<std::uint64_t>{10, 64}));
}

}  // namespace spillway::io
