// Blocked attention on the CPU. Forward: a task is a tile of queries of one head. Backward: a task
// is one kv head of one sequence, so that nothing is added by two threads.
#include "lib/ops/attention.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "lib/core/dtype.hpp"
#include "lib/core/error.hpp"
#include "lib/ops/detail/attention.hpp"
#include "lib/ops/detail/attention_pairs.hpp"
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

// Rows of a tile of queries in q, out and what is laid out like them; rows of keys in k and v.
template <class T>
HeadRows<T> query_rows(T* data, std::int64_t stride, std::int64_t T_, std::int64_t head_dim,
                       QueryTile const& tile) {
  return {data + (tile.b * T_ + tile.first) * stride + tile.head * head_dim, stride, tile.queries,
          head_dim};
}
template <class T>
HeadRows<T> key_rows(T* data, std::int64_t stride, std::int64_t first_row, std::int64_t keys,
                     std::int64_t kv_head, std::int64_t head_dim) {
  return {data + first_row * stride + kv_head * head_dim, stride, keys, head_dim};
}

// scores[keys, queries] = rows[keys, d] transposed[d, queries].
void score_keys(float const* rows, float const* transposed, std::int64_t keys,
                std::int64_t head_dim, float* scores, Isa isa) {
  multiply_tiles({.M = round_up<std::int64_t>(keys, kTileRows),
                  .N = kQueries,
                  .K = head_dim,
                  .a = rows,
                  .a_row = padded_dim(head_dim),
                  .a_column = 1,
                  .b = transposed,
                  .b_row = kQueries,
                  .c = scores,
                  .c_row = kQueries,
                  .accumulate = false},
                 isa);
}

// to[queries, d] += scores[keys, queries] transposed times rows[keys, d].
void add_by_query(float const* scores, float const* rows, std::int64_t keys, std::int64_t width,
                  float* to, Isa isa) {
  multiply_tiles({.M = kQueries,
                  .N = width,
                  .K = keys,
                  .a = scores,
                  .a_row = 1,
                  .a_column = kQueries,
                  .b = rows,
                  .b_row = width,
                  .c = to,
                  .c_row = width,
                  .accumulate = true},
                 isa);
}

// to[keys, d] += scores[keys, queries] rows[queries, d].
void add_by_key(float const* scores, float const* rows, std::int64_t keys, std::int64_t width,
                float* to, Isa isa) {
  multiply_tiles({.M = round_up<std::int64_t>(keys, kTileRows),
                  .N = width,
                  .K = kQueries,
                  .a = scores,
                  .a_row = kQueries,
                  .a_column = 1,
                  .b = rows,
                  .b_row = width,
                  .c = to,
                  .c_row = width,
                  .accumulate = true},
                 isa);
}

// k and v of keys [key, key + keys), padded with 0 to whole register blocks. The scores of padding
// are then 0 and stay so, and it adds nothing to the rows of dk and dv that follow.
template <class T>
void load_keys(AttentionForward<T> const& args, QueryTile const& tile, std::int64_t key,
               std::int64_t keys, float* k, float* v, Isa isa) {
  std::int64_t const kv_head = tile.head / (args.heads / args.kv_heads);
  std::int64_t const row = tile.b * args.T_ + key;
  std::int64_t const padded = round_up<std::int64_t>(keys, kTileRows);
  load_rows(key_rows(args.k, args.k_stride, row, keys, kv_head, args.head_dim), padded, 1.0f, k,
            isa);
  load_rows(key_rows(args.v, args.v_stride, row, keys, kv_head, args.head_dim), padded, 1.0f, v,
            isa);
}

template <class T>
void forward_tile(AttentionForward<T> const& args, QueryTile const& tile, ForwardTiles const& t,
                  Isa isa) {
  std::int64_t const width = padded_dim(args.head_dim);
  load_rows(query_rows(args.q, args.q_stride, args.T_, args.head_dim, tile), kQueries, args.scale,
            t.q, isa);
  transpose_queries(t.q, width, t.q_t);
  std::fill_n(t.out, kQueries * width, 0.0f);
  std::fill_n(t.maximum, kQueries, -1e30f);
  std::fill_n(t.sum, kQueries, 0.0f);
  KeyRange const range = visible_keys(tile.first, tile.first + tile.queries - 1, args.window);
  for (std::int64_t key = range.begin; key < range.end; key += kKeys) {
    std::int64_t const keys = std::min(kKeys, range.end - key);
    Scores const scores{t.scores, keys, key, tile.first};
    load_keys(args, tile, key, keys, t.k, t.v, isa);
    score_keys(t.k, t.q_t, keys, args.head_dim, t.scores, isa);
    mask_scores(scores, args.window, isa);
    softmax_step(scores, {t.maximum, t.sum, t.shrink}, isa);
    shrink_rows(t.out, width, t.shrink, isa);
    add_by_query(t.scores, t.v, keys, width, t.out, isa);
  }
  for (std::int64_t q = 0; q < kQueries; ++q) t.shrink[q] = 1.0f / t.sum[q];
  shrink_rows(t.out, width, t.shrink, isa);
  store_rows(t.out, 1.0f, query_rows(args.out, args.out_stride, args.T_, args.head_dim, tile), isa);
  float* const logsumexp =
      args.logsumexp + (tile.b * args.heads + tile.head) * args.T_ + tile.first;
  for (std::int64_t q = 0; q < tile.queries; ++q)
    logsumexp[q] = static_cast<float>(static_cast<double>(t.maximum[q]) +
                                      std::log(static_cast<double>(t.sum[q])));
}

// What a tile of queries needs in the backward pass: q, dout and their transposes, the softmax's
// logarithm, and dot = sum over d of dout * out, the part of dp that the softmax takes away.
template <class T>
void load_queries(AttentionBackward<T> const& args, QueryTile const& tile, BackwardTiles const& t,
                  Isa isa) {
  AttentionForward<T> const& f = args.forward;
  std::int64_t const width = padded_dim(f.head_dim);
  load_rows(query_rows(f.q, f.q_stride, f.T_, f.head_dim, tile), kQueries, f.scale, t.q, isa);
  load_rows(query_rows(args.dout, f.out_stride, f.T_, f.head_dim, tile), kQueries, 1.0f, t.dout,
            isa);
  transpose_queries(t.q, width, t.q_t);
  transpose_queries(t.dout, width, t.dout_t);
  std::fill_n(t.logsumexp, kQueries, 0.0f);
  std::fill_n(t.dot, kQueries, 0.0f);
  std::copy_n(f.logsumexp + (tile.b * f.heads + tile.head) * f.T_ + tile.first, tile.queries,
              t.logsumexp);
  HeadRows<T> const out = query_rows(f.out, f.out_stride, f.T_, f.head_dim, tile);
  run_on(isa, [&](auto) {
    for (std::int64_t q = 0; q < tile.queries; ++q) {
      T const* const out_row = out.data + q * out.stride;
      float const* const dout_row = t.dout + q * width;
      t.dot[q] = static_cast<float>(lane_sum(f.head_dim, [out_row, dout_row](std::int64_t d) {
        return static_cast<float>(out_row[d]) * dout_row[d];
      }));
    }
  });
}

template <class T>
void backward_queries(AttentionBackward<T> const& args, QueryTile const& tile,
                      BackwardTiles const& t, Isa isa) {
  AttentionForward<T> const& f = args.forward;
  std::int64_t const width = padded_dim(f.head_dim);
  load_queries(args, tile, t, isa);
  std::fill_n(t.dq, kQueries * width, 0.0f);
  KeyRange const range = visible_keys(tile.first, tile.first + tile.queries - 1, f.window);
  for (std::int64_t key = range.begin; key < range.end; key += kKeys) {
    std::int64_t const keys = std::min(kKeys, range.end - key);
    std::int64_t const padded = round_up<std::int64_t>(keys, kTileRows);
    Scores const scores{t.p, keys, key, tile.first};
    load_keys(f, tile, key, keys, t.k, t.v, isa);
    score_keys(t.k, t.q_t, keys, f.head_dim, t.p, isa);
    mask_scores(scores, f.window, isa);
    probabilities(scores, t.logsumexp, isa);
    score_keys(t.v, t.dout_t, keys, f.head_dim, t.dp, isa);
    add_by_key(t.p, t.dout, keys, width, t.dv + key * width, isa);
    softmax_backward(t.p, padded, t.dot, t.dp, isa);
    add_by_key(t.dp, t.q, keys, width, t.dk + key * width, isa);
    add_by_query(t.dp, t.k, keys, width, t.dq, isa);
  }
  // q was loaded times scale, so dk has it already; dq gets it here.
  store_rows(t.dq, f.scale, query_rows(args.dq, f.q_stride, f.T_, f.head_dim, tile), isa);
}

template <class T>
void backward_kv_head(AttentionBackward<T> const& args, std::int64_t b, std::int64_t kv_head,
                      BackwardTiles const& t, Isa isa) {
  AttentionForward<T> const& f = args.forward;
  std::int64_t const width = padded_dim(f.head_dim);
  std::int64_t const group = f.heads / f.kv_heads;
  std::fill_n(t.dk, (f.T_ + kTileRows) * width, 0.0f);
  std::fill_n(t.dv, (f.T_ + kTileRows) * width, 0.0f);
  for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
    for (std::int64_t first = 0; first < f.T_; first += kQueries)
      backward_queries(args, {b, head, first, std::min(kQueries, f.T_ - first)}, t, isa);
  std::int64_t const row = b * f.T_;
  store_rows(t.dk, 1.0f, key_rows(args.dk, f.k_stride, row, f.T_, kv_head, f.head_dim), isa);
  store_rows(t.dv, 1.0f, key_rows(args.dv, f.v_stride, row, f.T_, kv_head, f.head_dim), isa);
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
    forward_tile(args, tile, t, isa);
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
    backward_kv_head(args, index / f.kv_heads, index % f.kv_heads, t, isa);
  });
}

template void attention_forward(AttentionForward<float> const&, device::Stream&, Isa);
template void attention_forward(AttentionForward<bf16> const&, device::Stream&, Isa);
template void attention_backward(AttentionBackward<float> const&, device::Stream&, Isa);
template void attention_backward(AttentionBackward<bf16> const&, device::Stream&, Isa);

}  // namespace detail

template <class T>
void attention_forward(AttentionForward<T> const& args, device::Stream& stream) {
  if constexpr (std::is_same_v<T, bf16>) {
    detail::TileUnit const unit = detail::best_tile_unit();
    detail::check(args);
    if (unit != detail::TileUnit::none) return detail::attention_pairs_forward(args, stream, unit);
  }
  detail::attention_forward(args, stream, detail::widest_isa());
}

template <class T>
void attention_backward(AttentionBackward<T> const& args, device::Stream& stream) {
  if constexpr (std::is_same_v<T, bf16>) {
    detail::TileUnit const unit = detail::best_tile_unit();
    detail::check(args.forward);
    if (unit != detail::TileUnit::none) return detail::attention_pairs_backward(args, stream, unit);
  }
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
  return std::max({team(B * heads * tiles) * detail::forward_tile_bytes(width),
                   team(B * heads) * detail::backward_tile_bytes(width, T_),
                   team(B * heads * tiles) * detail::attention_pairs_forward_bytes(T_, head_dim),
                   team(B * heads) * detail::attention_pairs_backward_bytes(T_, head_dim)});
}

}  // namespace spillway::ops
