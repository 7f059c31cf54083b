// AdamW of one element, for each way in which weight and gradient are stored; launched by
// adamw.cpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "lib/core/hd.hpp"
#include "lib/ops/adamw.hpp"

namespace spillway::ops::detail {

/// The step's numbers as the elements use them, worked out once in double.
struct AdamwFactors {
  float beta1, rest1;  // rest = 1 - beta
  float beta2, rest2;
  float eps, grad_scale;
  float rate;                // lr / bias1
  float inverse_root_bias2;  // 1 / sqrt(bias2)
  float decay;               // lr weight_decay

  explicit AdamwFactors(AdamwStep const& step)
      : beta1(step.beta1),
        rest1(static_cast<float>(1.0 - static_cast<double>(step.beta1))),
        beta2(step.beta2),
        rest2(static_cast<float>(1.0 - static_cast<double>(step.beta2))),
        eps(step.eps),
        grad_scale(step.grad_scale),
        rate(static_cast<float>(static_cast<double>(step.lr) / static_cast<double>(step.bias1))),
        inverse_root_bias2(static_cast<float>(1.0 / std::sqrt(static_cast<double>(step.bias2)))),
        decay(static_cast<float>(static_cast<double>(step.lr) *
                                 static_cast<double>(step.weight_decay))) {}

  /// The new weight; m and v are updated in place.
  SPILLWAY_HD float apply(float weight, float& m, float& v, float gradient) const {
    float const g = gradient * grad_scale;
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * (g * g);
    float const denominator = std::sqrt(v) * inverse_root_bias2 + eps;
    return weight - (rate * (m / denominator) + decay * weight);
  }
};

/// fp32 training: the weight is `hi32`.
template <class Gradient>
struct AdamwWhole {
  float* weight;
  float* m;
  float* v;
  Gradient const* gradient;
  AdamwFactors factors;
  SPILLWAY_HD void operator()(std::int64_t i) const {
    weight[i] = factors.apply(weight[i], m[i], v[i], static_cast<float>(gradient[i]));
  }
};

/// bf16 training: the fp32 master is joined from `hi` and `lo`, and split again.
template <class Gradient>
struct AdamwSplit {
  bf16* hi;
  std::int16_t* lo;
  float* m;
  float* v;
  Gradient const* gradient;
  AdamwFactors factors;
  SPILLWAY_HD void operator()(std::int64_t i) const {
    float const master =
        factors.apply(join_master(hi[i], lo[i]), m[i], v[i], static_cast<float>(gradient[i]));
    split_master(master, hi[i], lo[i]);
  }
};

}  // namespace spillway::ops::detail
