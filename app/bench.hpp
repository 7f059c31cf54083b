// The benchmarks of `spillway bench`: this machine's limits beside what the program reaches.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "app/options.hpp"
#include "lib/device/device.hpp"

namespace spillway::app {

int bench_io(std::vector<std::string> const& words);
int bench_memory(std::vector<std::string> const& words);
int bench_adam(std::vector<std::string> const& words);
int bench_gemm(std::vector<std::string> const& words);

/// A flag that takes a whole number. Throws Fault::usage.
struct WholeRange {
  std::int64_t least, most, otherwise;
};
std::int64_t whole_flag(CommandLine const& line, std::string const& name, WholeRange range);

/// --threads: unless it is given, as many as processors may be used.
int threads_flag(CommandLine const& line);

/// Arrays of random numbers in (-1, 1) in memory as the stores have it. Never zeros, which some
/// processors multiply faster.
class RandomArray {
 public:
  RandomArray(device::Device& device, std::int64_t elements, DType type);
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(block_->bytes().data());
  }

 private:
  std::unique_ptr<device::Block> block_;
};

/// Seconds of the fastest of some rounds: what disturbs a round only makes it slower.
template <class Work>
double fastest(int rounds, Work const& work) {
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    auto const start = std::chrono::steady_clock::now();
    work();
    double const seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (round == 0 || seconds < best) best = seconds;
  }
  return best;
}

/// GB/s of arrays of `n` elements, a multiple of 4, counted plainly: what the program reads and
/// writes. A store through the caches first reads the line it writes, unless the processor knows
/// better; one past the caches never does, so its plain count is what moves.
struct MemorySpeed {
  double read = 0, copy = 0, triad = 0, triad_past = 0;
  double copy_moved() const { return copy * 3 / 2; }    // if the lines are read
  double triad_moved() const { return triad * 4 / 3; }  // if the lines are read
  /// What memory moves at most, to measure others by.
  double limit() const { return std::max(triad_moved(), triad_past); }
};
MemorySpeed measure_memory(std::int64_t n, int threads, int rounds);

/// Bytes that no cache here holds, nor half of free memory.
std::int64_t bytes_past_caches();

}  // namespace spillway::app
