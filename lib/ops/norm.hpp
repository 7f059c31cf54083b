// LayerNorm (Ba et al. 2016) and RMSNorm (Zhang & Sennrich 2019) over rows of C. Statistics in
// fp32. T is float or bf16. Backward of the weights is added to fp32 accumulators, in row order.
#pragma once

#include <cstdint>

#include "lib/device/stream.hpp"

namespace spillway::ops {

template <class T>
struct NormForward {
  std::int64_t rows = 0, C = 0;
  float eps = 1e-5f;
  T const* x = nullptr;
  T const* weight = nullptr;
  T const* bias = nullptr;  // LayerNorm only
  T* y = nullptr;
  float* mean = nullptr;  // [rows], LayerNorm only
  float* rstd = nullptr;  // [rows]
};

template <class T>
struct NormBackward {
  std::int64_t rows = 0, C = 0;
  T const* x = nullptr;
  T const* weight = nullptr;
  float const* mean = nullptr;
  float const* rstd = nullptr;
  T const* dy = nullptr;
  T* dx = nullptr;  // dx = (or +=, if add_to_dx) gradient of x; may not alias dy unless add_to_dx
                    // is off
  bool add_to_dx = false;
  float* dweight = nullptr;  // [C], added to
  float* dbias = nullptr;    // [C], added to; LayerNorm only
};

template <class T>
void layer_norm_forward(NormForward<T> const&, device::Stream&);
template <class T>
void layer_norm_backward(NormBackward<T> const&, device::Stream&);
template <class T>
void rms_norm_forward(NormForward<T> const&, device::Stream&);
template <class T>
void rms_norm_backward(NormBackward<T> const&, device::Stream&);

}  // namespace spillway::ops
