// Softmax cross entropy of one row; launched by cross_entropy.cpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "lib/core/hd.hpp"
#include "lib/ops/cross_entropy.hpp"
#include "lib/ops/detail/fast_exp.hpp"
#include "lib/ops/detail/lanes.hpp"
#include "lib/ops/detail/store.hpp"

namespace spillway::ops::detail {

/// The largest logit is subtracted first, so no exponential overflows. A logit that is not finite
/// makes a NaN loss.
template <class T>
struct CrossEntropyRow {
  CrossEntropy<T> args;
  SPILLWAY_HD void operator()(std::int64_t row) const {
    std::int64_t const V = args.V;
    float const* const logits = args.logits + row * V;
    std::int32_t const target = args.targets[row];
    T* const dlogits = args.dlogits == nullptr ? nullptr : args.dlogits + row * V;
    if (target < 0) {
      args.losses[row] = 0;
      if (dlogits != nullptr)
        for (std::int64_t v = 0; v < V; ++v) store(dlogits[v], 0.0f);
      return;
    }
    float const largest = lane_max(V, logits, -3.402823466e38f);
    auto const weight = [logits, largest](std::int64_t v) { return fast_exp(logits[v] - largest); };
    double const sum = lane_sum(V, weight);
    args.losses[row] = static_cast<float>(
        std::log(sum) + (static_cast<double>(largest) - static_cast<double>(logits[target])));
    if (dlogits == nullptr) return;
    float const inverse = static_cast<float>(1.0 / sum);
    float const scale = args.scale;
    // p - 1 of the target as minus the sum of the others: no cancellation where p is close to 1.
    double const others = sum - static_cast<double>(weight(target));
    float const at_target = static_cast<float>(-others / sum) * scale;
#pragma omp simd
    for (std::int64_t v = 0; v < V; ++v)
      store(dlogits[v], scale * (fast_exp(logits[v] - largest) * inverse));
    store(dlogits[target], at_target);
  }
};

}  // namespace spillway::ops::detail
