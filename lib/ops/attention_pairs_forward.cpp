// Forward pass of blocked attention on packed tiles. A task is the queries of a kv head's heads, or
// a share of them where there are few kv heads.
#include <cmath>

#include "lib/ops/detail/attention_pairs.hpp"
#include "lib/ops/detail/fast_exp.hpp"
#include "lib/ops/detail/tasks.hpp"

namespace spillway::ops::detail {
namespace {

constexpr std::int64_t kQ = kPairQueries, kK = kPairKeys;

// K as strips of keys, V as strips of head dimensions; of a tile of queries: Q as panels, scores,
// probabilities as panels, and the transposed output.
struct Tiles {
  std::int64_t width, depth;  // padded head_dim; tiles of k that it takes
  std::int64_t key_tiles;     // of k that all keys take
  bf16 *keys, *values, *queries, *probabilities;
  float *scores, *out, *maximum, *sum, *factor;
  Tiles(Scratch& scratch, std::int64_t T, std::int64_t head_dim)
      : width(padded_pairs(head_dim)),
        depth(width / kPairTileK),
        key_tiles(padded_pairs(T) / kPairTileK),
        keys(scratch.take<bf16>(padded_pairs(T) * width)),
        values(scratch.take<bf16>(padded_pairs(T) * width)),
        queries(scratch.take<bf16>(kQ * width)),
        probabilities(scratch.take<bf16>(kQ * kK)),
        scores(scratch.take<float>(kQ * kK)),
        out(scratch.take<float>(kQ * width)),
        maximum(scratch.take<float>(kQ)),
        sum(scratch.take<float>(kQ)),
        factor(scratch.take<float>(kQ)) {}
};

// Scores times `scale` to exponentials in place; `factor` is what sums of earlier tiles are
// multiplied by.
void softmax_step(PairScores const& scores, float scale, Tiles const& t) {
  run_on(Isa::avx512, [&scores, scale, &t](auto) {
    float const times = scale;  // no store can alias it
    for (std::int64_t first = 0; first < kQ; first += 16) {
      float* const column = scores.data + first;
      float largest[16], sum[16] = {};
      for (int q = 0; q < 16; ++q) largest[q] = column[q];
      for (std::int64_t j = 1; j < scores.keys; ++j)
#pragma omp simd
        for (int q = 0; q < 16; ++q)
          largest[q] = column[j * kQ + q] > largest[q] ? column[j * kQ + q] : largest[q];
      for (int q = 0; q < 16; ++q) largest[q] = std::max(largest[q] * times, t.maximum[first + q]);
      for (std::int64_t j = 0; j < scores.keys; ++j)
#pragma omp simd
        for (int q = 0; q < 16; ++q) {
          float const weight = softmax_exp(column[j * kQ + q] * times - largest[q]);
          column[j * kQ + q] = weight;
          sum[q] += weight;
        }
#pragma omp simd
      for (int q = 0; q < 16; ++q) {
        float const shrink = softmax_exp(t.maximum[first + q] - largest[q]);
        t.factor[first + q] = shrink;
        t.sum[first + q] = t.sum[first + q] * shrink + sum[q];
        t.maximum[first + q] = largest[q];
      }
    }
  });
}

void shrink_out(Tiles const& t) {
  // Most tiles find no larger score than those before.
  if (std::all_of(t.factor, t.factor + kQ, [](float factor) { return factor == 1.0f; })) return;
  run_on(Isa::avx512, [&t](auto) {
    float* const out = t.out;
    float const* const factor = t.factor;
    for (std::int64_t d = 0; d < t.width; ++d)
#pragma omp simd
      for (std::int64_t q = 0; q < kQ; ++q) out[d * kQ + q] *= factor[q];
  });
}

void run_keys(PairScores const& scores, AttentionForward<bf16> const& args, Tiles const& t,
              TileUnit unit) {
  std::int64_t const query_tiles = div_ceil(scores.queries, kStripRows);
  multiply_pairs(unit, {.left = t.keys + scores.first_key * t.width,
                        .strips = scores.keys / kStripRows,
                        .strip_steps = t.depth,
                        .right = t.queries,
                        .panels = query_tiles,
                        .panel_steps = t.depth,
                        .steps = t.depth,
                        .c = scores.data,
                        .c_stride = kQ,
                        .accumulate = false});
  hide_scores(scores, args.window);
  softmax_step(scores, args.scale, t);
  shrink_out(t);
  join_keys(scores.data, scores.keys, t.probabilities);
  std::int64_t const steps = scores.keys / kPairTileK;
  multiply_pairs(unit, {.left = t.values + scores.first_key / kPairTileK * 2 * kPairTileElements,
                        .strips = t.width / kStripRows,
                        .strip_steps = t.key_tiles,
                        .right = t.probabilities,
                        .panels = query_tiles,
                        .panel_steps = steps,
                        .steps = steps,
                        .c = t.out,
                        .c_stride = kQ,
                        .accumulate = true});
}

// Sequence b, a head, and its queries from `first` on.
struct Place {
  std::int64_t b, head, first;
};

void run_queries(AttentionForward<bf16> const& args, Place const& at, Tiles const& t,
                 TileUnit unit) {
  std::int64_t const queries = std::min(kQ, args.T_ - at.first);
  std::int64_t const row = at.b * args.T_ + at.first;
  pack_right({args.q + row * args.q_stride + at.head * args.head_dim, args.q_stride, false},
             {0, queries, 0, args.head_dim}, t.queries);
  std::fill_n(t.out, kQ * t.width, 0.0f);
  std::fill_n(t.maximum, kQ, -1e30f);
  std::fill_n(t.sum, kQ, 0.0f);
  KeyRange const range = visible_keys(at.first, at.first + queries - 1, args.window);
  std::int64_t const end = padded_pairs(range.end);
  for (std::int64_t key = range.begin / kStripRows * kStripRows; key < end; key += kK)
    run_keys({t.scores, std::min(kK, end - key), key, at.first, queries}, args, t, unit);
  float* const logsumexp = args.logsumexp + (at.b * args.heads + at.head) * args.T_ + at.first;
  for (std::int64_t q = 0; q < queries; ++q) {
    t.factor[q] = 1.0f / t.sum[q];
    logsumexp[q] = static_cast<float>(static_cast<double>(t.maximum[q]) +
                                      std::log(static_cast<double>(t.sum[q])));
  }
  store_transposed(t.out, t.factor,
                   {args.out + row * args.out_stride + at.head * args.head_dim, args.out_stride,
                    queries, args.head_dim});
}

}  // namespace

std::size_t attention_pairs_forward_bytes(std::int64_t T, std::int64_t head_dim) {
  std::int64_t const width = padded_pairs(head_dim);
  return 2 * scratch_bytes<bf16>(padded_pairs(T) * width) + scratch_bytes<bf16>(kQ * width) +
         scratch_bytes<bf16>(kQ * kK) + scratch_bytes<float>(kQ * kK) +
         scratch_bytes<float>(kQ * width) + 3 * scratch_bytes<float>(kQ);
}

void attention_pairs_forward(AttentionForward<bf16> const& args, device::Stream& stream,
                             TileUnit unit) {
  std::int64_t const pairs = args.B * args.kv_heads;
  std::int64_t const group = args.heads / args.kv_heads;
  std::int64_t const tiles = div_ceil(args.T_, kQ) * group;
  if (pairs == 0 || tiles == 0) return;
  // Enough tasks for all threads, each of which packs its keys and values once.
  std::int64_t const shares = std::min(tiles, div_ceil<std::int64_t>(stream.threads(), pairs));
  int const threads = static_cast<int>(std::min<std::int64_t>(stream.threads(), pairs * shares));
  std::size_t const bytes = attention_pairs_forward_bytes(args.T_, args.head_dim);
  Scratch const scratch(stream.scratch(), bytes * static_cast<std::size_t>(threads),
                        "attention_forward");
  for_each_task(pairs * shares, threads, [&](std::int64_t task, int thread) {
    std::int64_t const b = task / shares / args.kv_heads, kv_head = task / shares % args.kv_heads;
    Scratch mine = scratch.part(thread, bytes);
    Tiles const t(mine, args.T_, args.head_dim);
    TileSession const session(unit);
    std::int64_t const row = b * args.T_, column = kv_head * args.head_dim;
    pack_left({args.k + row * args.k_stride + column, args.k_stride, false},
              {0, args.T_, 0, args.head_dim}, t.keys);
    pack_left({args.v + row * args.v_stride + column, args.v_stride, true},
              {0, args.head_dim, 0, args.T_}, t.values);
    for (std::int64_t tile = task % shares; tile < tiles; tile += shares)
      run_queries(args, {b, kv_head * group + tile % group, tile / group * kQ}, t, unit);
  });
}

}  // namespace spillway::ops::detail
