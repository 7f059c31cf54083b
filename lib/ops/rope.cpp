// Launch of the rotary positions on the CPU.
#include "lib/ops/rope.hpp"

#include "lib/core/dtype.hpp"
#include "lib/ops/detail/launch.hpp"
#include "lib/ops/detail/rope_functors.hpp"

namespace spillway::ops {

template <class T>
void rope(Rope<T> const& args, Turn turn, device::Stream& stream) {
  float const direction = turn == Turn::forward ? 1.0f : -1.0f;
  detail::launch_rows(args.B * args.T_, detail::RopeRow<T>{args, direction}, stream);
}

template void rope(Rope<float> const&, Turn, device::Stream&);
template void rope(Rope<bf16> const&, Turn, device::Stream&);

}  // namespace spillway::ops
