#include "app/speed.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "app/host.hpp"
#include "lib/ops/matmul.hpp"

namespace spillway::app {

Meters Meters::since(Meters const& before) const {
  return {.stall_s = stall_s - before.stall_s,
          .read_bytes = read_bytes - before.read_bytes,
          .written_bytes = written_bytes - before.written_bytes,
          .sent_bytes = sent_bytes - before.sent_bytes,
          .rss_bytes = rss_bytes};
}

Meters meters(train::StateStore const& store, comm::Communicator const& comm) {
  auto const moved = store.meters();
  return {.stall_s = moved.stall_s,
          .read_bytes = moved.read_bytes,
          .written_bytes = moved.written_bytes,
          .sent_bytes = comm.sent_bytes(),
          .rss_bytes = peak_resident_bytes()};
}

Meters exchange(comm::Communicator& comm, Meters const& mine) {
  // Doubles hold byte counts below 2^53 exactly.
  double const values[5] = {
      mine.stall_s, static_cast<double>(mine.read_bytes), static_cast<double>(mine.written_bytes),
      static_cast<double>(mine.sent_bytes), static_cast<double>(mine.rss_bytes)};
  auto const all = comm.all_gather_values(values);
  Meters sum;
  for (std::size_t at = 0; at < all.size(); at += std::size(values)) {
    sum.stall_s = std::max(sum.stall_s, all[at]);
    sum.read_bytes += static_cast<std::uint64_t>(all[at + 1]);
    sum.written_bytes += static_cast<std::uint64_t>(all[at + 2]);
    sum.sent_bytes += static_cast<std::uint64_t>(all[at + 3]);
    sum.rss_bytes = std::max(sum.rss_bytes, static_cast<std::uint64_t>(all[at + 4]));
  }
  return sum;
}

double training_flops_per_token(model::ModelSpec const& spec, std::int64_t T) {
  auto const& c = spec.config;
  double weights = 0;
  for (auto const& unit : spec.units)
    for (auto const& tensor : unit.tensors)
      if (tensor.shape.size() >= 2 && unit.name != "embedding")
        weights += tensor.use * static_cast<double>(shard::element_count(tensor.shape));
  if (c.tied_head)
    weights += static_cast<double>(c.vocab_size) * static_cast<double>(c.hidden_size);
  double positions = 0;  // twice what a query sees on average, summed over layers
  for (std::int64_t layer = 0; layer < c.layers; ++layer) {
    double const length = static_cast<double>(T);
    double const window =
        c.window(layer) > 0 ? std::min(static_cast<double>(c.window(layer)), length) : length;
    positions += window * (2 - window / length);
  }
  return 6 * weights + 6 * static_cast<double>(c.heads * c.head_dim) * positions;
}

double measure_peak_flops(DType type, device::Stream& stream) {
  constexpr std::int64_t n = 512;
  // Values away from zero: products of zeros run faster than real ones.
  std::vector<float> a(n * n, 1.01f), b(n * n, 0.99f), c(n * n);
  std::vector<bf16> half(n * n, bf16(1.01f));
  void const* left = type == DType::f32 ? static_cast<void const*>(a.data()) : half.data();
  void const* right = type == DType::f32 ? static_cast<void const*>(b.data()) : half.data();
  ops::MatmulArgs const args{
      .M = n, .N = n, .K = n, .a = {left, type}, .b = {right, type}, .c = c.data()};
  if (ops::matmul_scratch_bytes(args) > stream.scratch().size()) return 0;
  double best = 0;
  for (int run = 0; run < 4; ++run) {
    auto const start = std::chrono::steady_clock::now();
    ops::matmul(args, stream);
    double const seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, 2.0 * n * n * n / seconds);
  }
  return best;
}

}  // namespace spillway::app
