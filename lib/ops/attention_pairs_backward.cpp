// Backward pass of blocked attention on packed tiles. A task is one kv head of one sequence, so
// that nothing is added by two threads.
#include "lib/ops/detail/attention_pairs.hpp"
#include "lib/ops/detail/fast_exp.hpp"
#include "lib/ops/detail/lanes.hpp"
#include "lib/ops/detail/store.hpp"
#include "lib/ops/detail/tasks.hpp"

namespace spillway::ops::detail {
namespace {

constexpr std::int64_t kQ = kPairQueries, kK = kPairKeys;

// Of the keys: K and V as strips of keys, K as strips of head dimensions, gradients of both. Of a
// tile of queries: Q and dout as panels of queries and of head dimensions, the transposed gradient.
// Of a tile of scores: probabilities and gradients in fp32, as strips and as panels.
struct Tiles {
  std::int64_t width, depth, key_tiles, keys_padded;
  bf16 *keys, *values, *keys_t;
  float *dk, *dv;
  bf16 *q, *dout, *q_t, *dout_t;
  float *dq_t, *logsumexp, *dot, *factor;
  float *p, *dp;
  bf16 *p_strips, *ds_strips, *ds_panels;
  Tiles(Scratch& scratch, std::int64_t T, std::int64_t head_dim)
      : width(padded_pairs(head_dim)),
        depth(width / kPairTileK),
        key_tiles(padded_pairs(T) / kPairTileK),
        keys_padded(padded_pairs(T)),
        keys(scratch.take<bf16>(keys_padded * width)),
        values(scratch.take<bf16>(keys_padded * width)),
        keys_t(scratch.take<bf16>(keys_padded * width)),
        dk(scratch.take<float>(keys_padded * width)),
        dv(scratch.take<float>(keys_padded * width)),
        q(scratch.take<bf16>(kQ * width)),
        dout(scratch.take<bf16>(kQ * width)),
        q_t(scratch.take<bf16>(kQ * width)),
        dout_t(scratch.take<bf16>(kQ * width)),
        dq_t(scratch.take<float>(kQ * width)),
        logsumexp(scratch.take<float>(kQ)),
        dot(scratch.take<float>(kQ)),
        factor(scratch.take<float>(kQ)),
        p(scratch.take<float>(kQ * kK)),
        dp(scratch.take<float>(kQ * kK)),
        p_strips(scratch.take<bf16>(kQ * kK)),
        ds_strips(scratch.take<bf16>(kQ * kK)),
        ds_panels(scratch.take<bf16>(kQ * kK)) {}
};

// Scores to probabilities, and gradients of probabilities to those of scores, without the scale.
void softmax_backward(PairScores const& scores, float scale, Tiles const& t) {
  run_on(Isa::avx512, [&scores, scale, &t](auto) {
    float const* const logsumexp = t.logsumexp;
    float const* const dot = t.dot;
    float const times = scale;  // no store can alias it
    for (std::int64_t j = 0; j < scores.keys; ++j) {
      float* const p = t.p + j * kQ;
      float* const dp = t.dp + j * kQ;
#pragma omp simd
      for (std::int64_t q = 0; q < kQ; ++q) {
        float const probability = softmax_exp(p[q] * times - logsumexp[q]);
        p[q] = probability;
        dp[q] = probability * (dp[q] - dot[q]);
      }
    }
  });
}

void run_keys(PairScores const& scores, AttentionForward<bf16> const& f, Tiles const& t,
              TileUnit unit) {
  std::int64_t const query_tiles = div_ceil(scores.queries, kStripRows);
  PairProduct to_scores{.left = t.keys + scores.first_key * t.width,
                        .strips = scores.keys / kStripRows,
                        .strip_steps = t.depth,
                        .right = t.q,
                        .panels = query_tiles,
                        .panel_steps = t.depth,
                        .steps = t.depth,
                        .c = t.p,
                        .c_stride = kQ,
                        .accumulate = false};
  multiply_pairs(unit, to_scores);
  hide_scores(scores, f.window);
  to_scores.left = t.values + scores.first_key * t.width;
  to_scores.right = t.dout;
  to_scores.c = t.dp;
  multiply_pairs(unit, to_scores);
  softmax_backward(scores, f.scale, t);
  round_keys(t.p, scores.keys, t.p_strips);
  round_keys(t.dp, scores.keys, t.ds_strips);
  join_keys(t.dp, scores.keys, t.ds_panels);
  PairProduct to_keys{.left = t.p_strips,
                      .strips = scores.keys / kStripRows,
                      .strip_steps = kQ / kPairTileK,
                      .right = t.dout_t,
                      .panels = t.width / kStripRows,
                      .panel_steps = query_tiles,
                      .steps = query_tiles,
                      .c = t.dv + scores.first_key * t.width,
                      .c_stride = t.width,
                      .accumulate = true};
  multiply_pairs(unit, to_keys);
  to_keys.left = t.ds_strips;
  to_keys.right = t.q_t;
  to_keys.c = t.dk + scores.first_key * t.width;
  multiply_pairs(unit, to_keys);
  multiply_pairs(unit, {.left = t.keys_t + scores.first_key / kPairTileK * 2 * kPairTileElements,
                        .strips = t.width / kStripRows,
                        .strip_steps = t.key_tiles,
                        .right = t.ds_panels,
                        .panels = query_tiles,
                        .panel_steps = scores.keys / kPairTileK,
                        .steps = scores.keys / kPairTileK,
                        .c = t.dq_t,
                        .c_stride = kQ,
                        .accumulate = true});
}

// Sequence b, a head, and its queries from `first` on.
struct Place {
  std::int64_t b, head, first, queries;
};

// Packs q and dout; logsumexp, and dot = sum over d of dout * out: what the softmax takes from dp.
// Padding has probability 0.
void load_queries(AttentionBackward<bf16> const& args, Place const& at, Tiles const& t) {
  AttentionForward<bf16> const& f = args.forward;
  std::int64_t const row = at.b * f.T_ + at.first, column = at.head * f.head_dim;
  bf16 const* const q = f.q + row * f.q_stride + column;
  bf16 const* const dout = args.dout + row * f.out_stride + column;
  bf16 const* const out = f.out + row * f.out_stride + column;
  pack_right({q, f.q_stride, false}, {0, at.queries, 0, f.head_dim}, t.q);
  pack_right({dout, f.out_stride, false}, {0, at.queries, 0, f.head_dim}, t.dout);
  pack_right({q, f.q_stride, true}, {0, f.head_dim, 0, at.queries}, t.q_t);
  pack_right({dout, f.out_stride, true}, {0, f.head_dim, 0, at.queries}, t.dout_t);
  std::fill_n(t.logsumexp, kQ, 1e30f);
  std::fill_n(t.dot, kQ, 0.0f);
  std::copy_n(f.logsumexp + (at.b * f.heads + at.head) * f.T_ + at.first, at.queries, t.logsumexp);
  run_on(Isa::avx512, [&](auto) {
    for (std::int64_t i = 0; i < at.queries; ++i)
      t.dot[i] = static_cast<float>(lane_sum(f.head_dim, [&, i](std::int64_t d) {
        return static_cast<float>(out[i * f.out_stride + d]) *
               static_cast<float>(dout[i * f.out_stride + d]);
      }));
  });
}

void run_queries(AttentionBackward<bf16> const& args, Place const& at, Tiles const& t,
                 TileUnit unit) {
  AttentionForward<bf16> const& f = args.forward;
  load_queries(args, at, t);
  std::fill_n(t.dq_t, kQ * t.width, 0.0f);
  KeyRange const range = visible_keys(at.first, at.first + at.queries - 1, f.window);
  std::int64_t const end = padded_pairs(range.end);
  for (std::int64_t key = range.begin / kStripRows * kStripRows; key < end; key += kK)
    run_keys({t.p, std::min(kK, end - key), key, at.first, at.queries}, f, t, unit);
  std::fill_n(t.factor, kQ, f.scale);
  bf16* const dq = args.dq + (at.b * f.T_ + at.first) * f.q_stride + at.head * f.head_dim;
  store_transposed(t.dq_t, t.factor, {dq, f.q_stride, at.queries, f.head_dim});
}

void store_keys(float const* rows, std::int64_t width, float factor, HeadRows<bf16> const& target) {
  run_on(Isa::avx512, [&, rows, width, factor](auto) {
    for (std::int64_t row = 0; row < target.rows; ++row) {
      float const* const from = rows + row * width;
      bf16* const to = target.data + row * target.stride;
#pragma omp simd
      for (std::int64_t d = 0; d < target.head_dim; ++d) store(to[d], from[d] * factor);
    }
  });
}

void run_kv_head(AttentionBackward<bf16> const& args, std::int64_t b, std::int64_t kv_head,
                 Tiles const& t, TileUnit unit) {
  AttentionForward<bf16> const& f = args.forward;
  std::int64_t const column = kv_head * f.head_dim;
  bf16 const* const k = f.k + b * f.T_ * f.k_stride + column;
  bf16 const* const v = f.v + b * f.T_ * f.v_stride + column;
  pack_left({k, f.k_stride, false}, {0, f.T_, 0, f.head_dim}, t.keys);
  pack_left({v, f.v_stride, false}, {0, f.T_, 0, f.head_dim}, t.values);
  pack_left({k, f.k_stride, true}, {0, f.head_dim, 0, f.T_}, t.keys_t);
  std::fill_n(t.dk, t.keys_padded * t.width, 0.0f);
  std::fill_n(t.dv, t.keys_padded * t.width, 0.0f);
  std::int64_t const group = f.heads / f.kv_heads;
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
    for (std::int64_t first = 0; first < f.T_; first += kQ)
      run_queries(args, {b, head, first, std::min(kQ, f.T_ - first)}, t, unit);
  std::int64_t const row = b * f.T_;
  store_keys(t.dk, t.width, f.scale,
             {args.dk + row * f.k_stride + column, f.k_stride, f.T_, f.head_dim});
  store_keys(t.dv, t.width, 1.0f,
             {args.dv + row * f.v_stride + column, f.v_stride, f.T_, f.head_dim});
}

}  // namespace

std::size_t attention_pairs_backward_bytes(std::int64_t T, std::int64_t head_dim) {
  std::int64_t const width = padded_pairs(head_dim), keys = padded_pairs(T);
  return 3 * scratch_bytes<bf16>(keys * width) + 2 * scratch_bytes<float>(keys * width) +
         4 * scratch_bytes<bf16>(kQ * width) + scratch_bytes<float>(kQ * width) +
         3 * scratch_bytes<float>(kQ) + 2 * scratch_bytes<float>(kQ * kK) +
         3 * scratch_bytes<bf16>(kQ * kK);
}

void attention_pairs_backward(AttentionBackward<bf16> const& args, device::Stream& stream,
                              TileUnit unit) {
  AttentionForward<bf16> const& f = args.forward;
  std::int64_t const tasks = f.B * f.kv_heads;
  if (tasks == 0 || f.T_ == 0) return;
  int const threads = static_cast<int>(std::min<std::int64_t>(stream.threads(), tasks));
  std::size_t const bytes = attention_pairs_backward_bytes(f.T_, f.head_dim);
  Scratch const scratch(stream.scratch(), bytes * static_cast<std::size_t>(threads),
                        "attention_backward");
  for_each_task(tasks, threads, [&](std::int64_t task, int thread) {
    Scratch mine = scratch.part(thread, bytes);
    Tiles const t(mine, f.T_, f.head_dim);
    TileSession const session(unit);
    run_kv_head(args, task / f.kv_heads, task % f.kv_heads, t, unit);
  });
}

}  // namespace spillway::ops::detail
