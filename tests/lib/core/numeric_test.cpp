#include "lib/core/numeric.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace spillway {
namespace {

TEST(NarrowTest, values_that_fit_pass_unchanged) {
  EXPECT_EQ(narrow<std::int8_t>(127), 127);
  EXPECT_EQ(narrow<std::int8_t>(-128), -128);
  EXPECT_EQ(narrow<std::uint8_t>(255), 255);
  EXPECT_EQ(narrow<int>(std::numeric_limits<std::int64_t>::min() +
                        std::numeric_limits<std::int64_t>::max()),
            -1);
  EXPECT_EQ(narrow<std::uint64_t>(std::int64_t{5}), 5u);
}

TEST(NarrowTest, values_that_do_not_fit_are_our_own_bug) {
  EXPECT_THROW(narrow<std::int8_t>(128), Error);
  EXPECT_THROW(narrow<std::uint8_t>(256), Error);
  EXPECT_THROW(narrow<std::uint8_t>(-1), Error);
  EXPECT_THROW(narrow<std::uint64_t>(std::int64_t{-1}), Error);
  EXPECT_THROW(narrow<std::int64_t>(std::numeric_limits<std::uint64_t>::max()), Error);
  EXPECT_THROW(narrow<int>(std::int64_t{1} << 32), Error);
  try {
    narrow<int>(std::int64_t{1} << 40);
  } catch (Error const& error) {
    EXPECT_EQ(error.fault(), Fault::internal);
    EXPECT_NE(std::string(error.what()).find("numeric_test.cpp"), std::string::npos);
  }
}

TEST(DivisionTest, rounds_up_or_is_exact) {
  for (std::int64_t divisor : {1, 2, 7, 4096}) {
    for (std::int64_t value = 0; value < 20'000; value += 13) {
      std::int64_t const up = div_ceil(value, divisor);
      EXPECT_GE(up * divisor, value);
      EXPECT_LT((up - 1) * divisor, value);
      EXPECT_EQ(round_up(value, divisor), up * divisor);
    }
  }
  EXPECT_EQ(div_exact(4096, 64), 64);
  EXPECT_EQ(div_exact(0, 64), 0);
  EXPECT_THROW(div_exact(4097, 64), Error);
}

}  // namespace
}  // namespace spillway
