// The rotation of one row by its position; launched by rope.cpp.
#pragma once

#include <cstdint>

#include "lib/core/hd.hpp"
#include "lib/ops/detail/store.hpp"
#include "lib/ops/rope.hpp"

namespace spillway::ops::detail {

/// Dimension i turns with dimension i + head_dim/2 by the angle of (position, i), times `direction`
/// 1 or -1.
template <class T>
struct RopeRow {
  Rope<T> args;
  float direction;
  SPILLWAY_HD void operator()(std::int64_t row) const {
    std::int64_t const half = args.head_dim / 2;
    float const* const cosine = args.cosine + (row % args.T_) * half;
    float const* const sine = args.sine + (row % args.T_) * half;
    float const turn = direction;
    for (std::int64_t head = 0; head < args.heads; ++head) {
      T* const first = args.x + row * args.stride + head * args.head_dim;
      T* const second = first + half;
#pragma omp simd
      for (std::int64_t i = 0; i < half; ++i) {
        float const a = static_cast<float>(first[i]);
        float const b = static_cast<float>(second[i]);
        float const s = turn * sine[i];
        store(first[i], a * cosine[i] - b * s);
        store(second[i], b * cosine[i] + a * s);
      }
    }
  }
};

}  // namespace spillway::ops::detail
