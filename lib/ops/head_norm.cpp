// Launches of the norm over heads on the CPU.
#include "lib/ops/head_norm.hpp"

#include "lib/core/dtype.hpp"
#include "lib/core/numeric.hpp"
#include "lib/ops/detail/head_norm_functors.hpp"
#include "lib/ops/detail/launch.hpp"

namespace spillway::ops {

template <class T>
void head_norm_forward(HeadNormForward<T> const& args, device::Stream& stream) {
  detail::launch_rows(args.rows, detail::HeadNormForwardRow<T>{args}, stream);
}

template <class T>
void head_norm_backward(HeadNormBackward<T> const& args, device::Stream& stream) {
  detail::launch_rows(div_ceil(args.head_dim, detail::kColumnChunk),
                      detail::HeadNormBackwardWeights<T>{args}, stream);
  detail::launch_rows(args.rows, detail::HeadNormBackwardRow<T>{args}, stream);
}

template void head_norm_forward(HeadNormForward<float> const&, device::Stream&);
template void head_norm_forward(HeadNormForward<bf16> const&, device::Stream&);
template void head_norm_backward(HeadNormBackward<float> const&, device::Stream&);
template void head_norm_backward(HeadNormBackward<bf16> const&, device::Stream&);

}  // namespace spillway::ops
