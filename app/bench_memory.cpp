// `spillway bench memory`: what memory gives, in the terms of STREAM (McCalpin 1995).
#include <fmt/core.h>
#include <immintrin.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/bench.hpp"
#include "app/host.hpp"
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

void triad_past_caches(float const* b, float const* c, float* a, std::int64_t begin,
                       std::int64_t end) {
  __m128 const three = _mm_set1_ps(3.0f);
  for (std::int64_t i = begin; i < end; i += 4)
    _mm_stream_ps(a + i, _mm_add_ps(_mm_load_ps(b + i), _mm_mul_ps(three, _mm_load_ps(c + i))));
  _mm_sfence();
}

/// Eight sums side by side: one would wait for its own additions, not for memory.
float sum(float const* from, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kSums = 8;
  __m128 sums[kSums] = {};
  std::int64_t i = begin;
  for (; i + 4 * kSums <= end; i += 4 * kSums)
    for (std::int64_t k = 0; k < kSums; ++k)
      sums[k] = _mm_add_ps(sums[k], _mm_load_ps(from + i + 4 * k));
  for (; i < end; i += 4) sums[0] = _mm_add_ps(sums[0], _mm_load_ps(from + i));
  for (std::int64_t k = 1; k < kSums; ++k) sums[0] = _mm_add_ps(sums[0], sums[k]);
  float total[4];
  _mm_storeu_ps(total, sums[0]);
  return total[0] + total[1] + total[2] + total[3];
}

}  // namespace

std::int64_t bytes_past_caches() {
  constexpr std::int64_t kLeast = std::int64_t{192} << 20, kUsual = std::int64_t{1536} << 20;
  std::int64_t const cache = ::sysconf(_SC_LEVEL3_CACHE_SIZE);  // 0 or -1: not known
  auto const free = static_cast<std::int64_t>(default_host_memory(1));
  return std::max(kLeast, std::min(std::max(kUsual, 6 * cache), free / 2));
}

MemorySpeed measure_memory(std::int64_t n, int threads, int rounds) {
  auto const device = device::make_cpu_device();
  auto const stream = device->make_stream(0, threads);
  RandomArray first(*device, n, DType::f32), second(*device, n, DType::f32),
      third(*device, n, DType::f32);
  float *const a = first.as<float>(), *const b = second.as<float>(), *const c = third.as<float>();
  double const bytes = static_cast<double>(n) * sizeof(float) * 1e-9;
  std::vector<float> sums(static_cast<std::size_t>(div_ceil(n, kPiece)));
  auto const rate = [&](int arrays, auto const& piece) {
    return arrays * bytes / fastest(rounds, [&] { over(n, *stream, piece); });
  };
  MemorySpeed speed;
  // All three: one alone could stay in a large last cache from round to round.
  speed.read = rate(3, [&](std::int64_t begin, std::int64_t end) {
    sums[static_cast<std::size_t>(begin / kPiece)] =
        sum(a, begin, end) + sum(b, begin, end) + sum(c, begin, end);
  });
  speed.copy = rate(2, [&](std::int64_t begin, std::int64_t end) { copy(b, a, begin, end); });
  speed.triad = rate(3, [&](std::int64_t begin, std::int64_t end) { triad(b, c, a, begin, end); });
  speed.triad_past = rate(
      3, [&](std::int64_t begin, std::int64_t end) { triad_past_caches(b, c, a, begin, end); });
  return speed;
}

int bench_memory(std::vector<std::string> const& words) {
  Syntax syntax;
  syntax.usage = "spillway bench memory [flags]";
  syntax.summary = "Reads, copies and adds arrays far larger than the caches, and prints GB/s.";
  syntax.flags = {{"mib", "N", "MiB of each of three arrays [twice the last cache, at least 512]"},
                  {"threads", "N", "threads [all that may be used]"},
                  {"json", "", "print one JSON object"}};
  CommandLine const line = parse_command_line(syntax, words);
  if (answer_questions(line, syntax)) return 0;
  std::int64_t const n =
      whole_flag(line, "mib", {1, 1 << 20, bytes_past_caches() / 3 >> 20}) * (1 << 20) / 4;
  int const threads = threads_flag(line);
  MemorySpeed const speed = measure_memory(n, threads, 5);
  if (line.has("json")) {
    nlohmann::json const all = {{"threads", threads},
                                {"mib", n * 4 >> 20},
                                {"read_gb_per_s", speed.read},
                                {"copy_gb_per_s", speed.copy},
                                {"copy_moved_gb_per_s", speed.copy_moved()},
                                {"triad_gb_per_s", speed.triad},
                                {"triad_moved_gb_per_s", speed.triad_moved()},
                                {"triad_past_caches_gb_per_s", speed.triad_past}};
    fmt::print("{}\n", all.dump(2));
    return 0;
  }
  fmt::print("{} threads, three arrays of {} MiB, counted plainly\n", threads, n * 4 >> 20);
  fmt::print("read   {:.1f} GB/s\n", speed.read);
  fmt::print("copy   {:.1f} GB/s   ({:.1f} if lines are read before they are written)\n",
             speed.copy, speed.copy_moved());
  fmt::print("triad  {:.1f} GB/s   ({:.1f} if lines are read before they are written)\n",
             speed.triad, speed.triad_moved());
  fmt::print("       {:.1f} GB/s   past the caches\n", speed.triad_past);
  return 0;
}

}  // namespace spillway::app
