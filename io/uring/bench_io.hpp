// Measures what a directory's disk gives through an engine: the numbers behind `spillway bench io`.
#pragma once

#include <cstdint>
#include <string>

#include "io/engine.hpp"

namespace spillway::io {

struct IoBenchmarkOptions {
  std::uint64_t bytes = 1u << 30;  // rounded up to whole blocks
  std::uint64_t block_bytes = 1u << 20;
  std::uint32_t depth = 32;
  EngineKind kind = EngineKind::automatic;
  bool verify = false;  // checks a pattern at every block, through fixed and through plain buffers
};

struct IoBenchmark {
  std::uint64_t bytes = 0;    // size of the file
  double write_gb_per_s = 0;  // 1e9 bytes; into reserved and once written space, as swap space is
  double read_gb_per_s = 0;
  std::uint64_t verified_bytes = 0;  // compared and right; a wrong byte is an Error
  bool direct = false;               // past the page cache
  std::string engine;                // its description
  EngineStats stats;
};

/// With a file of its own in `directory`, which is gone at the end.
IoBenchmark measure_io(std::string const& directory, IoBenchmarkOptions const& options);

}  // namespace spillway::io
