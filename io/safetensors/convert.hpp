// Elements of a safetensors file to and from fp32.
#pragma once

#include <cstddef>
#include <span>

#include "lib/core/dtype.hpp"

namespace spillway::io {

/// `raw` holds out.size() elements of `type` at any alignment.
void widen(DType type, std::span<std::byte const> raw, std::span<float> out);

/// The opposite, rounded to nearest even. Index of the first finite value that became infinite,
/// else -1.
std::ptrdiff_t narrow_elements(DType type, std::span<float const> values, std::span<std::byte> raw);

}  // namespace spillway::io
