#include "io/safetensors/convert.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>

#include "io/safetensors/half.hpp"
#include "lib/core/error.hpp"

namespace spillway::io {
namespace {

template <class Convert>
void widen_words(std::span<std::byte const> raw, std::span<float> out, Convert convert) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t word = 0;
    std::memcpy(&word, raw.data() + 2 * i, 2);
    out[i] = convert(word);
  }
}

template <class Convert>
std::ptrdiff_t narrow_words(std::span<float const> values, std::span<std::byte> raw,
                            std::uint16_t infinity, Convert convert) {
  std::ptrdiff_t overflow = -1;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::uint16_t const word = convert(values[i]);
    std::memcpy(raw.data() + 2 * i, &word, 2);
    bool const became_infinite = (word & 0x7fffu) == infinity && std::isfinite(values[i]);
    if (became_infinite && overflow < 0) overflow = static_cast<std::ptrdiff_t>(i);
  }
  return overflow;
}

}  // namespace

void widen(DType type, std::span<std::byte const> raw, std::span<float> out) {
  expect(raw.size() == out.size() * size_of(type), "raw bytes and elements agree");
  if (out.empty()) return;
  if (type == DType::f32)
    std::memcpy(out.data(), raw.data(), raw.size());
  else if (type == DType::bf16)
    widen_words(raw, out,
                [](std::uint16_t word) { return static_cast<float>(std::bit_cast<bf16>(word)); });
  else
    widen_words(raw, out, half_to_float);
}

std::ptrdiff_t narrow_elements(DType type, std::span<float const> values,
                               std::span<std::byte> raw) {
  expect(raw.size() == values.size() * size_of(type), "raw bytes and elements agree");
  if (values.empty()) return -1;
  if (type == DType::bf16)
    return narrow_words(values, raw, 0x7f80u, [](float value) { return bf16(value).bits; });
  if (type == DType::f16) return narrow_words(values, raw, 0x7c00u, float_to_half);
  std::memcpy(raw.data(), values.data(), raw.size());
  return -1;
}

}  // namespace spillway::io
