// AdamW (Loshchilov & Hutter 2019) on a piece of a shard, fused with clipping and the split master
// weight.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "lib/core/dtype.hpp"
#include "lib/core/hd.hpp"
#include "lib/device/stream.hpp"

namespace spillway::ops {

/// One step's numbers. weight_decay applies where the element's tensor has two or more dimensions.
struct AdamwStep {
  float lr = 0;
  float beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f;
  float weight_decay = 0;
  float bias1 = 1, bias2 = 1;  // 1 - beta^t
  float grad_scale = 1;        // clipping factor
};

/// The fp32 master from its bf16 rounding and the difference of their bit patterns, and back,
/// without loss. `hi` is the nearest bf16, and of two equally near ones the larger in magnitude:
/// with ties to even the difference could be -32768 or +32768, one value too many for 16 bits. NaN
/// stays NaN in `hi` and in the joined value.
SPILLWAY_HD inline float join_master(bf16 hi, std::int16_t lo) {
  return std::bit_cast<float>((static_cast<std::uint32_t>(hi.bits) << 16) +
                              static_cast<std::uint32_t>(static_cast<std::int32_t>(lo)));
}
SPILLWAY_HD inline void split_master(float master, bf16& hi, std::int16_t& lo) {
  std::uint32_t const bits = std::bit_cast<std::uint32_t>(master);
  bool const nan = (bits & 0x7fffffffu) > 0x7f800000u;
  std::uint32_t const upper = nan ? (bits >> 16) | 0x40u : (bits + 0x8000u) >> 16;
  hi.bits = static_cast<std::uint16_t>(upper);
  lo = nan ? std::int16_t{0} : static_cast<std::int16_t>(bits - (upper << 16));
}

/// Pieces of the state kinds of the same elements. fp32 training: weight in `hi32`, `hi`, `lo`
/// null. bf16: the reverse. The gradient is fp32 (`grad32`) or bf16 (`grad16`). Decay holds for the
/// elements of one call alike.
struct AdamwState {
  std::int64_t n = 0;
  float* hi32 = nullptr;
  bf16* hi = nullptr;
  std::int16_t* lo = nullptr;
  float* m = nullptr;
  float* v = nullptr;
  float const* grad32 = nullptr;
  bf16 const* grad16 = nullptr;
};

/// Element-wise: bits do not depend on how a shard is cut into calls, nor on the instruction set.
void adamw(AdamwState const& state, AdamwStep const& step, device::Stream& stream);

/// Sum of squares in double, by blocks of 4096 elements in order: bits do not depend on threads.
double sum_of_squares(std::int64_t n, float const* x, device::Stream& stream);

}  // namespace spillway::ops
