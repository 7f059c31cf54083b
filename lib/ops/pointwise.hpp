// Element-wise operations of a block. T is float or bf16; arithmetic in fp32.
#pragma once

#include <cstdint>

#include "lib/core/dtype.hpp"
#include "lib/device/stream.hpp"

namespace spillway::ops {

/// y = gelu(x), tanh form (Hendrycks & Gimpel 2016; "gelu_new").
template <class T>
void gelu_forward(std::int64_t n, T const* x, T* y, device::Stream&);
/// dx = dy * gelu'(x); dx may be dy.
template <class T>
void gelu_backward(std::int64_t n, T const* x, T const* dy, T* dx, device::Stream&);

/// y = silu(gate) * up (Shazeer 2020), [n] each.
template <class T>
void swiglu_forward(std::int64_t n, T const* gate, T const* up, T* y, device::Stream&);
/// dgate, dup from dy; dgate may be gate's own buffer only if the caller no longer needs it.
template <class T>
void swiglu_backward(std::int64_t n, T const* gate, T const* up, T const* dy, T* dgate, T* dup,
                     device::Stream&);

/// y = a + b; y may be a or b.
template <class T>
void add(std::int64_t n, T const* a, T const* b, T* y, device::Stream&);

/// narrow = wide, rounded.
void round_to_bf16(std::int64_t n, float const* wide, bf16* narrow, device::Stream&);

/// dbias[c] += sum over rows of dy[r, c], in a fixed order.
template <class T>
void bias_backward(std::int64_t rows, std::int64_t C, T const* dy, float* dbias, device::Stream&);

}  // namespace spillway::ops
