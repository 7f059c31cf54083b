// The arithmetic of LayerNorm and RMSNorm, one row (or one chunk of columns) at a time; launched by
// norm.cpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "lib/core/hd.hpp"
#include "lib/ops/detail/columns.hpp"
#include "lib/ops/detail/lanes.hpp"
#include "lib/ops/detail/store.hpp"
#include "lib/ops/norm.hpp"

namespace spillway::ops::detail {

template <class T>
struct LayerNormForwardRow {
  NormForward<T> args;
  SPILLWAY_HD void operator()(std::int64_t row) const {
    std::int64_t const C = args.C;
    T const* const x = args.x + row * C;
    T const* const weight = args.weight;
    T const* const bias = args.bias;
    T* const y = args.y + row * C;
    auto const value = [x](std::int64_t c) { return static_cast<float>(x[c]); };
    float const mean = static_cast<float>(lane_sum(C, value) / static_cast<double>(C));
    auto const square = [x, mean](std::int64_t c) {
      float const d = static_cast<float>(x[c]) - mean;
      return d * d;
    };
    double const variance = lane_sum(C, square) / static_cast<double>(C);
    float const rstd =
        static_cast<float>(1.0 / std::sqrt(variance + static_cast<double>(args.eps)));
    args.mean[row] = mean;
    args.rstd[row] = rstd;
#pragma omp simd
    for (std::int64_t c = 0; c < C; ++c)
      store(y[c], (static_cast<float>(x[c]) - mean) * rstd * static_cast<float>(weight[c]) +
                      static_cast<float>(bias[c]));
  }
};

template <class T>
struct RmsNormForwardRow {
  NormForward<T> args;
  SPILLWAY_HD void operator()(std::int64_t row) const {
    std::int64_t const C = args.C;
    T const* const x = args.x + row * C;
    T const* const weight = args.weight;
    T* const y = args.y + row * C;
    auto const square = [x](std::int64_t c) {
      float const v = static_cast<float>(x[c]);
      return v * v;
    };
    double const mean_square = lane_sum(C, square) / static_cast<double>(C);
    float const rstd =
        static_cast<float>(1.0 / std::sqrt(mean_square + static_cast<double>(args.eps)));
    args.rstd[row] = rstd;
#pragma omp simd
    for (std::int64_t c = 0; c < C; ++c)
      store(y[c], static_cast<float>(x[c]) * rstd * static_cast<float>(weight[c]));
  }
};

/// With n = (x - mean) rstd and g = dy weight: dx = rstd (g - avg(g) - n avg(g n)). RMSNorm has no
/// mean, so mean and avg(g) are 0.
template <class T, bool Centered>
struct NormBackwardRow {
  NormBackward<T> args;
  SPILLWAY_HD void operator()(std::int64_t row) const {
    std::int64_t const C = args.C;
    T const* const x = args.x + row * C;
    T const* const dy = args.dy + row * C;
    T const* const weight = args.weight;
    T* const dx = args.dx + row * C;
    float const mean = Centered ? args.mean[row] : 0.0f;
    float const rstd = args.rstd[row];
    auto const g = [dy, weight](std::int64_t c) {
      return static_cast<float>(dy[c]) * static_cast<float>(weight[c]);
    };
    auto const n = [x, mean, rstd](std::int64_t c) {
      return (static_cast<float>(x[c]) - mean) * rstd;
    };
    double const count = static_cast<double>(C);
    float const average = Centered ? static_cast<float>(lane_sum(C, g) / count) : 0.0f;
    auto const product = [g, n](std::int64_t c) { return g(c) * n(c); };
    float const projection = static_cast<float>(lane_sum(C, product) / count);
    if (args.add_to_dx) {
#pragma omp simd
      for (std::int64_t c = 0; c < C; ++c)
        store(dx[c], static_cast<float>(dx[c]) + rstd * (g(c) - average - n(c) * projection));
    } else {
#pragma omp simd
      for (std::int64_t c = 0; c < C; ++c)
        store(dx[c], rstd * (g(c) - average - n(c) * projection));
    }
  }
};

template <class T, bool Centered>
struct NormBackwardWeights {
  NormBackward<T> args;
  SPILLWAY_HD void operator()(std::int64_t chunk) const {
    std::int64_t const C = args.C;
    T const* const x = args.x;
    T const* const dy = args.dy;
    float const* const mean = args.mean;
    float const* const rstd = args.rstd;
    add_column_sums(chunk, args.rows, C, args.dweight, [=](std::int64_t row, std::int64_t c) {
      float const center = Centered ? mean[row] : 0.0f;
      return static_cast<float>(dy[row * C + c]) *
             ((static_cast<float>(x[row * C + c]) - center) * rstd[row]);
    });
    if constexpr (Centered)
      add_column_sums(chunk, args.rows, C, args.dbias, [=](std::int64_t row, std::int64_t c) {
        return static_cast<float>(dy[row * C + c]);
      });
  }
};

}  // namespace spillway::ops::detail
