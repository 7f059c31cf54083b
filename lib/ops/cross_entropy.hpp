// Softmax cross entropy over rows of logits.
#pragma once

#include <cstdint>

#include "lib/device/stream.hpp"

namespace spillway::ops {

/// losses[r] = logsumexp(logits[r]) - logits[r, target[r]], 0 where target[r] is -1. Where
/// `dlogits` is not null: dlogits[r, v] = scale * (softmax(logits[r])[v] - [v == target[r]]), 0 for
/// rows without target. T is float or bf16.
template <class T>
struct CrossEntropy {
  std::int64_t rows = 0, V = 0;
  float const* logits = nullptr;  // [rows, V]
  std::int32_t const* targets = nullptr;
  float scale = 1;
  float* losses = nullptr;  // [rows]
  T* dlogits = nullptr;     // [rows, V] or null
};

template <class T>
void cross_entropy(CrossEntropy<T> const&, device::Stream&);

}  // namespace spillway::ops
