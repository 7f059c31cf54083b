// Launches of the cross entropy on the CPU.
#include "lib/ops/cross_entropy.hpp"

#include "lib/core/dtype.hpp"
#include "lib/ops/detail/cross_entropy_functors.hpp"
#include "lib/ops/detail/launch.hpp"

namespace spillway::ops {

void cross_entropy_start(std::int64_t rows, SoftmaxState const& state, device::Stream& stream) {
  detail::launch_rows(rows, detail::StartSoftmaxRow{state}, stream);
}

void cross_entropy_observe(LogitsPart const& part, SoftmaxState const& state,
                           device::Stream& stream) {
  detail::launch_rows(part.rows, detail::ObserveRow{part, state}, stream);
}

void cross_entropy_losses(std::int64_t rows, std::int32_t const* targets, SoftmaxState const& state,
                          float* losses, device::Stream& stream) {
  detail::launch_rows(rows, detail::LossRow{targets, state, losses}, stream);
}

template <class T>
void cross_entropy_gradient(LogitsPart const& part, SoftmaxState const& state, float scale,
                            T* dlogits, device::Stream& stream) {
  detail::launch_rows(part.rows, detail::LogitsGradientRow<T>{part, state, scale, dlogits}, stream);
}

template void cross_entropy_gradient(LogitsPart const&, SoftmaxState const&, float, float*,
                                     device::Stream&);
template void cross_entropy_gradient(LogitsPart const&, SoftmaxState const&, float, bf16*,
                                     device::Stream&);

}  // namespace spillway::ops
