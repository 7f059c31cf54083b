// Sums over rows, column by column: each chunk of columns walks the rows in order, in double.
#pragma once

#include <cstdint>

#include "lib/core/hd.hpp"

namespace spillway::ops::detail {

inline constexpr std::int64_t kColumnChunk = 64;

/// sums[c] += sum over rows of term(row, c), for the columns of one chunk.
template <class Term>
SPILLWAY_HD inline void add_column_sums(std::int64_t chunk, std::int64_t rows, std::int64_t C,
                                        float* sums, Term const& term) {
  std::int64_t const begin = chunk * kColumnChunk;
  int const width = static_cast<int>(C - begin < kColumnChunk ? C - begin : kColumnChunk);
  double total[kColumnChunk] = {};
  for (std::int64_t row = 0; row < rows; ++row) {
#pragma omp simd
    for (int c = 0; c < width; ++c) total[c] += static_cast<double>(term(row, begin + c));
  }
  for (int c = 0; c < width; ++c) sums[begin + c] += static_cast<float>(total[c]);
}

/// The chunk functor of bias_backward.
template <class T>
struct BiasBackward {
  std::int64_t rows, C;
  T const* dy;
  float* dbias;
  SPILLWAY_HD void operator()(std::int64_t chunk) const {
    auto const* const values = dy;
    std::int64_t const stride = C;
    add_column_sums(chunk, rows, C, dbias, [values, stride](std::int64_t row, std::int64_t c) {
      return static_cast<float>(values[row * stride + c]);
    });
  }
};

}  // namespace spillway::ops::detail
