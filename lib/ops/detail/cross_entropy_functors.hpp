// Softmax cross entropy of one row of a part of the vocabulary; launched by cross_entropy.cpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "lib/core/hd.hpp"
#include "lib/ops/cross_entropy.hpp"
#include "lib/ops/detail/fast_exp.hpp"
#include "lib/ops/detail/lanes.hpp"
#include "lib/ops/detail/store.hpp"

namespace spillway::ops::detail {

inline constexpr float kLowest = -3.402823466e38f;

struct StartSoftmaxRow {
  SoftmaxState state;
  SPILLWAY_HD void operator()(std::int64_t row) const {
    state.maximum[row] = kLowest;
    state.others[row] = 0;
    state.target[row] = 0;
  }
};

/// Exponentials are relative to the largest logit so far, so none overflows. The target is left out
/// of the sum, because a large one would swallow the others.
struct ObserveRow {
  LogitsPart part;
  SoftmaxState state;
  SPILLWAY_HD void operator()(std::int64_t row) const {
    float const* const logits = part.logits + row * part.stride;
    std::int64_t const target = part.targets[row] - part.first;
    bool const here = part.targets[row] >= 0 && target >= 0 && target < part.columns;
    float const before = state.maximum[row];
    float const largest = lane_max(part.columns, logits, before);
    auto const sum = [logits, largest](std::int64_t from, std::int64_t to) {
      return lane_sum(to - from, [logits, largest, from](std::int64_t i) {
        return softmax_exp(logits[from + i] - largest);
      });
    };
    double const fresh =
        here ? sum(0, target) + sum(target + 1, part.columns) : sum(0, part.columns);
    if (here) state.target[row] = logits[target];
    state.others[row] =
        state.others[row] * static_cast<double>(softmax_exp(before - largest)) + fresh;
    state.maximum[row] = largest;
  }
};

struct LossRow {
  std::int32_t const* targets;
  SoftmaxState state;
  float* losses;
  SPILLWAY_HD void operator()(std::int64_t row) const {
    losses[row] = 0;
    if (targets[row] < 0) return;
    double const target =
        static_cast<double>(state.target[row]) - static_cast<double>(state.maximum[row]);
    losses[row] = static_cast<float>(std::log(state.others[row] + std::exp(target)) - target);
  }
};

template <class T>
struct LogitsGradientRow {
  LogitsPart part;
  SoftmaxState state;
  float scale;
  T* dlogits;
  SPILLWAY_HD void operator()(std::int64_t row) const {
    float const* const logits = part.logits + row * part.stride;
    T* const to = dlogits + row * part.stride;
    std::int64_t const columns = part.columns;
    if (part.targets[row] < 0) {
      for (std::int64_t v = 0; v < columns; ++v) store(to[v], 0.0f);
      return;
    }
    float const largest = state.maximum[row];
    double const others = state.others[row];
    double const sum =
        others + std::exp(static_cast<double>(state.target[row]) - static_cast<double>(largest));
    float const factor = static_cast<float>(static_cast<double>(scale) / sum);
#pragma omp simd
    for (std::int64_t v = 0; v < columns; ++v)
      store(to[v], factor * softmax_exp(logits[v] - largest));
    std::int64_t const target = part.targets[row] - part.first;
    if (target < 0 || target >= columns) return;
    // p - 1 as minus the sum of the others: no cancellation where p is close to 1.
    store(to[target], static_cast<float>(-others / sum) * scale);
  }
};

}  // namespace spillway::ops::detail
