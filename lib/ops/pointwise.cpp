// Launches of the element-wise operations on the CPU.
#include "lib/ops/pointwise.hpp"

#include "lib/core/dtype.hpp"
#include "lib/core/numeric.hpp"
#include "lib/ops/detail/columns.hpp"
#include "lib/ops/detail/launch.hpp"
#include "lib/ops/detail/pointwise_functors.hpp"

namespace spillway::ops {

template <class T>
void gelu_forward(std::int64_t n, T const* x, T* y, device::Stream& stream) {
  detail::launch_each(n, detail::GeluForward<T>{x, y}, stream);
}

template <class T>
void gelu_backward(std::int64_t n, T const* x, T const* dy, T* dx, device::Stream& stream) {
  detail::launch_each(n, detail::GeluBackward<T>{x, dy, dx}, stream);
}

template <class T>
void swiglu_forward(std::int64_t n, T const* gate, T const* up, T* y, device::Stream& stream) {
  detail::launch_each(n, detail::SwigluForward<T>{gate, up, y}, stream);
}

template <class T>
void swiglu_backward(std::int64_t n, T const* gate, T const* up, T const* dy, T* dgate, T* dup,
                     device::Stream& stream) {
  detail::launch_each(n, detail::SwigluBackward<T>{gate, up, dy, dgate, dup}, stream);
}

template <class T>
void add(std::int64_t n, T const* a, T const* b, T* y, device::Stream& stream) {
  detail::launch_each(n, detail::Add<T>{a, b, y}, stream);
}

void round_to_bf16(std::int64_t n, float const* wide, bf16* narrow, device::Stream& stream) {
  detail::launch_each(n, detail::RoundToBf16{wide, narrow}, stream);
}

template <class T>
void bias_backward(std::int64_t rows, std::int64_t C, T const* dy, float* dbias,
                   device::Stream& stream) {
  detail::launch_rows(div_ceil(C, detail::kColumnChunk),
                      detail::BiasBackward<T>{rows, C, dy, dbias}, stream);
}

template void gelu_forward(std::int64_t, float const*, float*, device::Stream&);
template void gelu_forward(std::int64_t, bf16 const*, bf16*, device::Stream&);
template void gelu_backward(std::int64_t, float const*, float const*, float*, device::Stream&);
template void gelu_backward(std::int64_t, bf16 const*, bf16 const*, bf16*, device::Stream&);
template void swiglu_forward(std::int64_t, float const*, float const*, float*, device::Stream&);
template void swiglu_forward(std::int64_t, bf16 const*, bf16 const*, bf16*, device::Stream&);
template void swiglu_backward(std::int64_t, float const*, float const*, float const*, float*,
                              float*, device::Stream&);
template void swiglu_backward(std::int64_t, bf16 const*, bf16 const*, bf16 const*, bf16*, bf16*,
                              device::Stream&);
template void add(std::int64_t, float const*, float const*, float*, device::Stream&);
template void add(std::int64_t, bf16 const*, bf16 const*, bf16*, device::Stream&);
template void bias_backward(std::int64_t, std::int64_t, float const*, float*, device::Stream&);
template void bias_backward(std::int64_t, std::int64_t, bf16 const*, float*, device::Stream&);

}  // namespace spillway::ops
