// The arithmetic of the element-wise operations, one index at a time; launched by pointwise.cpp.
#pragma once

#include <cstdint>

#include "lib/core/hd.hpp"
#include "lib/ops/detail/fast_exp.hpp"
#include "lib/ops/detail/store.hpp"

namespace spillway::ops::detail {

inline constexpr float kGeluCubic = 0.044715f;
inline constexpr float kGeluTwiceRoot = 1.59576912160573f;  // 2 sqrt(2 / pi)

/// gelu(x) = x logistic(2u) with u = sqrt(2/pi) (x + 0.044715 x^3), since 1 + tanh(u) = 2
/// logistic(2u).
template <class T>
struct GeluForward {
  T const* x;
  T* y;
  SPILLWAY_HD void operator()(std::int64_t i) const {
    float const v = static_cast<float>(x[i]);
    float const twice_u = kGeluTwiceRoot * (v + kGeluCubic * v * v * v);
    store(y[i], v * logistic(twice_u).value);
  }
};

template <class T>
struct GeluBackward {
  T const* x;
  T const* dy;
  T* dx;
  SPILLWAY_HD void operator()(std::int64_t i) const {
    float const v = static_cast<float>(x[i]);
    auto const [s, rest] = logistic(kGeluTwiceRoot * (v + kGeluCubic * v * v * v));
    float const slope = kGeluTwiceRoot * (1.0f + 3.0f * kGeluCubic * v * v);
    store(dx[i], static_cast<float>(dy[i]) * (s + v * s * rest * slope));
  }
};

struct RoundToBf16 {
  float const* wide;
  bf16* narrow;
  SPILLWAY_HD void operator()(std::int64_t i) const { store(narrow[i], wide[i]); }
};

template <class T>
struct SwigluForward {
  T const* gate;
  T const* up;
  T* y;
  SPILLWAY_HD void operator()(std::int64_t i) const {
    float const g = static_cast<float>(gate[i]);
    store(y[i], g * logistic(g).value * static_cast<float>(up[i]));
  }
};

template <class T>
struct SwigluBackward {
  T const* gate;
  T const* up;
  T const* dy;
  T* dgate;
  T* dup;
  SPILLWAY_HD void operator()(std::int64_t i) const {
    float const g = static_cast<float>(gate[i]);
    float const u = static_cast<float>(up[i]);
    float const d = static_cast<float>(dy[i]);
    auto const [s, rest] = logistic(g);
    store(dgate[i], d * u * s * (1.0f + g * rest));
    store(dup[i], d * g * s);
  }
};

template <class T>
struct Add {
  T const* a;
  T const* b;
  T* y;
  SPILLWAY_HD void operator()(std::int64_t i) const {
    store(y[i], static_cast<float>(a[i]) + static_cast<float>(b[i]));
  }
};

}  // namespace spillway::ops::detail
