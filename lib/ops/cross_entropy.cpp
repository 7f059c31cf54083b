// Launch of the cross entropy on the CPU.
#include "lib/ops/cross_entropy.hpp"

#include "lib/core/dtype.hpp"
#include "lib/ops/detail/cross_entropy_functors.hpp"
#include "lib/ops/detail/launch.hpp"

namespace spillway::ops {

template <class T>
void cross_entropy(CrossEntropy<T> const& args, device::Stream& stream) {
  detail::launch_rows(args.rows, detail::CrossEntropyRow<T>{args}, stream);
}

template void cross_entropy(CrossEntropy<float> const&, device::Stream&);
template void cross_entropy(CrossEntropy<bf16> const&, device::Stream&);

}  // namespace spillway::ops
