// Element types, and bf16 with round-to-nearest-even.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lib/core/hd.hpp"

namespace spillway {

enum class DType : std::uint8_t { f32, bf16, f16, i16, i8, f8_e4m3, f8_e5m2 };

/// Bytes of one element.
std::size_t size_of(DType type);

/// "fp32", "bf16", ... as written in configuration files.
std::string_view name_of(DType type);

/// The opposite of name_of; throws Fault::usage naming the known ones.
DType dtype_from_name(std::string_view name);

/// The upper half of an fp32. Conversion from float rounds to nearest even; NaN stays NaN.
struct bf16 {
  std::uint16_t bits;

  bf16() = default;
  SPILLWAY_HD explicit bf16(float value) : bits(round_bits(std::bit_cast<std::uint32_t>(value))) {}
  SPILLWAY_HD explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  SPILLWAY_HD static std::uint16_t round_bits(std::uint32_t f) {
    if ((f & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((f >> 16) | 0x40u);
    return static_cast<std::uint16_t>((f + 0x7fffu + ((f >> 16) & 1u)) >> 16);
  }
};
static_assert(sizeof(bf16) == 2);

/// DType of a C++ element type.
template <class T>
inline constexpr DType dtype_of = DType::f32;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;

}  // namespace spillway
