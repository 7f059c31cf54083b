// Launches of LayerNorm and RMSNorm on the CPU.
#include "lib/ops/norm.hpp"

#include "lib/core/dtype.hpp"
#include "lib/core/numeric.hpp"
#include "lib/ops/detail/launch.hpp"
#include "lib/ops/detail/norm_functors.hpp"

namespace spillway::ops {
namespace {

// The weights first: dx may be dy's own buffer.
template <class T, bool Centered>
void norm_backward(NormBackward<T> const& args, device::Stream& stream) {
  detail::launch_rows(div_ceil(args.C, detail::kColumnChunk),
                      detail::NormBackwardWeights<T, Centered>{args}, stream);
  detail::launch_rows(args.rows, detail::NormBackwardRow<T, Centered>{args}, stream);
}

}  // namespace

template <class T>
void layer_norm_forward(NormForward<T> const& args, device::Stream& stream) {
  detail::launch_rows(args.rows, detail::LayerNormForwardRow<T>{args}, stream);
}

template <class T>
void layer_norm_backward(NormBackward<T> const& args, device::Stream& stream) {
  norm_backward<T, true>(args, stream);
}

template <class T>
void rms_norm_forward(NormForward<T> const& args, device::Stream& stream) {
  detail::launch_rows(args.rows, detail::RmsNormForwardRow<T>{args}, stream);
}

template <class T>
void rms_norm_backward(NormBackward<T> const& args, device::Stream& stream) {
  norm_backward<T, false>(args, stream);
}

template void layer_norm_forward(NormForward<float> const&, device::Stream&);
template void layer_norm_forward(NormForward<bf16> const&, device::Stream&);
template void layer_norm_backward(NormBackward<float> const&, device::Stream&);
template void layer_norm_backward(NormBackward<bf16> const&, device::Stream&);
template void rms_norm_forward(NormForward<float> const&, device::Stream&);
template void rms_norm_forward(NormForward<bf16> const&, device::Stream&);
template void rms_norm_backward(NormBackward<float> const&, device::Stream&);
template void rms_norm_backward(NormBackward<bf16> const&, device::Stream&);

}  // namespace spillway::ops
