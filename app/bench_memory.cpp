// `spillway bench memory`: what memory gives, in the terms of STREAM (McCalpin 1995).
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/bench.hpp"
#include "lib/core/numeric.hpp"
#include "lib/device/for_each.hpp"

namespace spillway::app {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 16;

/// piece(begin, end) over [0, n) on the team.
template <class Piece>
void over(std::int64_t n, device::Stream& stream, Piece const& piece) {
  device::for_each_row(
      div_ceil(n, kPiece),
      [&](std::int64_t row) { piece(row * kPiece, std::min(n, (row + 1) * kPiece)); }, stream);
}

void copy(float const* from, float* to, std::int64_t begin, std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) to[i] = from[i];
}

void triad(float const* b, float const* c, float* a, std::int64_t begin, std::int64_t end) {
#pragma omp simd
  for (std::int64_t i = begin; i < end; ++i) a[i] = b[i] + 3.0f * c[i];
}

float sum(float const* from, std::int64_t begin, std::int64_t end) {
  float total = 0;
#pragma omp simd reduction(+ : total)
  for (std::int64_t i = begin; i < end; ++i) total += from[i];
  return total;
}

}  // namespace

MemorySpeed measure_memory(std::int64_t n, int threads, int rounds) {
  auto const device = device::make_cpu_device();
  auto const stream = device->make_stream(0, threads);
  RandomArray a(*device, n, DType::f32), b(*device, n, DType::f32), c(*device, n, DType::f32);
  double const bytes = static_cast<double>(n) * sizeof(float) * 1e-9;
  MemorySpeed speed;
  std::vector<float> sums(static_cast<std::size_t>(div_ceil(n, kPiece)));
  speed.read = bytes / fastest(rounds, [&] {
                 over(n, *stream, [&](std::int64_t begin, std::int64_t end) {
                   sums[static_cast<std::size_t>(begin / kPiece)] = sum(b.as<float>(), begin, end);
                 });
               });
  speed.copy = 2 * bytes / fastest(rounds, [&] {
                 over(n, *stream, [&](std::int64_t begin, std::int64_t end) {
                   copy(b.as<float>(), a.as<float>(), begin, end);
                 });
               });
  speed.triad = 3 * bytes / fastest(rounds, [&] {
                  over(n, *stream, [&](std::int64_t begin, std::int64_t end) {
                    triad(b.as<float>(), c.as<float>(), a.as<float>(), begin, end);
                  });
                });
  speed.triad_moved = speed.triad * 4 / 3;
  return speed;
}

int bench_memory(std::vector<std::string> const& words) {
  Syntax syntax;
  syntax.usage = "spillway bench memory [flags]";
  syntax.summary = "Reads, copies and adds arrays far larger than the caches, and prints GB/s.";
  syntax.flags = {{"mib", "N", "MiB of each of three arrays [512]"},
                  {"threads", "N", "threads [all that may be used]"},
                  {"json", "", "print one JSON object"}};
  CommandLine const line = parse_command_line(syntax, words);
  if (answer_questions(line, syntax)) return 0;
  std::int64_t const n = whole_flag(line, "mib", {1, 1 << 20, 512}) * (1 << 20) / 4;
  auto const threads =
      static_cast<int>(whole_flag(line, "threads", {1, 4096, usable_processors()}));
  MemorySpeed const speed = measure_memory(n, threads, 5);
  if (line.has("json")) {
    nlohmann::json const all = {{"threads", threads},
                                {"read_gb_per_s", speed.read},
                                {"copy_gb_per_s", speed.copy},
                                {"triad_gb_per_s", speed.triad},
                                {"triad_moved_gb_per_s", speed.triad_moved}};
    fmt::print("{}\n", all.dump(2));
    return 0;
  }
  fmt::print("{} threads, counted plainly\n", threads);
  fmt::print("read   {:.1f} GB/s\ncopy   {:.1f} GB/s\ntriad  {:.1f} GB/s", speed.read, speed.copy,
             speed.triad);
  fmt::print("   ({:.1f} GB/s with the lines read that are only written)\n", speed.triad_moved);
  return 0;
}

}  // namespace spillway::app
