// IEEE 754 half precision: exact to fp32, and from fp32 rounded to nearest even, denormals
// included.
#pragma once

#include <bit>
#include <cstdint>

namespace spillway::io {

inline float half_to_float(std::uint16_t half) {
  std::uint32_t const sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  std::uint32_t const exponent = half >> 10 & 0x1fu;
  std::uint32_t const fraction = half & 0x3ffu;
  if (exponent == 0) {  // zero and denormals: fraction * 2^-24, exact in fp32
    float const size = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(size) | sign);
  }
  std::uint32_t const wide = exponent == 0x1fu ? 0xffu : exponent + 112;  // 112 = 127 - 15
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

inline std::uint16_t float_to_half(float value) {
  std::uint32_t const bits = std::bit_cast<std::uint32_t>(value);
  auto const sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  std::uint32_t const size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u | (size >> 13 & 0x3ffu));
  if (size >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // 65520 and above
  if (size < 0x38800000u) {  // below 2^-14: adding 0.5 leaves the rounded multiple of 2^-24 in the
                             // low bits
    float const shifted = std::bit_cast<float>(size) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) & 0x7fffu));
  }
  std::uint32_t const rounded = size + 0xfffu + (size >> 13 & 1u) - (112u << 23);
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}

}  // namespace spillway::io
