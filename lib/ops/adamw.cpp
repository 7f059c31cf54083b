// Launches of AdamW and of the gradient norm's sum on the CPU.
#include "lib/ops/adamw.hpp"

#include <algorithm>
#include <array>

#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"
#include "lib/ops/detail/adamw_functors.hpp"
#include "lib/ops/detail/launch.hpp"
#include "lib/ops/detail/sum_of_squares_functor.hpp"

namespace spillway::ops {
namespace {

template <class Gradient>
void launch(AdamwState const& state, Gradient const* gradient, AdamwStep const& step,
            device::Stream& stream) {
  detail::AdamwFactors const factors(step);
  if (state.hi32 != nullptr)
    detail::launch_each(
        state.n, detail::AdamwWhole<Gradient>{state.hi32, state.m, state.v, gradient, factors},
        stream);
  else
    detail::launch_each(
        state.n,
        detail::AdamwSplit<Gradient>{state.hi, state.lo, state.m, state.v, gradient, factors},
        stream);
}

}  // namespace

void adamw(AdamwState const& state, AdamwStep const& step, device::Stream& stream) {
  bool const whole = state.hi32 != nullptr;
  bool const split = state.hi != nullptr && state.lo != nullptr;
  expect(whole != split, "AdamW gets the weight either whole (hi32) or split (hi and lo)");
  expect((state.grad32 != nullptr) != (state.grad16 != nullptr),
         "AdamW gets one gradient, fp32 or bf16");
  if (state.grad32 != nullptr)
    launch(state, state.grad32, step, stream);
  else
    launch(state, state.grad16, step, stream);
}

double sum_of_squares(std::int64_t n, float const* x, device::Stream& stream) {
  using Blocks = detail::SumOfSquaresBlock;
  // Blocks are summed a group at a time, because their partial sums are kept on the stack.
  constexpr std::int64_t kGroup = 512;
  std::int64_t const blocks = div_ceil(n, Blocks::kBlock);
  std::array<double, kGroup> partial;
  double total = 0;
  for (std::int64_t first = 0; first < blocks; first += kGroup) {
    std::int64_t const count = std::min(kGroup, blocks - first);
    detail::launch_rows(count, Blocks{n, x, first, partial.data()}, stream);
    for (std::int64_t i = 0; i < count; ++i) total += partial[static_cast<std::size_t>(i)];
  }
  return total;
}

}  // namespace spillway::ops
