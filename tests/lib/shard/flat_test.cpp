#include "lib/shard/flat.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "lib/core/error.hpp"

namespace spillway::shard {
namespace {

std::vector<FlatLayout::Tensor> gpt2_head() {
  return {{"transformer.ln_f.weight", {768}}, {"transformer.ln_f.bias", {768}}};
}

/// Sizes that divide by nothing: a prime of elements in all (USERS.md 1).
std::vector<FlatLayout::Tensor> odd() {
  return {{"a", {7, 11}}, {"b", {1}}, {"c", {3, 5, 13}}, {"d", {65'537}}};
}

TEST(FlatTest, tensors_follow_each_other_in_order_and_aligned) {
  FlatLayout const layout(odd());
  std::int64_t end = 0;
  ASSERT_EQ(layout.tensors().size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    auto const& tensor = layout.tensors()[i];
    EXPECT_EQ(tensor.name, odd()[i].name);
    EXPECT_EQ(tensor.shape, odd()[i].shape);
    EXPECT_EQ(tensor.range.begin % kTensorAlignment, 0);
    EXPECT_GE(tensor.range.begin, end);
    EXPECT_LT(tensor.range.begin, end + kTensorAlignment);
    EXPECT_EQ(tensor.range.size(), element_count(tensor.shape));
    end = tensor.range.end;
  }
  EXPECT_GE(layout.elements(), end);
}

TEST(FlatTest, known_places) {
  FlatLayout const layout(odd());
  EXPECT_EQ(layout.find("a").range, (Range{0, 77}));
  EXPECT_EQ(layout.find("b").range, (Range{96, 97}));
  EXPECT_EQ(layout.find("c").range, (Range{128, 323}));
  EXPECT_EQ(layout.find("d").range, (Range{352, 65'889}));
  EXPECT_EQ(layout.elements(), 65'920);
}

TEST(FlatTest, unknown_names_are_our_own_bug) {
  try {
    FlatLayout(odd()).find("e");
    FAIL();
  } catch (Error const& error) {
    EXPECT_EQ(error.fault(), Fault::internal);
    EXPECT_NE(error.problem().find("'e'"), std::string::npos);
  }
}

TEST(FlatTest, shards_of_any_number_of_ranks_tile_the_flat) {
  for (auto const& tensors : {odd(), gpt2_head()}) {
    FlatLayout const layout(tensors);
    for (int ranks : {1, 2, 3, 4, 5, 7, 8, 64, 1000}) {
      std::int64_t const part = layout.shard_elements(ranks);
      EXPECT_EQ(part % kShardQuantum, 0);
      EXPECT_GE(part * ranks, layout.elements());
      EXPECT_LT((part - kShardQuantum) * ranks, layout.elements());  // no more padding than needed
      std::int64_t end = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        Range const range = layout.shard_range(Rank{rank}, ranks);
        EXPECT_EQ(range.begin, end);
        EXPECT_EQ(range.size(), part);
        end = range.end;
      }
    }
  }
}

TEST(FlatTest, places_do_not_depend_on_ranks_and_every_element_has_one_owner) {
  FlatLayout const layout(odd());
  for (int ranks : {1, 3, 4, 17}) {
    for (auto const& tensor : layout.tensors()) {
      std::int64_t owned = 0;
      for (int rank = 0; rank < ranks; ++rank)
        owned += intersect(tensor.range, layout.shard_range(Rank{rank}, ranks)).size();
      EXPECT_EQ(owned, element_count(tensor.shape));
    }
  }
}

TEST(FlatTest, a_unit_smaller_than_a_quantum_leaves_later_ranks_padding_only) {
  FlatLayout const layout(gpt2_head());
  EXPECT_EQ(layout.shard_elements(4), 4096);
  EXPECT_EQ(intersect({0, layout.elements()}, layout.shard_range(Rank{1}, 4)).size(), 0);
}

TEST(FlatTest, sizes_beyond_32_bits_are_exact) {
  std::vector<FlatLayout::Tensor> const tensors{{"wte", {200'000, 65'536}}, {"x", {3}}};
  FlatLayout const layout(tensors);
  EXPECT_EQ(layout.find("x").range.begin, 13'107'200'000);
  EXPECT_EQ(layout.shard_range(Rank{7}, 8).end, 8 * layout.shard_elements(8));
}

TEST(RangeTest, intersections_are_common_parts_or_empty) {
  EXPECT_EQ(intersect({0, 10}, {5, 20}), (Range{5, 10}));
  EXPECT_EQ(intersect({5, 20}, {0, 10}), (Range{5, 10}));
  EXPECT_EQ(intersect({0, 10}, {3, 4}), (Range{3, 4}));
  EXPECT_EQ(intersect({0, 10}, {10, 20}).size(), 0);
  EXPECT_EQ(intersect({0, 10}, {15, 20}).size(), 0);
  EXPECT_EQ(intersect({15, 20}, {0, 10}).size(), 0);
  EXPECT_EQ((Range{9, 3}).size(), 0);
}

TEST(ElementCountTest, multiplies_extents) {
  EXPECT_EQ(element_count(std::vector<std::int64_t>{}), 1);
  EXPECT_EQ(element_count(std::vector<std::int64_t>{50'257, 768}), 38'597'376);
}

}  // namespace
}  // namespace spillway::shard
