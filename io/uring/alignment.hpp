// Finds out whether a file takes direct transfers, and of which multiple.
#pragma once

#include <cstdint>
#include <functional>

namespace spillway::io::detail {

/// Turns O_DIRECT on where it works. Returns the power of two that offsets, sizes and addresses
/// must be multiples of, or 0, with O_DIRECT off, where the page cache cannot be avoided.
std::uint32_t turn_direct(int fd, bool writable);

/// Least power of two from 512 to 64 Ki for which `transfer` succeeds, else 0.
std::uint32_t least_working_alignment(std::function<bool(std::uint32_t)> const& transfer);

}  // namespace spillway::io::detail
