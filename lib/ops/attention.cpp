// Blocked attention on the CPU. Forward: a task is a tile of queries of one head. Backward: a task
// is one kv head of one sequence, so that nothing is added by two threads.
#include "lib/ops/attention.hpp"

#include <algorithm>
#include <cmath>

#include "lib/core/dtype.hpp"
#include "lib/core/error.hpp"
#include "lib/ops/detail/attention.hpp"
#include "lib/ops/detail/attention_tiles.hpp"
#include "lib/ops/detail/lanes.hpp"
#include "lib/ops/detail/scratch.hpp"
#include "lib/ops/detail/tasks.hpp"

namespace spillway::ops {
namespace detail {
namespace {

// Tiles of one thread. kQueries rows: q, out. Transposed: q_t. kKeys rows: k, v. Scores: [kKeys,
// kQueries].
struct ForwardTiles {
  float *q, *q_t, *out, *k, *v, *scores, *maximum, *sum, *shrink;
  ForwardTiles(Scratch& scratch, std::int64_t width)
      : q(scratch.take<float>(kQueries * width)),
        q_t(scratch.take<float>(kQueries * width)),
        out(scratch.take<float>(kQueries * width)),
        k(scratch.take<float>(kKeys * width)),
        v(scratch.take<float>(kKeys * width)),
        scores(scratch.take<float>(kKeys * kQueries)),
        maximum(scratch.take<float>(kQueries)),
        sum(scratch.take<float>(kQueries)),
        shrink(scratch.take<float>(kQueries)) {}
};

std::size_t forward_tile_bytes(std::int64_t width) {
  return 3 * scratch_bytes<float>(kQueries * width) + 2 * scratch_bytes<float>(kKeys * width) +
         scratch_bytes<float>(kKeys * kQueries) + 3 * scratch_bytes<float>(kQueries);
}

struct BackwardTiles {
  float *q, *q_t, *dout, *dout_t, *dq, *k, *v, *p, *dp, *logsumexp, *dot, *dk, *dv;
  BackwardTiles(Scratch& scratch, std::int64_t width, std::int64_t T)
      : q(scratch.take<float>(kQueries * width)),
        q_t(scratch.take<float>(kQueries * width)),
        dout(scratch.take<float>(kQueries * width)),
        dout_t(scratch.take<float>(kQueries * width)),
        dq(scratch.take<float>(kQueries * width)),
        k(scratch.take<float>(kKeys * width)),
        v(scratch.take<float>(kKeys * width)),
        p(scratch.take<float>(kKeys * kQueries)),
        dp(scratch.take<float>(kKeys * kQueries)),
        logsumexp(scratch.take<float>(kQueries)),
        dot(scratch.take<float>(kQueries)),
        dk(scratch.take<float>((T + kTileRows) * width)),
        dv(scratch.take<float>((T + kTileRows) * width)) {}
};

std::size_t backward_tile_bytes(std::int64_t width, std::int64_t T) {
  return 5 * scratch_bytes<float>(kQueries * width) + 2 * scratch_bytes<float>(kKeys * width) +
         2 * scratch_bytes<float>(kKeys * kQueries) + 2 * scratch_bytes<float>(kQueries) +
         2 * scratch_bytes<float>((T + kTileRows) * width);
}

// Where a tile of queries lies: sequence b, head, first position, number of queries.
struct QueryTile {
  std::int64_t b, head, first, queries;
};

template <Isa I, class T>
void forward_tile(AttentionForward<T> const& args, QueryTile const& tile, ForwardTiles const& t) {
  std::int64_t const width = padded_dim(args.head_dim);
  std::int64_t const kv_head = tile.head / (args.heads / args.kv_heads);
  std::int64_t const row = tile.b * args.T_ + tile.first;
  load_rows(args.q + row * args.q_stride + tile.head * args.head_dim, args.q_stride, tile.queries,
            kQueries, args.head_dim, args.scale, t.q);
  transpose_queries(t.q, width, t.q_t);
  for (std::int64_t i = 0; i < kQueries * width; ++i) t.out[i] = 0;
  for (std::int64_t q = 0; q < kQueries; ++q) {
    t.maximum[q] = -1e30f;
    t.sum[q] = 0;
  }
  KeyRange const range = visible_keys(tile.first, tile.first + tile.queries - 1, args.window);
  for (std::int64_t key = range.begin; key < range.end; key += kKeys) {
    std::int64_t const keys = std::min(kKeys, range.end - key);
    std::int64_t const padded = round_up<std::int64_t>(keys, kTileRows);
    std::int64_t const key_row = tile.b * args.T_ + key;
    load_rows(args.k + key_row * args.k_stride + kv_head * args.head_dim, args.k_stride, keys,
              padded, args.head_dim, 1.0f, t.k);
    load_rows(args.v + key_row * args.v_stride + kv_head * args.head_dim, args.v_stride, keys,
              padded, args.head_dim, 1.0f, t.v);
    multiply_tiles<I>({.M = padded,
                       .N = kQueries,
                       .K = args.head_dim,
                       .a = t.k,
                       .a_row = width,
                       .a_column = 1,
                       .b = t.q_t,
                       .b_row = kQueries,
                       .c = t.scores,
                       .c_row = kQueries,
                       .accumulate = false});
    mask_scores(t.scores, keys, key, tile.first, args.window);
    softmax_step(t.scores, keys, {t.maximum, t.sum, t.shrink});
    for (std::int64_t q = 0; q < kQueries; ++q)
      for (std::int64_t d = 0; d < width; ++d) t.out[q * width + d] *= t.shrink[q];
    multiply_tiles<I>({.M = kQueries,
                       .N = width,
                       .K = keys,
                       .a = t.scores,
                       .a_row = 1,
                       .a_column = kQueries,
                       .b = t.v,
                       .b_row = width,
                       .c = t.out,
                       .c_row = width,
                       .accumulate = true});
  }
  for (std::int64_t q = 0; q < tile.queries; ++q)
    store_rows(t.out + q * width, 1, args.head_dim, 1.0f / t.sum[q],
               args.out + (row + q) * args.out_stride + tile.head * args.head_dim, args.out_stride);
  float* const logsumexp =
      args.logsumexp + (tile.b * args.heads + tile.head) * args.T_ + tile.first;
  for (std::int64_t q = 0; q < tile.queries; ++q)
    logsumexp[q] = static_cast<float>(static_cast<double>(t.maximum[q]) +
                                      std::log(static_cast<double>(t.sum[q])));
}

// What a tile of queries needs in the backward pass: q, dout and their transposes, the softmax's
// logarithm, and dot = sum over d of dout * out, the part of dp that the softmax takes away.
template <class T>
void load_queries(AttentionBackward<T> const& args, QueryTile const& tile, BackwardTiles const& t) {
  AttentionForward<T> const& f = args.forward;
  std::int64_t const width = padded_dim(f.head_dim);
  std::int64_t const row = tile.b * f.T_ + tile.first;
  std::int64_t const out_offset = row * f.out_stride + tile.head * f.head_dim;
  load_rows(f.q + row * f.q_stride + tile.head * f.head_dim, f.q_stride, tile.queries, kQueries,
            f.head_dim, f.scale, t.q);
  load_rows(args.dout + out_offset, f.out_stride, tile.queries, kQueries, f.head_dim, 1.0f, t.dout);
  transpose_queries(t.q, width, t.q_t);
  transpose_queries(t.dout, width, t.dout_t);
  float const* const logsumexp = f.logsumexp + (tile.b * f.heads + tile.head) * f.T_ + tile.first;
  for (std::int64_t q = 0; q < kQueries; ++q) {
    bool const real = q < tile.queries;
    T const* const out = f.out + out_offset + q * f.out_stride;
    float const* const dout = t.dout + q * width;
    t.logsumexp[q] = real ? logsumexp[q] : 0.0f;
    t.dot[q] = real ? static_cast<float>(lane_sum(f.head_dim,
                                                  [out, dout](std::int64_t d) {
                                                    return static_cast<float>(out[d]) * dout[d];
                                                  }))
                    : 0.0f;
  }
}

// Adds what one tile of queries and one of keys give to dq, dk and dv. p and dp are [keys,
// queries].
template <Isa I>
void backward_tile(std::int64_t keys, std::int64_t head_dim, float* dk, float* dv,
                   BackwardTiles const& t) {
  std::int64_t const width = padded_dim(head_dim);
  std::int64_t const padded = round_up<std::int64_t>(keys, kTileRows);
  for (std::int64_t i = keys * kQueries; i < padded * kQueries; ++i) t.p[i] = 0;
  multiply_tiles<I>({.M = padded,
                     .N = kQueries,
                     .K = head_dim,
                     .a = t.v,
                     .a_row = width,
                     .a_column = 1,
                     .b = t.dout_t,
                     .b_row = kQueries,
                     .c = t.dp,
                     .c_row = kQueries,
                     .accumulate = false});
  multiply_tiles<I>({.M = padded,
                     .N = width,
                     .K = kQueries,
                     .a = t.p,
                     .a_row = kQueries,
                     .a_column = 1,
                     .b = t.dout,
                     .b_row = width,
                     .c = dv,
                     .c_row = width,
                     .accumulate = true});
  for (std::int64_t j = 0; j < padded; ++j)
#pragma omp simd
    for (std::int64_t q = 0; q < kQueries; ++q)
      t.dp[j * kQueries + q] = t.p[j * kQueries + q] * (t.dp[j * kQueries + q] - t.dot[q]);
  multiply_tiles<I>({.M = padded,
                     .N = width,
                     .K = kQueries,
                     .a = t.dp,
                     .a_row = kQueries,
                     .a_column = 1,
                     .b = t.q,
                     .b_row = width,
                     .c = dk,
                     .c_row = width,
                     .accumulate = true});
  multiply_tiles<I>({.M = kQueries,
                     .N = width,
                     .K = keys,
                     .a = t.dp,
                     .a_row = 1,
                     .a_column = kQueries,
                     .b = t.k,
                     .b_row = width,
                     .c = t.dq,
                     .c_row = width,
                     .accumulate = true});
}

template <Isa I, class T>
void backward_queries(AttentionBackward<T> const& args, QueryTile const& tile,
                      BackwardTiles const& t) {
  AttentionForward<T> const& f = args.forward;
  std::int64_t const width = padded_dim(f.head_dim);
  std::int64_t const column = tile.head / (f.heads / f.kv_heads) * f.head_dim;
  load_queries(args, tile, t);
  for (std::int64_t i = 0; i < kQueries * width; ++i) t.dq[i] = 0;
  KeyRange const range = visible_keys(tile.first, tile.first + tile.queries - 1, f.window);
  for (std::int64_t key = range.begin; key < range.end; key += kKeys) {
    std::int64_t const keys = std::min(kKeys, range.end - key);
    std::int64_t const padded = round_up<std::int64_t>(keys, kTileRows);
    std::int64_t const key_row = tile.b * f.T_ + key;
    load_rows(f.k + key_row * f.k_stride + column, f.k_stride, keys, padded, f.head_dim, 1.0f, t.k);
    load_rows(f.v + key_row * f.v_stride + column, f.v_stride, keys, padded, f.head_dim, 1.0f, t.v);
    multiply_tiles<I>({.M = padded,
                       .N = kQueries,
                       .K = f.head_dim,
                       .a = t.k,
                       .a_row = width,
                       .a_column = 1,
                       .b = t.q_t,
                       .b_row = kQueries,
                       .c = t.p,
                       .c_row = kQueries,
                       .accumulate = false});
    mask_scores(t.p, keys, key, tile.first, f.window);
    probabilities(t.p, keys, t.logsumexp);
    backward_tile<I>(keys, f.head_dim, t.dk + key * width, t.dv + key * width, t);
  }
  // q was loaded times scale, so dk has it already; dq gets it here.
  store_rows(t.dq, tile.queries, f.head_dim, f.scale,
             args.dq + (tile.b * f.T_ + tile.first) * f.q_stride + tile.head * f.head_dim,
             f.q_stride);
}

template <Isa I, class T>
void backward_kv_head(AttentionBackward<T> const& args, std::int64_t b, std::int64_t kv_head,
                      BackwardTiles const& t) {
  AttentionForward<T> const& f = args.forward;
  std::int64_t const width = padded_dim(f.head_dim);
  std::int64_t const group = f.heads / f.kv_heads;
  for (std::int64_t i = 0; i < (f.T_ + kTileRows) * width; ++i) t.dk[i] = t.dv[i] = 0;
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
    for (std::int64_t first = 0; first < f.T_; first += kQueries)
      backward_queries<I>(args, {b, head, first, std::min(kQueries, f.T_ - first)}, t);
  store_rows(t.dk, f.T_, f.head_dim, 1.0f, args.dk + b * f.T_ * f.k_stride + kv_head * f.head_dim,
             f.k_stride);
  store_rows(t.dv, f.T_, f.head_dim, 1.0f, args.dv + b * f.T_ * f.v_stride + kv_head * f.head_dim,
             f.v_stride);
}

template <class T>
void check(AttentionForward<T> const& args) {
  expect(args.kv_heads > 0 && args.heads % args.kv_heads == 0,
         "attention heads divide evenly over the kv heads");
  expect(args.T_ < std::int64_t{1} << 31, "attention positions fit 31 bits");
}

}  // namespace

template <class T>
void attention_forward(AttentionForward<T> const& args, device::Stream& stream, Isa isa) {
  check(args);
  std::int64_t const tiles = div_ceil(args.T_, kQueries);
  std::int64_t const tasks = args.B * args.heads * tiles;
  if (tasks == 0) return;
  int const threads = static_cast<int>(std::min<std::int64_t>(stream.threads(), tasks));
  std::int64_t const width = padded_dim(args.head_dim);
  std::size_t const bytes = forward_tile_bytes(width);
  Scratch const scratch(stream.scratch(), bytes * static_cast<std::size_t>(threads),
                        "attention_forward");
  for_each_task(tasks, threads, [&](std::int64_t index, int thread) {
    Scratch mine = scratch.part(thread, bytes);
    ForwardTiles const t(mine, width);
    std::int64_t const head = index / tiles;
    std::int64_t const first = (tiles - 1 - index % tiles) * kQueries;
    QueryTile const tile{head / args.heads, head % args.heads, first,
                         std::min(kQueries, args.T_ - first)};
    run_on(isa, [&](auto set) { forward_tile<set.value>(args, tile, t); });
  });
}

template <class T>
void attention_backward(AttentionBackward<T> const& args, device::Stream& stream, Isa isa) {
  AttentionForward<T> const& f = args.forward;
  check(f);
  std::int64_t const tasks = f.B * f.kv_heads;
  if (tasks == 0 || f.T_ == 0) return;
  int const threads = static_cast<int>(std::min<std::int64_t>(stream.threads(), tasks));
  std::int64_t const width = padded_dim(f.head_dim);
  std::size_t const bytes = backward_tile_bytes(width, f.T_);
  Scratch const scratch(stream.scratch(), bytes * static_cast<std::size_t>(threads),
                        "attention_backward");
  for_each_task(tasks, threads, [&](std::int64_t index, int thread) {
    Scratch mine = scratch.part(thread, bytes);
    BackwardTiles const t(mine, width, f.T_);
    run_on(isa, [&](auto set) {
      backward_kv_head<set.value>(args, index / f.kv_heads, index % f.kv_heads, t);
    });
  });
}

template void attention_forward(AttentionForward<float> const&, device::Stream&, Isa);
template void attention_forward(AttentionForward<bf16> const&, device::Stream&, Isa);
template void attention_backward(AttentionBackward<float> const&, device::Stream&, Isa);
template void attention_backward(AttentionBackward<bf16> const&, device::Stream&, Isa);

}  // namespace detail

template <class T>
void attention_forward(AttentionForward<T> const& args, device::Stream& stream) {
  detail::attention_forward(args, stream, detail::widest_isa());
}

template <class T>
void attention_backward(AttentionBackward<T> const& args, device::Stream& stream) {
  detail::attention_backward(args, stream, detail::widest_isa());
}

template void attention_forward(AttentionForward<float> const&, device::Stream&);
template void attention_forward(AttentionForward<bf16> const&, device::Stream&);
template void attention_backward(AttentionBackward<float> const&, device::Stream&);
template void attention_backward(AttentionBackward<bf16> const&, device::Stream&);

// A team larger than the tasks has idle threads, which need none.
std::size_t attention_scratch_bytes(std::int64_t B, std::int64_t T_, std::int64_t heads,
                                    std::int64_t head_dim, int threads) {
  std::int64_t const width = detail::padded_dim(head_dim);
  std::int64_t const tiles = div_ceil(T_, detail::kQueries);
  auto const team = [threads](std::int64_t tasks) {
    return static_cast<std::size_t>(std::min<std::int64_t>(threads, tasks));
  };
  return std::max(team(B * heads * tiles) * detail::forward_tile_bytes(width),
                  team(B * heads) * detail::backward_tile_bytes(width, T_));
}

}  // namespace spillway::ops
