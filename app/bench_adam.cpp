// `spillway bench adam`: the optimizer's update, counting the bytes that it really moves.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "app/bench.hpp"
#include "lib/ops/adamw.hpp"

namespace spillway::app {
namespace {

// hi, lo, m, v and the gradient are read, all but the gradient written: 28 bytes either way.
constexpr double kBytes = 28;

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
  RandomArray high(*device, n, compute), low(*device, n, DType::bf16), m(*device, n, DType::f32),
      v(*device, n, DType::f32), gradient(*device, n, DType::f32);
  for (std::int64_t i = 0; i < n; ++i) v.as<float>()[i] *= v.as<float>()[i];
  ops::AdamwState state;
  state.n = n;
  if (compute == DType::f32) {
    state.hi32 = high.as<float>();
  } else {
    state.hi = high.as<bf16>();
    state.lo = low.as<std::int16_t>();
  }
  state.m = m.as<float>();
  state.v = v.as<float>();
  state.grad32 = gradient.as<float>();
  double const seconds = fastest(5, [&] { ops::adamw(state, usual_step(), *stream); });
  return kBytes * static_cast<double>(n) * 1e-9 / seconds;
}

}  // namespace

int bench_adam(std::vector<std::string> const& words) {
  Syntax syntax;
  syntax.usage = "spillway bench adam [flags]";
  syntax.summary = "Updates parameters by AdamW, and prints GB/s beside those of a triad.";
  syntax.flags = {{"parameters", "N", "millions of parameters [64]"},
                  {"threads", "N", "threads [all that may be used]"},
                  {"json", "", "print one JSON object"}};
  CommandLine const line = parse_command_line(syntax, words);
  if (answer_questions(line, syntax)) return 0;
  std::int64_t const n = whole_flag(line, "parameters", {1, 1 << 20, 64}) * 1'000'000;
  auto const threads =
      static_cast<int>(whole_flag(line, "threads", {1, 4096, usable_processors()}));
  MemorySpeed const memory = measure_memory(n, threads, 5);
  double const narrow = measure(DType::bf16, n, threads), wide = measure(DType::f32, n, threads);
  if (line.has("json")) {
    nlohmann::json const all = {{"threads", threads},
                                {"bf16_gb_per_s", narrow},
                                {"fp32_gb_per_s", wide},
                                {"triad_gb_per_s", memory.triad},
                                {"triad_moved_gb_per_s", memory.triad_moved}};
    fmt::print("{}\n", all.dump(2));
    return 0;
  }
  fmt::print("{} threads, {} M parameters, 28 bytes each\n", threads, n / 1'000'000);
  fmt::print("triad  {:.1f} GB/s moved ({:.1f} counted plainly)\n", memory.triad_moved,
             memory.triad);
  fmt::print("bf16   {:.1f} GB/s, {:.0f} % of the triad\n", narrow,
             100 * narrow / memory.triad_moved);
  fmt::print("fp32   {:.1f} GB/s, {:.0f} % of the triad\n", wide, 100 * wide / memory.triad_moved);
  return 0;
}

}  // namespace spillway::app
