// Steps of blocked attention on tiles in fp32: loading, masking, softmax. Scores lie key by key, so
// that a vector runs along the queries and the softmax needs no sum across one.
#pragma once

#include <cstdint>

#include "lib/core/numeric.hpp"
#include "lib/ops/detail/gemm_tile.hpp"
#include "lib/ops/detail/isa.hpp"

namespace spillway::ops::detail {

inline constexpr std::int64_t kQueries = 48;  // of a tile; a multiple of kTileRows and kTileColumns
inline constexpr std::int64_t kKeys = 96;     // of a tile; a multiple of kTileRows

/// head_dim as it lies in the tiles: the rest of a row is 0.
inline std::int64_t padded_dim(std::int64_t head_dim) {
  return round_up<std::int64_t>(head_dim, kTileColumns);
}

/// Rows of one head in a matrix of T, from its first element on.
template <class T>
struct HeadRows {
  T* data;
  std::int64_t stride, rows, head_dim;
};

/// Rows times `factor`, then rows of 0 up to `padded_rows`.
template <class T>
void load_rows(HeadRows<T const> const& source, std::int64_t padded_rows, float factor, float* tile,
               Isa isa);

/// Rows of fp32 times `factor` to rows of T.
template <class T>
void store_rows(float const* tile, float factor, HeadRows<T> const& target, Isa isa);

/// [kQueries, width] to [width, kQueries].
void transpose_queries(float const* tile, std::int64_t width, float* transposed);

/// The keys [begin, end) that any of the queries [first, last] sees.
struct KeyRange {
  std::int64_t begin, end;
};
KeyRange visible_keys(std::int64_t first, std::int64_t last, std::int64_t window);

/// Scores [keys, kQueries] with the positions of their corner.
struct Scores {
  float* data;
  std::int64_t keys, first_key, first_query;
};

/// Scores of keys that a query does not see become minus infinity.
void mask_scores(Scores const& scores, std::int64_t window, Isa isa);

/// Running maximum and sum of each query's exponentials.
struct RunningSoftmax {
  float* maximum;
  float* sum;
  float* shrink;  // what sums of earlier tiles are multiplied by
};

/// Scores to exponentials, in place. `maximum` must be finite at the start, so that the hidden
/// scores of a query that has seen no key yet come out as 0 and not as NaN.
void softmax_step(Scores const& scores, RunningSoftmax const& running, Isa isa);

/// out[q, 0 .. width) *= shrink[q].
void shrink_rows(float* out, std::int64_t width, float const* shrink, Isa isa);

/// Scores to probabilities, in place, from the logarithm of the sum that the forward pass left.
void probabilities(Scores const& scores, float const* logsumexp, Isa isa);

/// dp[j, q] = p[j, q] (dp[j, q] - dot[q]): the gradient of the scores from that of the
/// probabilities.
void softmax_backward(float const* p, std::int64_t keys, float const* dot, float* dp, Isa isa);

}  // namespace spillway::ops::detail
