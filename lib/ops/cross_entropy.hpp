// Softmax cross entropy over a vocabulary that is visited some columns at a time, so that the
// logits never exist whole: first every part is observed, then each is turned into its gradient.
#pragma once

#include <cstdint>

#include "lib/device/stream.hpp"

namespace spillway::ops {

/// Logits of the columns [first, first + columns) of a vocabulary.
struct LogitsPart {
  std::int64_t rows = 0, columns = 0, first = 0;
  float const* logits = nullptr;          // [rows, columns]
  std::int64_t stride = 0;                // elements between rows, of logits and of their gradient
  std::int32_t const* targets = nullptr;  // [rows], of the whole vocabulary; negative: none
};

/// Of each row, over the columns observed so far: the softmax's denominator is the exponential of
/// the target's logit and `others`, both relative to `maximum`.
struct SoftmaxState {
  float* maximum = nullptr;
  double* others = nullptr;  // sum of exp(logit - maximum) of all columns but the target's
  float* target = nullptr;   // the target's logit
};

void cross_entropy_start(std::int64_t rows, SoftmaxState const&, device::Stream&);
void cross_entropy_observe(LogitsPart const&, SoftmaxState const&, device::Stream&);
/// After all columns: losses[r] = logsumexp(logits[r]) - logits[r, targets[r]], 0 without a target.
/// A logit that is not finite shows in the loss.
void cross_entropy_losses(std::int64_t rows, std::int32_t const* targets, SoftmaxState const&,
                          float* losses, device::Stream&);
/// dlogits[r, v] = scale (softmax(logits[r])[v] - [v == targets[r]]), 0 for rows without target.
/// T is float or bf16.
template <class T>
void cross_entropy_gradient(LogitsPart const&, SoftmaxState const&, float scale, T* dlogits,
                            device::Stream&);

}  // namespace spillway::ops
