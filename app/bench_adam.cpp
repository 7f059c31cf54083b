// `spillway bench adam`: the optimizer's update, counting the bytes that it really moves.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "app/bench.hpp"
#include "lib/ops/adamw.hpp"

namespace spillway::app {
namespace {

// hi, lo, m, v and the gradient are read, all but the gradient written: 28 bytes either way.
constexpr double kBytes = 28;
// That lie in memory: hi and lo or the whole weight, m, v and the gradient.
constexpr std::int64_t kStateBytes = 16;
constexpr int kPasses = 2, kRounds = 4;

/// GB/s.
struct Speeds {
  MemorySpeed memory;
  double narrow = 0, wide = 0;
};

ops::AdamwStep usual_step() {
  ops::AdamwStep step;
  step.lr = 1e-4f;
  step.weight_decay = 0.1f;
  step.bias1 = 0.1f;
  step.bias2 = 0.05f;
  return step;
}

double measure(DType compute, std::int64_t n, int threads) {
  auto const device = device::make_cpu_device();
  auto const stream = device->make_stream(0, threads);
  bool const split = compute == DType::bf16;
  RandomArray high(*device, n, compute), low(*device, split ? n : 0, DType::bf16),
      m(*device, n, DType::f32), v(*device, n, DType::f32), gradient(*device, n, DType::f32);
  for (std::int64_t i = 0; i < n; ++i) v.as<float>()[i] *= v.as<float>()[i];
  ops::AdamwState state;
  state.n = n;
  if (split) {
    state.hi = high.as<bf16>();
    state.lo = low.as<std::int16_t>();
  } else {
    state.hi32 = high.as<float>();
  }
  state.m = m.as<float>();
  state.v = v.as<float>();
  state.grad32 = gradient.as<float>();
  double const seconds = fastest(kRounds, [&] { ops::adamw(state, usual_step(), *stream); });
  return kBytes * static_cast<double>(n) * 1e-9 / seconds;
}

/// By turns, so that what disturbs the machine disturbs all. The triad has as many bytes.
Speeds measure_all(std::int64_t n, int threads) {
  Speeds best;
  for (int pass = 0; pass < kPasses; ++pass) {
    MemorySpeed const memory = measure_memory(n / 3 * 4, threads, kRounds);
    best.memory.triad = std::max(best.memory.triad, memory.triad);
    best.memory.triad_past = std::max(best.memory.triad_past, memory.triad_past);
    best.narrow = std::max(best.narrow, measure(DType::bf16, n, threads));
    best.wide = std::max(best.wide, measure(DType::f32, n, threads));
  }
  return best;
}

}  // namespace

int bench_adam(std::vector<std::string> const& words) {
  Syntax syntax;
  syntax.usage = "spillway bench adam [flags]";
  syntax.summary = "Updates parameters by AdamW, and prints GB/s beside those of a triad.";
  syntax.flags = {{"parameters", "N", "millions of parameters [more than the last cache holds]"},
                  {"threads", "N", "threads [all that may be used]"},
                  {"json", "", "print one JSON object"}};
  CommandLine const line = parse_command_line(syntax, words);
  if (answer_questions(line, syntax)) return 0;
  std::int64_t const millions = bytes_past_caches() / kStateBytes / 1'000'000;
  std::int64_t const n = whole_flag(line, "parameters", {1, 1 << 20, millions}) * 1'000'000;
  int const threads = threads_flag(line);
  Speeds const speeds = measure_all(n, threads);
  double const limit = speeds.memory.limit();
  if (line.has("json")) {
    nlohmann::json const all = {{"threads", threads},
                                {"parameters", n},
                                {"bf16_gb_per_s", speeds.narrow},
                                {"fp32_gb_per_s", speeds.wide},
                                {"triad_gb_per_s", speeds.memory.triad},
                                {"triad_moved_gb_per_s", speeds.memory.triad_moved()},
                                {"triad_past_caches_gb_per_s", speeds.memory.triad_past},
                                {"bf16_of_triad", speeds.narrow / limit},
                                {"fp32_of_triad", speeds.wide / limit}};
    fmt::print("{}\n", all.dump(2));
    return 0;
  }
  fmt::print("{} threads, {} M parameters, 28 bytes each\n", threads, n / 1'000'000);
  fmt::print(
      "triad  {:.1f} GB/s moved: {:.1f} through the caches with the lines read that are\n"
      "       written, {:.1f} past them\n",
      limit, speeds.memory.triad_moved(), speeds.memory.triad_past);
  fmt::print("bf16   {:.1f} GB/s, {:.0f} % of the triad\n", speeds.narrow,
             100 * speeds.narrow / limit);
  fmt::print("fp32   {:.1f} GB/s, {:.0f} % of the triad\n", speeds.wide, 100 * speeds.wide / limit);
  return 0;
}

}  // namespace spillway::app
