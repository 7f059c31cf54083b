// `spillway bench`: finds the benchmark, and what the benchmarks share.
#include "app/bench.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "app/closest.hpp"
#include "app/commands.hpp"
#include "app/host.hpp"
#include "app/option_text.hpp"
#include "lib/core/error.hpp"

namespace spillway::app {
namespace {

struct Benchmark {
  char const* name;
  int (*run)(std::vector<std::string> const& words);
  char const* help;
};

constexpr Benchmark kBenchmarks[] = {
    {"io", bench_io, "a disk: write and read GB/s"},
    {"memory", bench_memory, "memory: read, copy and triad GB/s"},
    {"gemm", bench_gemm, "all products of a training step, by oneDNN and by this program"},
    {"adam", bench_adam, "the optimizer's update beside the memory it moves"}};

int list_benchmarks() {
  fmt::print("spillway bench WHAT [flags]\n\n");
  for (Benchmark const& benchmark : kBenchmarks)
    fmt::print("  {:<8} {}\n", benchmark.name, benchmark.help);
  fmt::print("\n`spillway bench WHAT --help` lists the flags.\n");
  return 0;
}

}  // namespace

std::int64_t whole_flag(CommandLine const& line, std::string const& name, WholeRange range) {
  std::string const text = line.flag(name, fmt::format("{}", range.otherwise));
  auto const value = integer_codec(range.least, range.most).read(text);
  if (!value)
    fail(Fault::usage, fmt::format("bad value '{}' for --{} (it takes a whole number from {} to "
                                   "{}).",
                                   text, name, range.least, range.most));
  return *value;
}

int threads_flag(CommandLine const& line) {
  return static_cast<int>(whole_flag(line, "threads", {1, 4096, allowed_processors()}));
}

RandomArray::RandomArray(device::Device& device, std::int64_t elements, DType type)
    : block_(device.allocate(static_cast<std::size_t>(elements) * size_of(type))) {
  std::uint32_t state = 1;
  auto const next = [&state] {
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(static_cast<std::int32_t>(state)) * 0x1p-31f;
  };
  for (std::int64_t i = 0; i < elements; ++i) {
    if (type == DType::f32)
      as<float>()[i] = next();
    else
      as<bf16>()[i] = bf16(next());
  }
}

int run_bench(Arguments const& arguments) {
  std::vector<std::string> words = arguments.words;
  std::string const what = words.empty() ? "" : words.front();
  if (what == "--help") return list_benchmarks();
  auto const found = std::find_if(std::begin(kBenchmarks), std::end(kBenchmarks),
                                  [&](Benchmark const& known) { return what == known.name; });
  if (found == std::end(kBenchmarks)) {
    std::vector<std::string> names;
    for (Benchmark const& known : kBenchmarks) names.emplace_back(known.name);
    fail(Fault::usage,
         fmt::format("there is no 'bench {}' (it knows io, memory, gemm and adam). Use "
                     "`spillway bench {}`?",
                     what, closest(what, names)));
  }
  words.erase(words.begin());
  return found->run(words);
}

}  // namespace spillway::app
