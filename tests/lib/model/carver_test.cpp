#include "lib/model/carver.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace spillway::model {
namespace {

TEST(CarverTest, arrays_start_at_multiples_of_64_bytes) {
  std::vector<std::byte> block(1024);
  Carver carver(block);
  EXPECT_EQ(reinterpret_cast<std::byte*>(carver.take<float>(1)), block.data());
  EXPECT_EQ(reinterpret_cast<std::byte*>(carver.take<char>(65)), block.data() + 64);
  EXPECT_EQ(reinterpret_cast<std::byte*>(carver.take<double>(1)), block.data() + 192);
}

TEST(CarverTest, counting_finds_the_size_that_carving_needs) {
  Carver counter;
  EXPECT_EQ(counter.take<float>(100), nullptr);
  counter.take<char>(3);
  EXPECT_EQ(counter.peak(), 448u + 64u);
  std::vector<std::byte> exact(counter.peak());
  Carver carver(exact);
  carver.take<float>(100);
  EXPECT_NO_THROW(carver.take<char>(3));
  EXPECT_THROW(carver.take<char>(1), Error);
}

TEST(CarverTest, rewinding_gives_room_back_but_the_peak_remembers) {
  Carver counter;
  std::size_t const mark = counter.mark();
  counter.take<char>(640);
  counter.rewind(mark);
  counter.take<char>(64);
  EXPECT_EQ(counter.peak(), 640u);
  EXPECT_EQ(counter.mark(), 64u);
}

TEST(CarverTest, an_array_of_nothing_takes_nothing) {
  Carver counter;
  counter.take<float>(0);
  EXPECT_EQ(counter.peak(), 0u);
}

}  // namespace
}  // namespace spillway::model
