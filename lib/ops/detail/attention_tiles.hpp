// Steps of blocked attention on tiles in fp32: loading, masking, softmax. Scores lie key by key, so
// that a vector runs along the queries and the softmax needs no sum across one.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include "lib/core/numeric.hpp"
#include "lib/ops/detail/fast_exp.hpp"
#include "lib/ops/detail/gemm_tile.hpp"
#include "lib/ops/detail/store.hpp"

namespace spillway::ops::detail {

inline constexpr std::int64_t kQueries = 48;  // of a tile; a multiple of kTileRows and kTileColumns
inline constexpr std::int64_t kKeys = 96;     // of a tile; a multiple of kTileRows

/// head_dim as it lies in the tiles: the rest of a row is 0.
inline std::int64_t padded_dim(std::int64_t head_dim) {
  return round_up<std::int64_t>(head_dim, kTileColumns);
}

/// Rows [0, rows) of `source` times `factor`, then rows of 0 up to `padded_rows`.
template <class T>
inline void load_rows(T const* source, std::int64_t stride, std::int64_t rows,
                      std::int64_t padded_rows, std::int64_t head_dim, float factor, float* tile) {
  std::int64_t const width = padded_dim(head_dim);
  for (std::int64_t r = 0; r < rows; ++r) {
    T const* const from = source + r * stride;
    float* const to = tile + r * width;
#pragma omp simd
    for (std::int64_t d = 0; d < head_dim; ++d) to[d] = static_cast<float>(from[d]) * factor;
    for (std::int64_t d = head_dim; d < width; ++d) to[d] = 0;
  }
  for (std::int64_t i = rows * width; i < padded_rows * width; ++i) tile[i] = 0;
}

/// Rows of fp32 times `factor` to rows of T.
template <class T>
inline void store_rows(float const* tile, std::int64_t rows, std::int64_t head_dim, float factor,
                       T* target, std::int64_t stride) {
  std::int64_t const width = padded_dim(head_dim);
  for (std::int64_t r = 0; r < rows; ++r) {
    float const* const from = tile + r * width;
    T* const to = target + r * stride;
#pragma omp simd
    for (std::int64_t d = 0; d < head_dim; ++d) store(to[d], from[d] * factor);
  }
}

/// [kQueries, width] to [width, kQueries].
inline void transpose_queries(float const* tile, std::int64_t width, float* transposed) {
  for (std::int64_t d = 0; d < width; ++d)
    for (std::int64_t q = 0; q < kQueries; ++q) transposed[d * kQueries + q] = tile[q * width + d];
}

/// The keys [begin, end) that any of the queries [first, last] sees.
struct KeyRange {
  std::int64_t begin, end;
};
inline KeyRange visible_keys(std::int64_t first, std::int64_t last, std::int64_t window) {
  std::int64_t const begin = window > 0 && first >= window ? first - window + 1 : 0;
  return {begin, last + 1};
}

/// Scores of keys that a query does not see become minus infinity. `first_key`, `first_query`:
/// positions of the tile's corner.
inline void mask_scores(float* scores, std::int64_t keys, std::int64_t first_key,
                        std::int64_t first_query, std::int64_t window) {
  bool const crosses_diagonal = first_key + keys - 1 > first_query;
  bool const crosses_window = window > 0 && first_key + window <= first_query + kQueries - 1;
  if (!crosses_diagonal && !crosses_window) return;
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  constexpr std::int32_t kNoLimit = std::numeric_limits<std::int32_t>::max();
  std::int32_t const limit =
      window > 0 && window < kNoLimit ? static_cast<std::int32_t>(window) : kNoLimit;
  for (std::int64_t j = 0; j < keys; ++j) {
    float* const row = scores + j * kQueries;
    std::int32_t const distance = static_cast<std::int32_t>(first_query - (first_key + j));
#pragma omp simd
    for (std::int32_t q = 0; q < kQueries; ++q) {
      bool const seen = distance + q >= 0 && distance + q < limit;
      row[q] = seen ? row[q] : kHidden;
    }
  }
}

/// Running maximum and sum of each query's exponentials.
struct RunningSoftmax {
  float* maximum;
  float* sum;
  float* shrink;  // what sums of earlier tiles are multiplied by
};

/// Scores to exponentials, in place. A query that has seen no key yet has a finite maximum, so that
/// its hidden scores come out as 0 and not as NaN.
inline void softmax_step(float* scores, std::int64_t keys, RunningSoftmax const& running) {
  float largest[kQueries];
  float partial[kQueries] = {};
  for (std::int64_t q = 0; q < kQueries; ++q) largest[q] = running.maximum[q];
  for (std::int64_t j = 0; j < keys; ++j) {
    float const* const row = scores + j * kQueries;
#pragma omp simd
    for (std::int64_t q = 0; q < kQueries; ++q)
      largest[q] = row[q] > largest[q] ? row[q] : largest[q];
  }
  for (std::int64_t j = 0; j < keys; ++j) {
    float* const row = scores + j * kQueries;
#pragma omp simd
    for (std::int64_t q = 0; q < kQueries; ++q) {
      row[q] = fast_exp(row[q] - largest[q]);
      partial[q] += row[q];
    }
  }
#pragma omp simd
  for (std::int64_t q = 0; q < kQueries; ++q) {
    float const shrink = fast_exp(running.maximum[q] - largest[q]);
    running.shrink[q] = shrink;
    running.sum[q] = running.sum[q] * shrink + partial[q];
    running.maximum[q] = largest[q];
  }
}

/// Scores to probabilities, in place, from the logarithm of the sum that the forward pass left.
inline void probabilities(float* scores, std::int64_t keys, float const* logsumexp) {
  for (std::int64_t j = 0; j < keys; ++j) {
    float* const row = scores + j * kQueries;
#pragma omp simd
    for (std::int64_t q = 0; q < kQueries; ++q) row[q] = fast_exp(row[q] - logsumexp[q]);
  }
}

}  // namespace spillway::ops::detail
