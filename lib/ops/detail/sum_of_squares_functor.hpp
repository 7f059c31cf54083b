// Sum of squares of one block of a gradient, in double; launched by adamw.cpp.
#pragma once

#include <cstdint>

#include "lib/core/hd.hpp"

namespace spillway::ops::detail {

/// partial[block - first] = sum of squares of one block, over lanes in a fixed order. Squares of
/// fp32 numbers are exact in double and cannot overflow.
struct SumOfSquaresBlock {
  static constexpr std::int64_t kBlock = 4096;
  std::int64_t n;
  float const* x;
  std::int64_t first;
  double* partial;

  SPILLWAY_HD void operator()(std::int64_t index) const {
    constexpr int kWide = 8;
    std::int64_t const begin = (first + index) * kBlock;
    std::int64_t const end = n - begin < kBlock ? n : begin + kBlock;
    double lane[kWide] = {};
    std::int64_t i = begin;
    for (; i + kWide <= end; i += kWide)
      for (int l = 0; l < kWide; ++l) {
        double const value = static_cast<double>(x[i + l]);
        lane[l] += value * value;
      }
    for (int l = 0; i + l < end; ++l) {
      double const value = static_cast<double>(x[i + l]);
      lane[l] += value * value;
    }
    double sum = 0;
    for (int l = 0; l < kWide; ++l) sum += lane[l];
    partial[index] = sum;
  }
};

}  // namespace spillway::ops::detail
