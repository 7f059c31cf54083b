// Element-wise and row-wise operations give the same bits on every instruction set of this
// processor.
#include "lib/ops/detail/isa.hpp"

#include <gtest/gtest.h>

#include "lib/ops/detail/adamw_functors.hpp"
#include "lib/ops/detail/cross_entropy_functors.hpp"
#include "lib/ops/detail/launch.hpp"
#include "lib/ops/detail/norm_functors.hpp"
#include "lib/ops/detail/pointwise_functors.hpp"
#include "lib/ops/detail/sum_of_squares_functor.hpp"
#include "tests/lib/ops/ops_support.hpp"

namespace spillway::ops::detail {
namespace {

using testing_ops::make_stream;
using testing_ops::random_values;
using testing_ops::same_bits;

std::vector<Isa> sets_of_this_processor() {
  std::vector<Isa> sets{Isa::baseline};
  if (widest_isa() != Isa::baseline) sets.push_back(Isa::avx2);
  if (widest_isa() == Isa::avx512) sets.push_back(Isa::avx512);
  return sets;
}

// run(isa) returns a vector; all must be equal.
template <class Run>
void expect_same_on_all_sets(Run const& run) {
  auto const first = run(Isa::baseline);
  for (Isa const isa : sets_of_this_processor())
    EXPECT_TRUE(same_bits(first, run(isa))) << "on " << name_of(isa);
}

constexpr std::size_t kCount = 10007;

TEST(Isa, adamw_has_the_same_bits_on_every_instruction_set) {
  AdamwFactors const factors(
      {.lr = 1e-3f, .weight_decay = 0.1f, .bias1 = 0.19f, .bias2 = 0.0975f, .grad_scale = 0.37f});
  auto const gradient = random_values<float>(kCount, "gradient");
  expect_same_on_all_sets([&](Isa isa) {
    auto const stream = make_stream();
    auto weight = random_values<float>(kCount, "weight");
    auto m = random_values<float>(kCount, "m", 0.1f);
    std::vector<float> v(kCount, 0.01f);
    launch_each(kCount,
                AdamwWhole<float>{weight.data(), m.data(), v.data(), gradient.data(), factors},
                *stream, isa);
    weight.insert(weight.end(), m.begin(), m.end());
    weight.insert(weight.end(), v.begin(), v.end());
    return weight;
  });
}

TEST(Isa, split_adamw_has_the_same_bits_on_every_instruction_set) {
  AdamwFactors const factors({.lr = 1e-3f, .weight_decay = 0.1f, .bias1 = 0.1f, .bias2 = 0.05f});
  auto const gradient = random_values<bf16>(kCount, "gradient");
  expect_same_on_all_sets([&](Isa isa) {
    auto const stream = make_stream();
    auto hi = random_values<bf16>(kCount, "weight");
    std::vector<std::int16_t> lo(kCount, 77);
    std::vector<float> m(kCount), v(kCount);
    launch_each(
        kCount,
        AdamwSplit<bf16>{hi.data(), lo.data(), m.data(), v.data(), gradient.data(), factors},
        *stream, isa);
    for (std::size_t i = 0; i < kCount; ++i) m[i] += join_master(hi[i], lo[i]);
    return m;
  });
}

TEST(Isa, gelu_and_norm_and_cross_entropy_have_the_same_bits_on_every_instruction_set) {
  auto const x = random_values<float>(kCount, "x", 3.0f);
  auto const weight = random_values<float>(kCount, "weight");
  expect_same_on_all_sets([&](Isa isa) {
    auto const stream = make_stream();
    std::vector<float> y(kCount);
    launch_each(kCount, GeluForward<float>{x.data(), y.data()}, *stream, isa);
    return y;
  });
  expect_same_on_all_sets([&](Isa isa) {
    auto const stream = make_stream();
    std::vector<float> y(kCount), rstd(1), mean(1);
    NormForward<float> const args{.rows = 1,
                                  .C = kCount,
                                  .x = x.data(),
                                  .weight = weight.data(),
                                  .bias = x.data(),
                                  .y = y.data(),
                                  .mean = mean.data(),
                                  .rstd = rstd.data()};
    launch_rows(1, LayerNormForwardRow<float>{args}, *stream, isa);
    return y;
  });
  expect_same_on_all_sets([&](Isa isa) {
    auto const stream = make_stream();
    std::int32_t const target = 5;
    std::vector<float> dlogits(kCount), maximum(1), target_logit(1);
    std::vector<double> others(1);
    SoftmaxState const state{maximum.data(), others.data(), target_logit.data()};
    LogitsPart const part{
        .rows = 1, .columns = kCount, .logits = x.data(), .stride = kCount, .targets = &target};
    launch_rows(1, StartSoftmaxRow{state}, *stream, isa);
    launch_rows(1, ObserveRow{part, state}, *stream, isa);
    launch_rows(1, LogitsGradientRow<float>{part, state, 1.0f, dlogits.data()}, *stream, isa);
    dlogits.push_back(maximum[0]);
    dlogits.push_back(static_cast<float>(others[0]));
    return dlogits;
  });
}

TEST(Isa, sum_of_squares_has_the_same_bits_on_every_instruction_set) {
  auto const x = random_values<float>(kCount, "x", 3.0f);
  expect_same_on_all_sets([&](Isa isa) {
    auto const stream = make_stream();
    std::vector<double> partial(3);
    launch_rows(3, SumOfSquaresBlock{kCount, x.data(), 0, partial.data()}, *stream, isa);
    return partial;
  });
}

}  // namespace
}  // namespace spillway::ops::detail
