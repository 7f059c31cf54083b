// RMSNorm of each head by itself, as Qwen3 does with queries and keys. Statistics in fp32. T is
// float or bf16. Backward of the weights is added to fp32 accumulators, in row order.
#pragma once

#include <cstdint>

#include "lib/device/stream.hpp"

namespace spillway::ops {

/// Heads of a matrix lie beside each other: head h of row r starts at r * stride + h * head_dim.
template <class T>
struct HeadNormForward {
  std::int64_t rows = 0, heads = 0, head_dim = 0;
  float eps = 1e-6f;
  T const* x = nullptr;
  std::int64_t x_stride = 0;
  T const* weight = nullptr;  // [head_dim], of all heads
  T* y = nullptr;
  std::int64_t y_stride = 0;
  float* rstd = nullptr;  // [rows, heads]
};

template <class T>
struct HeadNormBackward {
  std::int64_t rows = 0, heads = 0, head_dim = 0;
  T const* x = nullptr;
  std::int64_t x_stride = 0;
  T const* weight = nullptr;
  float const* rstd = nullptr;
  T const* dy = nullptr;
  std::int64_t dy_stride = 0;
  T* dx = nullptr;  // set; laid out as x
  float* dweight = nullptr;
};

template <class T>
void head_norm_forward(HeadNormForward<T> const&, device::Stream&);
template <class T>
void head_norm_backward(HeadNormBackward<T> const&, device::Stream&);

}  // namespace spillway::ops
