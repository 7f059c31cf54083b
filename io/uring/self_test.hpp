// Tries an engine on a small file before bulk data is entrusted to it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "io/engine.hpp"

namespace spillway::io::detail {

/// Blocks in the memory of a self-test.
inline constexpr std::size_t self_test_blocks = 4;

/// Writes and reads back patterns at every block offset of `memory` and in every number of blocks.
/// Returns what went wrong, or an empty text. A file that cannot be made or has no room is an
/// Error: it says nothing of the engine.
std::string self_test(Engine& engine, File const& file, std::span<std::byte> memory);

}  // namespace spillway::io::detail
