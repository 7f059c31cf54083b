// Writes an fp32 result as the element type.
#pragma once

#include <bit>
#include <cstdint>

#include "lib/core/dtype.hpp"
#include "lib/core/hd.hpp"

namespace spillway::ops::detail {

// Not `to = T(value)`: in a simd loop g++ 12 makes an array of that temporary, and then the loop
// stays scalar.
SPILLWAY_HD inline void store(float& to, float value) { to = value; }
SPILLWAY_HD inline void store(bf16& to, float value) {
  to.bits = bf16::round_bits(std::bit_cast<std::uint32_t>(value));
}

}  // namespace spillway::ops::detail
