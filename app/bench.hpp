// The benchmarks of `spillway bench`: this machine's limits beside what the program reaches.
#pragma once

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

/// Processors that this process may use.
int usable_processors();

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

/// GB/s of `n` elements in this machine's memory, counted plainly: what is read and written by the
/// program. `moved` counts the reading of lines that are written, too.
struct MemorySpeed {
  double read = 0, copy = 0, triad = 0, triad_moved = 0;
};
MemorySpeed measure_memory(std::int64_t n, int threads, int rounds);

}  // namespace spillway::app
