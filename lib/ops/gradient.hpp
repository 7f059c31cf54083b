// Parts of a gradient, added up where they are kept, and the squares of its norm.
#pragma once

#include <cstdint>

#include "lib/core/dtype.hpp"
#include "lib/device/stream.hpp"

namespace spillway::ops {

/// Elements whose squares are summed by themselves: where a gradient is cut at multiples of this,
/// the cut does not show in the bits of its norm.
inline constexpr std::int64_t kSquarePiece = 65536;

/// stored = part, or stored + part with `add`, rounded to T (float or bf16); part becomes what is
/// stored. `part` may be `stored` itself: then nothing is merged.
template <class T>
struct MergeGradient {
  std::int64_t n = 0;
  float* part = nullptr;
  T* stored = nullptr;
  bool add = false;
};

/// Merges; where `squares` is not null, adds the squares of what is stored, piece by piece.
template <class T>
void merge_gradient(MergeGradient<T> const& args, double* squares, device::Stream& stream);

}  // namespace spillway::ops
