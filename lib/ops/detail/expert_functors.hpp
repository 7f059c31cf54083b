// The arithmetic of routing and of moving rows to experts, one row at a time; launched by
// experts.cpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "lib/core/hd.hpp"
#include "lib/ops/detail/lanes.hpp"
#include "lib/ops/detail/store.hpp"
#include "lib/ops/experts.hpp"

namespace spillway::ops::detail {

struct RouteRow {
  Route args;
  SPILLWAY_HD void operator()(std::int64_t row) const {
    float* const p = args.probabilities + row * args.experts;
    softmax(p);
    std::int32_t* const chosen = args.chosen + row * args.k;
    float* const weights = args.weights + row * args.k;
    double sum = 0;
    for (std::int64_t j = 0; j < args.k; ++j) {
      chosen[j] = next(p, j == 0 ? -1 : chosen[j - 1], static_cast<std::int32_t>(j));
      sum += static_cast<double>(p[chosen[j]]);
    }
    for (std::int64_t j = 0; j < args.k; ++j)
      weights[j] = static_cast<float>(static_cast<double>(p[chosen[j]]) / sum);
  }

 private:
  SPILLWAY_HD void softmax(float* p) const {
    float const most = lane_max(args.experts, p, p[0]);
    double sum = 0;
    for (std::int64_t e = 0; e < args.experts; ++e)
      sum += std::exp(static_cast<double>(p[e]) - static_cast<double>(most));
    for (std::int64_t e = 0; e < args.experts; ++e)
      p[e] =
          static_cast<float>(std::exp(static_cast<double>(p[e]) - static_cast<double>(most)) / sum);
  }

  /// The likeliest of those that come after `last` in order of probability and index. NaN compares
  /// with nothing: then `otherwise`, so that a diverged model still has experts.
  SPILLWAY_HD std::int32_t next(float const* p, std::int32_t last, std::int32_t otherwise) const {
    std::int32_t best = -1;
    for (std::int32_t e = 0; e < args.experts; ++e) {
      bool const left = last < 0 || p[e] < p[last] || (p[e] == p[last] && e > last);
      if (left && (best < 0 ? p[e] >= 0 : p[e] > p[best])) best = e;
    }
    return best < 0 ? otherwise : best;
  }
};

/// With w_j = p_j / s over the chosen: dp_j = (dw_j - sum of w dw) / s; then back through the
/// softmax.
template <class T>
struct RouteBackwardRow {
  RouteBackward<T> args;
  SPILLWAY_HD void operator()(std::int64_t row) const {
    Route const& f = args.forward;
    float const* const p = f.probabilities + row * f.experts;
    double sum = 0, mean = 0, projection = 0;
    for (std::int64_t j = row * f.k; j < (row + 1) * f.k; ++j) {
      sum += static_cast<double>(p[f.chosen[j]]);
      mean += static_cast<double>(f.weights[j]) * static_cast<double>(args.dweights[j]);
    }
    for (std::int64_t e = 0; e < f.experts; ++e)
      projection += static_cast<double>(p[e]) * dprobability(row, e, sum, mean);
    for (std::int64_t e = 0; e < f.experts; ++e)
      store(args.dlogits[row * f.experts + e],
            static_cast<float>(static_cast<double>(p[e]) *
                               (dprobability(row, e, sum, mean) - projection)));
  }

 private:
  SPILLWAY_HD double dprobability(std::int64_t row, std::int64_t e, double sum, double mean) const {
    Route const& f = args.forward;
    double total =
        args.dprobabilities == nullptr ? 0.0 : static_cast<double>(args.dprobabilities[e]);
    for (std::int64_t j = row * f.k; j < (row + 1) * f.k; ++j)
      if (f.chosen[j] == e) total += (static_cast<double>(args.dweights[j]) - mean) / sum;
    return total;
  }
};

template <class T>
struct GatherRow {
  ExpertOrder order;
  std::int64_t C;
  T const* x;
  T* y;
  SPILLWAY_HD void operator()(std::int64_t slot) const {
    std::int32_t const choice = order.choice_of[slot];
    T const* const from = x + (choice < 0 ? 0 : choice / order.k) * C;
    T* const to = y + slot * C;
    for (std::int64_t c = 0; c < C; ++c) to[c] = choice < 0 ? T(0.0f) : from[c];
  }
};

template <class T>
struct CombineRow {
  CombineRows<T> args;
  SPILLWAY_HD void operator()(std::int64_t row) const {
    constexpr std::int64_t kBlock = 256;
    float total[kBlock];
    for (std::int64_t begin = 0; begin < args.C; begin += kBlock) {
      std::int64_t const count = args.C - begin < kBlock ? args.C - begin : kBlock;
      float const* const base = args.base == nullptr ? nullptr : args.base + row * args.C + begin;
      for (std::int64_t c = 0; c < count; ++c) total[c] = base == nullptr ? 0.0f : base[c];
      for (std::int64_t j = row * args.order.k; j < (row + 1) * args.order.k; ++j) {
        float const weight = args.weights == nullptr ? 1.0f : args.weights[j];
        T const* const y = args.y + args.order.slot_of[j] * args.C + begin;
#pragma omp simd
        for (std::int64_t c = 0; c < count; ++c) total[c] += weight * static_cast<float>(y[c]);
      }
      T* const out = args.out + row * args.C + begin;
#pragma omp simd
      for (std::int64_t c = 0; c < count; ++c) store(out[c], total[c]);
    }
  }
};

template <class T>
struct WeighRow {
  WeighRows<T> args;
  SPILLWAY_HD void operator()(std::int64_t slot) const {
    std::int32_t const choice = args.order.choice_of[slot];
    if (choice < 0) return;
    float const weight = args.weights[choice];
    T const* const activated = args.activated + slot * args.I;
    T* const dactivated = args.dactivated + slot * args.I;
    T* const dresult = args.dresult + slot * args.C;
    args.dweights[choice] =
        static_cast<float>(lane_sum(args.I, [activated, dactivated](std::int64_t i) {
          return static_cast<float>(activated[i]) * static_cast<float>(dactivated[i]);
        }));
#pragma omp simd
    for (std::int64_t i = 0; i < args.I; ++i)
      store(dactivated[i], weight * static_cast<float>(dactivated[i]));
#pragma omp simd
    for (std::int64_t c = 0; c < args.C; ++c)
      store(dresult[c], weight * static_cast<float>(dresult[c]));
  }
};

}  // namespace spillway::ops::detail
