// Speed of each operation on GPT-2's shapes: GFLOP/s where arithmetic bounds it, GB/s where memory
// does.
// `--benchmark_filter=attention` picks; the argument "threads" is the stream's.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "lib/core/dtype.hpp"
#include "lib/core/philox.hpp"
#include "lib/device/device.hpp"
#include "lib/ops/adamw.hpp"
#include "lib/ops/attention.hpp"
#include "lib/ops/cross_entropy.hpp"
#include "lib/ops/detail/gemm_tile.hpp"
#include "lib/ops/detail/isa.hpp"
#include "lib/ops/embedding.hpp"
#include "lib/ops/matmul.hpp"
#include "lib/ops/norm.hpp"
#include "lib/ops/pointwise.hpp"
#include "lib/ops/rope.hpp"

namespace spillway::ops {
namespace {

using benchmark::Counter;
using benchmark::State;

constexpr std::int64_t kRows = 1024;

std::unique_ptr<device::Stream> make_stream(State const& state) {
  return device::make_cpu_device()->make_stream(std::size_t{64} << 20,
                                                static_cast<int>(state.range(0)));
}

// Uniform in (-1, 1): never zeros, which some processors multiply faster.
template <class T>
std::vector<T> values(std::int64_t n) {
  std::vector<T> result(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i] = T(static_cast<float>(2 * uniform_open(philox(7, i, 0)[0]) - 1));
  return result;
}

void report_flops(State& state, double flops) {
  state.counters["FLOP/s"] = Counter(flops, Counter::kIsIterationInvariantRate);
}
void report_bytes(State& state, double bytes) {
  state.counters["B/s"] = Counter(bytes, Counter::kIsIterationInvariantRate);
}

// The processor's own limit, nearly: the register block of attention on operands that stay in the
// first cache.
void fma_peak(State& state) {
  constexpr std::int64_t kM = detail::kTileRows, kN = 2 * detail::kTileColumns, kK = 64;
  auto const a = values<float>(kM * kK), b = values<float>(kK * kN);
  std::vector<float> c(static_cast<std::size_t>(kM * kN));
  detail::TileProduct const product{.M = kM,
                                    .N = kN,
                                    .K = kK,
                                    .a = a.data(),
                                    .a_row = kK,
                                    .a_column = 1,
                                    .b = b.data(),
                                    .b_row = kN,
                                    .c = c.data(),
                                    .c_row = kN,
                                    .accumulate = false};
  for (auto _ : state) {
    for (int i = 0; i < 100; ++i) detail::multiply_tiles(product, detail::widest_isa());
    benchmark::ClobberMemory();
  }
  report_flops(state, 200.0 * kM * kN * kK);
}
BENCHMARK(fma_peak);

// Arguments: threads, N, K, and which product: 0 forward, 1 gradient of x, 2 gradient of the
// weight.
template <class T>
void matmul_of_layer(State& state) {
  std::int64_t const N = state.range(1), K = state.range(2), M = kRows;
  auto const x = values<T>(M * K), w = values<T>(N * K), dy = values<T>(M * N);
  std::vector<T> y(static_cast<std::size_t>(M * N)), dx(static_cast<std::size_t>(M * K));
  std::vector<float> dw(static_cast<std::size_t>(N * K));
  DType const type = dtype_of<T>;
  MatmulArgs args;
  if (state.range(3) == 0)
    args = {.M = M,
            .N = N,
            .K = K,
            .a = {x.data(), type},
            .b = {w.data(), type, true},
            .c = y.data(),
            .c_type = type,
            .bias = w.data()};
  else if (state.range(3) == 1)
    args = {.M = M,
            .N = K,
            .K = N,
            .a = {dy.data(), type},
            .b = {w.data(), type},
            .c = dx.data(),
            .c_type = type};
  else
    args = {.M = N,
            .N = K,
            .K = M,
            .a = {dy.data(), type, true},
            .b = {x.data(), type},
            .c = dw.data(),
            .accumulate = true};
  auto const stream = make_stream(state);
  for (auto _ : state) matmul(args, *stream);
  report_flops(state, 2.0 * static_cast<double>(M * N * K));
}
void layer_shapes(benchmark::internal::Benchmark* b) {
  for (int const product : {0, 1, 2})
    for (auto const& [N, K] : {std::pair{2304, 768}, {768, 768}, {3072, 768}, {768, 3072}})
      for (int const threads : {1, 2}) b->Args({threads, N, K, product});
  b->ArgNames({"threads", "N", "K", "product"})->UseRealTime();
}
BENCHMARK(matmul_of_layer<float>)->Apply(layer_shapes);
BENCHMARK(matmul_of_layer<bf16>)->Apply(layer_shapes);

// Arguments: threads, T, head_dim. FLOPs are counted for the visible half of the scores only.
template <class T>
struct AttentionCase {
  static constexpr std::int64_t kHeads = 12;
  std::int64_t T_, head_dim, width;
  std::vector<T> qkv, out, dqkv, dout;
  std::vector<float> logsumexp;
  AttentionBackward<T> args;

  explicit AttentionCase(State const& state)
      : T_(state.range(1)),
        head_dim(state.range(2)),
        width(kHeads * head_dim),
        qkv(values<T>(T_ * 3 * width)),
        out(values<T>(T_ * width)),
        dqkv(qkv.size()),
        dout(values<T>(T_ * width)),
        logsumexp(static_cast<std::size_t>(kHeads * T_)) {
    args.forward = {.B = 1,
                    .T_ = T_,
                    .heads = kHeads,
                    .kv_heads = kHeads,
                    .head_dim = head_dim,
                    .scale = 0.125f,
                    .q = qkv.data(),
                    .k = qkv.data() + width,
                    .v = qkv.data() + 2 * width,
                    .q_stride = 3 * width,
                    .k_stride = 3 * width,
                    .v_stride = 3 * width,
                    .out_stride = width,
                    .out = out.data(),
                    .logsumexp = logsumexp.data()};
    args.dout = dout.data();
    args.dq = dqkv.data();
    args.dk = dqkv.data() + width;
    args.dv = dqkv.data() + 2 * width;
  }
  double product_flops() const {
    return 2.0 * static_cast<double>(kHeads * head_dim) * static_cast<double>(T_ * (T_ + 1) / 2);
  }
};
template <class T>
void attention_forward_pass(State& state) {
  AttentionCase<T> c(state);
  auto const stream = make_stream(state);
  for (auto _ : state) attention_forward(c.args.forward, *stream);
  report_flops(state, 2 * c.product_flops());
}
template <class T>
void attention_backward_pass(State& state) {
  AttentionCase<T> c(state);
  auto const stream = make_stream(state);
  attention_forward(c.args.forward, *stream);
  for (auto _ : state) attention_backward(c.args, *stream);
  report_flops(state, 5 * c.product_flops());
}
void attention_shapes(benchmark::internal::Benchmark* b) {
  for (int const T : {1024, 4096})
    for (int const threads : {1, 2}) b->Args({threads, T, 64});
  b->Args({1, 1024, 128})->Args({1, 1024, 80});
  b->ArgNames({"threads", "T", "head_dim"})->UseRealTime();
}
BENCHMARK(attention_forward_pass<float>)->Apply(attention_shapes);
BENCHMARK(attention_forward_pass<bf16>)->Apply(attention_shapes);
BENCHMARK(attention_backward_pass<float>)->Apply(attention_shapes);
BENCHMARK(attention_backward_pass<bf16>)->Apply(attention_shapes);

// The bytes of a pass are those of its operands, each once.
template <class T>
void norm_forward_pass(State& state) {
  std::int64_t const C = 768;
  auto const x = values<T>(kRows * C), w = values<T>(C);
  std::vector<T> y(x.size());
  std::vector<float> mean(kRows), rstd(kRows);
  auto const stream = make_stream(state);
  NormForward<T> const args{.rows = kRows,
                            .C = C,
                            .x = x.data(),
                            .weight = w.data(),
                            .bias = w.data(),
                            .y = y.data(),
                            .mean = mean.data(),
                            .rstd = rstd.data()};
  for (auto _ : state) layer_norm_forward(args, *stream);
  report_bytes(state, static_cast<double>(2 * kRows * C) * sizeof(T));
}
template <class T>
void norm_backward_pass(State& state) {
  std::int64_t const C = 768;
  auto const x = values<T>(kRows * C), w = values<T>(C), dy = values<T>(kRows * C);
  std::vector<T> dx(x.size());
  std::vector<float> mean(kRows), rstd(kRows, 1.0f), dweight(C), dbias(C);
  auto const stream = make_stream(state);
  NormBackward<T> const args{.rows = kRows,
                             .C = C,
                             .x = x.data(),
                             .weight = w.data(),
                             .mean = mean.data(),
                             .rstd = rstd.data(),
                             .dy = dy.data(),
                             .dx = dx.data(),
                             .dweight = dweight.data(),
                             .dbias = dbias.data()};
  for (auto _ : state) layer_norm_backward(args, *stream);
  report_bytes(state, static_cast<double>(3 * kRows * C) * sizeof(T));
}
template <class T>
void gelu_forward_pass(State& state) {
  std::int64_t const n = kRows * 3072;
  auto const x = values<T>(n);
  std::vector<T> y(x.size());
  auto const stream = make_stream(state);
  for (auto _ : state) gelu_forward(n, x.data(), y.data(), *stream);
  report_bytes(state, static_cast<double>(2 * n) * sizeof(T));
}
template <class T>
void gelu_backward_pass(State& state) {
  std::int64_t const n = kRows * 3072;
  auto const x = values<T>(n), dy = values<T>(n);
  std::vector<T> dx(x.size());
  auto const stream = make_stream(state);
  for (auto _ : state) gelu_backward(n, x.data(), dy.data(), dx.data(), *stream);
  report_bytes(state, static_cast<double>(3 * n) * sizeof(T));
}
template <class T>
void swiglu_backward_pass(State& state) {
  std::int64_t const n = kRows * 3072;
  auto const gate = values<T>(n), up = values<T>(n), dy = values<T>(n);
  std::vector<T> dgate(gate.size()), dup(gate.size());
  auto const stream = make_stream(state);
  for (auto _ : state)
    swiglu_backward(n, gate.data(), up.data(), dy.data(), dgate.data(), dup.data(), *stream);
  report_bytes(state, static_cast<double>(5 * n) * sizeof(T));
}
template <class T>
void add_pass(State& state) {
  std::int64_t const n = kRows * 3072;
  auto const a = values<T>(n), b = values<T>(n);
  std::vector<T> y(a.size());
  auto const stream = make_stream(state);
  for (auto _ : state) add(n, a.data(), b.data(), y.data(), *stream);
  report_bytes(state, static_cast<double>(3 * n) * sizeof(T));
}
template <class T>
void bias_backward_pass(State& state) {
  std::int64_t const C = 3072;
  auto const dy = values<T>(kRows * C);
  std::vector<float> dbias(C);
  auto const stream = make_stream(state);
  for (auto _ : state) bias_backward(kRows, C, dy.data(), dbias.data(), *stream);
  report_bytes(state, static_cast<double>(kRows * C) * sizeof(T));
}
template <class T>
void rope_pass(State& state) {
  std::int64_t const heads = 12, head_dim = 64;
  auto x = values<T>(kRows * heads * head_dim);
  auto const cosine = values<float>(kRows * head_dim / 2), sine = cosine;
  auto const stream = make_stream(state);
  Rope<T> const args{.B = 1,
                     .T_ = kRows,
                     .heads = heads,
                     .head_dim = head_dim,
                     .x = x.data(),
                     .stride = heads * head_dim,
                     .cosine = cosine.data(),
                     .sine = sine.data()};
  for (auto _ : state) rope(args, Turn::forward, *stream);
  report_bytes(state, static_cast<double>(2 * kRows * heads * head_dim) * sizeof(T));
}
template <class T>
void embedding_backward_pass(State& state) {
  std::int64_t const C = 768, V = 50257;
  auto const dx = values<T>(kRows * C);
  std::vector<std::int32_t> tokens;
  for (std::int64_t r = 0; r < kRows; ++r)
    tokens.push_back(static_cast<std::int32_t>(philox(3, static_cast<std::uint64_t>(r), 0)[0] % V));
  std::vector<float> dtoken(static_cast<std::size_t>(V * C)),
      dposition(static_cast<std::size_t>(kRows * C));
  auto const stream = make_stream(state);
  EmbeddingBackward<T> const args{.rows = kRows,
                                  .T_ = kRows,
                                  .C = C,
                                  .tokens = tokens.data(),
                                  .dx = dx.data(),
                                  .dtoken_table = dtoken.data(),
                                  .dposition_table = dposition.data()};
  for (auto _ : state) embedding_backward(args, *stream);
  report_bytes(state, static_cast<double>(kRows * C) * (sizeof(T) + 16));
}
template <class T>
void cross_entropy_pass(State& state) {
  std::int64_t const V = 50257, rows = 128;
  auto const logits = values<float>(rows * V);
  std::vector<std::int32_t> const targets(static_cast<std::size_t>(rows), 17);
  std::vector<float> maximum(static_cast<std::size_t>(rows)), target(maximum.size());
  std::vector<double> others(maximum.size());
  std::vector<T> dlogits(logits.size());
  auto const stream = make_stream(state);
  SoftmaxState const softmax{maximum.data(), others.data(), target.data()};
  LogitsPart const part{
      .rows = rows, .columns = V, .logits = logits.data(), .stride = V, .targets = targets.data()};
  for (auto _ : state) {
    cross_entropy_start(rows, softmax, *stream);
    cross_entropy_observe(part, softmax, *stream);
    cross_entropy_gradient(part, softmax, 1.0f, dlogits.data(), *stream);
  }
  report_bytes(state, static_cast<double>(rows * V) * (8 + sizeof(T)));
}

void threads(benchmark::internal::Benchmark* b) {
  b->Arg(1)->Arg(2)->ArgName("threads")->UseRealTime();
}
BENCHMARK(norm_forward_pass<float>)->Apply(threads);
BENCHMARK(norm_forward_pass<bf16>)->Apply(threads);
BENCHMARK(norm_backward_pass<float>)->Apply(threads);
BENCHMARK(norm_backward_pass<bf16>)->Apply(threads);
BENCHMARK(gelu_forward_pass<float>)->Apply(threads);
BENCHMARK(gelu_forward_pass<bf16>)->Apply(threads);
BENCHMARK(gelu_backward_pass<float>)->Apply(threads);
BENCHMARK(gelu_backward_pass<bf16>)->Apply(threads);
BENCHMARK(swiglu_backward_pass<float>)->Apply(threads);
BENCHMARK(swiglu_backward_pass<bf16>)->Apply(threads);
BENCHMARK(add_pass<float>)->Apply(threads);
BENCHMARK(add_pass<bf16>)->Apply(threads);
BENCHMARK(bias_backward_pass<float>)->Apply(threads);
BENCHMARK(bias_backward_pass<bf16>)->Apply(threads);
BENCHMARK(rope_pass<float>)->Apply(threads);
BENCHMARK(rope_pass<bf16>)->Apply(threads);
BENCHMARK(embedding_backward_pass<float>)->Apply(threads);
BENCHMARK(embedding_backward_pass<bf16>)->Apply(threads);
BENCHMARK(cross_entropy_pass<float>)->Apply(threads);
BENCHMARK(cross_entropy_pass<bf16>)->Apply(threads);

// 16 million elements, as many bytes as the state kinds that a step reads and writes.
void adamw_whole(State& state) {
  std::int64_t const n = 16 << 20;
  auto weight = values<float>(n), m = values<float>(n);
  auto const gradient = values<float>(n);
  std::vector<float> v(m.size(), 1e-3f);
  auto const stream = make_stream(state);
  for (auto _ : state)
    adamw({.n = n, .hi32 = weight.data(), .m = m.data(), .v = v.data(), .grad32 = gradient.data()},
          {.lr = 1e-6f}, *stream);
  report_bytes(state, 28.0 * static_cast<double>(n));
}
void adamw_split(State& state) {
  std::int64_t const n = 16 << 20;
  auto hi = values<bf16>(n);
  std::vector<std::int16_t> lo(hi.size());
  auto m = values<float>(n);
  auto const gradient = values<bf16>(n);
  std::vector<float> v(m.size(), 1e-3f);
  auto const stream = make_stream(state);
  for (auto _ : state)
    adamw({.n = n,
           .hi = hi.data(),
           .lo = lo.data(),
           .m = m.data(),
           .v = v.data(),
           .grad16 = gradient.data()},
          {.lr = 1e-6f}, *stream);
  report_bytes(state, 26.0 * static_cast<double>(n));
}
void sum_of_squares_pass(State& state) {
  std::int64_t const n = 16 << 20;
  auto const x = values<float>(n);
  auto const stream = make_stream(state);
  for (auto _ : state) benchmark::DoNotOptimize(sum_of_squares(n, x.data(), *stream));
  report_bytes(state, 4.0 * static_cast<double>(n));
}
BENCHMARK(adamw_whole)->Apply(threads);
BENCHMARK(adamw_split)->Apply(threads);
BENCHMARK(sum_of_squares_pass)->Apply(threads);

}  // namespace
}  // namespace spillway::ops
