// What the files of the tiered store share.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "lib/core/numeric.hpp"
#include "lib/device/for_each.hpp"

namespace spillway::offload {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline void copy_parallel(std::byte* to, std::byte const* from, std::size_t bytes,
                          device::Stream& stream) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  device::for_each_row(
      narrow<std::int64_t>(div_ceil(bytes, kPiece)),
      [&](std::int64_t piece) {
        auto const at = static_cast<std::size_t>(piece) * kPiece;
        std::memcpy(to + at, from + at, std::min(kPiece, bytes - at));
      },
      stream);
}

}  // namespace spillway::offload
