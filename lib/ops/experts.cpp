// Launches of routing and of moving rows to experts on the CPU.
#include "lib/ops/experts.hpp"

#include <algorithm>

#include "lib/core/dtype.hpp"
#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"
#include "lib/ops/detail/expert_functors.hpp"
#include "lib/ops/detail/launch.hpp"

namespace spillway::ops {

void route(Route const& args, device::Stream& stream) {
  expect(args.k >= 1 && args.k <= args.experts, "a row has no more experts than there are");
  detail::launch_rows(args.rows, detail::RouteRow{args}, stream);
}

template <class T>
void route_backward(RouteBackward<T> const& args, device::Stream& stream) {
  detail::launch_rows(args.forward.rows, detail::RouteBackwardRow<T>{args}, stream);
}

void order_by_expert(ExpertOrder const& order) {
  std::int64_t const choices = order.rows * order.k;
  std::int64_t* const begin = order.begin;
  std::fill_n(begin, order.experts + 1, 0);
  for (std::int64_t choice = 0; choice < choices; ++choice) ++begin[order.chosen[choice] + 1];
  for (std::int64_t e = 0; e < order.experts; ++e)
    begin[e + 1] = begin[e] + round_up(begin[e + 1], kExpertRows);
  std::fill_n(order.choice_of, begin[order.experts], -1);
  // begin[e] runs through the slots of e, then goes back to the first.
  for (std::int64_t choice = 0; choice < choices; ++choice) {
    std::int64_t const slot = begin[order.chosen[choice]]++;
    order.slot_of[choice] = narrow<std::int32_t>(slot);
    order.choice_of[slot] = narrow<std::int32_t>(choice);
  }
  for (std::int64_t e = order.experts; e > 0; --e) begin[e] = round_up(begin[e - 1], kExpertRows);
  begin[0] = 0;
}

template <class T>
void gather_rows(ExpertOrder const& order, std::int64_t C, T const* x, T* y,
                 device::Stream& stream) {
  detail::launch_rows(order.begin[order.experts], detail::GatherRow<T>{order, C, x, y}, stream);
}

template <class T>
void combine_rows(CombineRows<T> const& args, device::Stream& stream) {
  detail::launch_rows(args.order.rows, detail::CombineRow<T>{args}, stream);
}

template <class T>
void weigh_rows(WeighRows<T> const& args, device::Stream& stream) {
  detail::launch_rows(args.order.begin[args.order.experts], detail::WeighRow<T>{args}, stream);
}

template void route_backward(RouteBackward<float> const&, device::Stream&);
template void route_backward(RouteBackward<bf16> const&, device::Stream&);
template void gather_rows(ExpertOrder const&, std::int64_t, float const*, float*, device::Stream&);
template void gather_rows(ExpertOrder const&, std::int64_t, bf16 const*, bf16*, device::Stream&);
template void combine_rows(CombineRows<float> const&, device::Stream&);
template void combine_rows(CombineRows<bf16> const&, device::Stream&);
template void weigh_rows(WeighRows<float> const&, device::Stream&);
template void weigh_rows(WeighRows<bf16> const&, device::Stream&);

}  // namespace spillway::ops
