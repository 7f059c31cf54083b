// Scratch memory and a scratch file for probes, the self-test and the benchmark.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "io/file.hpp"

namespace spillway::io::detail {

struct FreeMemory {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<std::byte[], FreeMemory>;

/// Zeroed. `bytes` is a multiple of `alignment`.
AlignedMemory aligned_memory(std::uint64_t bytes, std::uint64_t alignment);

/// A new file of a random name in `directory`, already unlinked; in memory where `directory` is
/// empty.
File scratch_file(std::string const& directory);

}  // namespace spillway::io::detail
