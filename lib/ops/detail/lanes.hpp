// Sums and maxima over a row in a fixed order that vectorises: the same bits on every instruction
// set.
#pragma once

#include <cstdint>

#include "lib/core/hd.hpp"

namespace spillway::ops::detail {

inline constexpr int kLanes = 16;

/// Sum of term(i), i in [0, n): interleaved fp32 partial sums of at most 64 terms each, joined in
/// double.
template <class Term>
SPILLWAY_HD inline double lane_sum(std::int64_t n, Term const& term) {
  constexpr std::int64_t kBlock = 64 * kLanes;
  double total = 0;
  for (std::int64_t begin = 0; begin < n; begin += kBlock) {
    std::int64_t const end = n - begin < kBlock ? n : begin + kBlock;
    float lane[kLanes] = {};
    std::int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      float value[kLanes];
#pragma omp simd
      for (int l = 0; l < kLanes; ++l) value[l] = term(i + l);
      for (int l = 0; l < kLanes; ++l) lane[l] += value[l];
    }
    for (int l = 0; i + l < end; ++l) lane[l] += term(i + l);
    for (int l = 0; l < kLanes; ++l) total += static_cast<double>(lane[l]);
  }
  return total;
}

/// Largest of x[i]; `lowest` where none is larger. NaN is passed over.
SPILLWAY_HD inline float lane_max(std::int64_t n, float const* x, float lowest) {
  float lane[kLanes];
  for (int l = 0; l < kLanes; ++l) lane[l] = lowest;
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
  for (int l = 0; i + l < n; ++l) lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
  float largest = lowest;
  for (int l = 0; l < kLanes; ++l) largest = lane[l] > largest ? lane[l] : largest;
  return largest;
}

}  // namespace spillway::ops::detail
