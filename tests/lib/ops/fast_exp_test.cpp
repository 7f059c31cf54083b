// The polynomial exponential against libm in double, over the whole range of fp32.
#include "lib/ops/detail/fast_exp.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace spillway::ops::detail {
namespace {

// Distance in units of the last place of the fp32 number nearest to `exact`.
double ulps(float got, double exact) {
  float const nearest = static_cast<float>(exact);
  double const spacing =
      static_cast<double>(std::nextafter(nearest, std::numeric_limits<float>::infinity())) -
      static_cast<double>(nearest);
  return std::abs(static_cast<double>(got) - exact) / spacing;
}

TEST(FastExp, is_within_two_units_in_the_last_place_wherever_the_result_is_finite) {
  double worst = 0;
  // Every 61st fp32 number of either sign up to magnitude 104.
  for (std::uint32_t bits = 0; bits < std::bit_cast<std::uint32_t>(104.0f); bits += 61) {
    float const x = std::bit_cast<float>(bits);
    if (x < 88.72f) worst = std::max(worst, ulps(fast_exp(x), std::exp(static_cast<double>(x))));
    worst = std::max(worst, ulps(fast_exp(-x), std::exp(-static_cast<double>(x))));
  }
  EXPECT_LE(worst, 2.0);
}

TEST(FastExp, treats_the_ends_of_the_range_as_libm_does) {
  float const infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(fast_exp(0.0f), 1.0f);
  EXPECT_EQ(fast_exp(infinity), infinity);
  EXPECT_EQ(fast_exp(89.0f), infinity);
  EXPECT_EQ(fast_exp(1e30f), infinity);
  EXPECT_EQ(fast_exp(-infinity), 0.0f);
  EXPECT_EQ(fast_exp(-1e30f), 0.0f);
  EXPECT_TRUE(std::isnan(fast_exp(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(fast_exp(-std::numeric_limits<float>::quiet_NaN())));
}

TEST(SoftmaxExp, is_as_exact_down_to_its_end_and_zero_below) {
  double worst = 0;
  for (std::uint32_t bits = 0; bits < std::bit_cast<std::uint32_t>(87.0f); bits += 61) {
    float const x = -std::bit_cast<float>(bits);
    worst = std::max(worst, ulps(softmax_exp(x), std::exp(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 2.0);
  EXPECT_EQ(softmax_exp(0.0f), 1.0f);
  EXPECT_EQ(softmax_exp(-87.01f), 0.0f);
  EXPECT_EQ(softmax_exp(-1e30f), 0.0f);
  EXPECT_EQ(softmax_exp(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_TRUE(std::isnan(softmax_exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Logistic, saturates_without_nan_and_keeps_its_rest_exact) {
  EXPECT_EQ(logistic(1000.0f).value, 1.0f);
  EXPECT_EQ(logistic(1000.0f).rest, 0.0f);
  EXPECT_EQ(logistic(-1000.0f).value, 0.0f);
  EXPECT_EQ(logistic(-1000.0f).rest, 1.0f);
  for (float x = -30; x < 30; x += 0.37f) {
    double const exact = 1 / (1 + std::exp(-static_cast<double>(x)));
    double const rest = 1 / (1 + std::exp(static_cast<double>(x)));
    EXPECT_LE(ulps(logistic(x).value, exact), 4.0) << x;
    EXPECT_LE(ulps(logistic(x).rest, rest), 4.0) << x;
  }
}

}  // namespace
}  // namespace spillway::ops::detail
