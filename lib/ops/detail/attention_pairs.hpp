// Blocked attention in bf16 on packed tiles (tile_pack.hpp), for AMX and AVX512_BF16. Scores lie
// key by key: a vector runs along the queries, a softmax needs no sum across one, and both forms
// that products want of probabilities come out of it without transposing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lib/core/numeric.hpp"
#include "lib/ops/attention.hpp"
#include "lib/ops/detail/attention_tiles.hpp"
#include "lib/ops/detail/scratch.hpp"
#include "lib/ops/detail/tile_kernels.hpp"
#include "lib/ops/detail/tile_pack.hpp"

namespace spillway::ops::detail {

inline constexpr std::int64_t kPairQueries = 128;  // of a tile, multiples of kStripRows
inline constexpr std::int64_t kPairKeys = 64;

/// head_dim and positions as they lie in the tiles: the rest is 0.
inline std::int64_t padded_pairs(std::int64_t extent) { return round_up(extent, kStripRows); }

/// Scores [keys, kPairQueries] of fp32 with the positions of their corner.
struct PairScores {
  float* data;
  std::int64_t keys, first_key, first_query;
  std::int64_t queries;  // of which the rest are padding
};

/// c[strips * 32, panels * 32] (+)= left times right, `steps` tiles of k deep. Strips and panels
/// are `strip_steps` and `panel_steps` tiles of k apart.
struct PairProduct {
  bf16 const* left;
  std::int64_t strips, strip_steps;
  bf16 const* right;
  std::int64_t panels, panel_steps;
  std::int64_t steps;
  float* c;
  std::int64_t c_stride;
  bool accumulate;
};
void multiply_pairs(TileUnit unit, PairProduct const& product);

/// Minus infinity where a query does not see a key.
void hide_scores(PairScores const& scores, std::int64_t window);

/// Two rows of keys become a row of pairs in the panels of a right operand of `keys` steps.
void join_keys(float const* values, std::int64_t keys, bf16* panels);
/// Rows of keys become rows in the strips of a left operand whose k are the queries.
void round_keys(float const* values, std::int64_t keys, bf16* strips);

/// values [width, kPairQueries] times factor[query] to rows of queries.
void store_transposed(float const* values, float const* factor, HeadRows<bf16> const& target);

void attention_pairs_forward(AttentionForward<bf16> const&, device::Stream&, TileUnit);
void attention_pairs_backward(AttentionBackward<bf16> const&, device::Stream&, TileUnit);
/// Of one thread.
std::size_t attention_pairs_forward_bytes(std::int64_t T, std::int64_t head_dim);
std::size_t attention_pairs_backward_bytes(std::int64_t T, std::int64_t head_dim);

}  // namespace spillway::ops::detail
