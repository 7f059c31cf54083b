// The exponential function in fp32 as a polynomial that vectorises; within 2 units in the last
// place.
#pragma once

#include <bit>
#include <cstdint>

#include "lib/core/hd.hpp"

namespace spillway::ops::detail {

/// e^x = 2^n mantissa, n as an integer; |x| at most 104.
struct SplitExp {
  float mantissa;  // from 0.7 to 1.42
  std::uint32_t n;
};
SPILLWAY_HD inline SplitExp split_exp(float x) {
  constexpr float kRound =
      12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  float const shifted = x * 1.44269504f + kRound;
  std::uint32_t const n =
      std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRound);
  float const whole = shifted - kRound;
  // ln(2) in two parts, the first so short that its product with n is exact.
  float r = x - whole * 0.693359375f;
  r = r - whole * -2.12194440e-4f;
  // Degree 4 fit of (e^r - 1 - r) / r^2 with the least largest relative error of e^r, 3e-9.
  float q = 0.00138145988f;
  q = q * r + 0.00836871658f;
  q = q * r + 0.0416683890f;
  q = q * r + 0.166665211f;
  q = q * r + 0.499999940f;
  return {1.0f + (r + r * r * q), n};
}

/// e^x with |r| <= ln(2)/2. Subnormal results are kept, NaN stays NaN, overflow is infinity.
SPILLWAY_HD inline float fast_exp(float x) {
  float const above = x < -104.0f ? -104.0f : x;
  auto const [mantissa, n] = split_exp(above > 89.0f ? 89.0f : above);
  // Two steps, because 2^n alone leaves the range of normal numbers at both ends.
  std::uint32_t const half = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) >> 1);
  float const scale1 = std::bit_cast<float>((half + 127u) << 23);
  float const scale2 = std::bit_cast<float>((n - half + 127u) << 23);
  return mantissa * scale1 * scale2;
}

/// e^x for weights of a softmax, x <= 0 but for rounding: 0 below -87, where results would soon be
/// subnormal; NaN stays NaN.
SPILLWAY_HD inline float softmax_exp(float x) {
  auto const [mantissa, n] = split_exp(x < -87.0f ? -87.0f : x);
  float const weight = mantissa * std::bit_cast<float>((n + 127u) << 23);
  return x < -87.0f ? 0.0f : weight;
}

/// 1 / (1 + e^-x) and 1 minus that, both without cancellation.
struct Logistic {
  float value, rest;
};
SPILLWAY_HD inline Logistic logistic(float x) {
  float const e = fast_exp(-x);
  float const value = 1.0f / (1.0f + e);
  return {value, e > 1.0f ? 1.0f - value : e * value};
}

}  // namespace spillway::ops::detail
