// Element-wise operations against double precision; backward against finite differences.
#include "lib/ops/pointwise.hpp"

#include "tests/lib/ops/ops_support.hpp"

namespace spillway::ops {
namespace {

using namespace testing_ops;  // NOLINT

template <class T>
class Pointwise : public ::testing::Test {};
TYPED_TEST_SUITE(Pointwise, FloatTypes);

// Odd, one, over a launch block, over two threads.
constexpr std::size_t kSizes[] = {1, 2, 17, 49, 4097, 10007};

double gelu_slope(double x) {
  return reference::numeric_gradient({x},
                                     [](Doubles const& v) { return reference::gelu(v[0]); })[0];
}

TYPED_TEST(Pointwise, gelu_matches_tanh_form_in_double) {
  auto const stream = make_stream();
  for (std::size_t const n : kSizes) {
    auto const x = random_values<TypeParam>(n, "x", 3.0f);
    std::vector<TypeParam> y(n);
    gelu_forward(static_cast<std::int64_t>(n), x.data(), y.data(), *stream);
    Doubles expected = widen(x);
    for (double& v : expected) v = reference::gelu(v);
    expect_close(y, expected, sizeof(TypeParam) == 2 ? 1.01 : 8);
  }
}

TYPED_TEST(Pointwise, gelu_of_large_magnitudes_is_the_input_or_zero) {
  auto const stream = make_stream();
  std::vector<TypeParam> const x{TypeParam(100.0f), TypeParam(-100.0f), TypeParam(1e15f),
                                 TypeParam(-1e15f)};
  std::vector<TypeParam> y(4), dx(4), dy(4, TypeParam(1.0f));
  gelu_forward(4, x.data(), y.data(), *stream);
  gelu_backward(4, x.data(), dy.data(), dx.data(), *stream);
  expect_close(y,
               {static_cast<double>(static_cast<float>(x[0])), 0.0,
                static_cast<double>(static_cast<float>(x[2])), 0.0},
               0.0);
  expect_close(dx, {1.0, 0.0, 1.0, 0.0}, 0.0);
}

TYPED_TEST(Pointwise, gelu_backward_matches_finite_differences_also_in_place) {
  auto const stream = make_stream();
  for (std::size_t const n : kSizes) {
    auto const x = random_values<TypeParam>(n, "x", 3.0f);
    auto const dy = random_values<TypeParam>(n, "dy");
    std::vector<TypeParam> dx(n);
    gelu_backward(static_cast<std::int64_t>(n), x.data(), dy.data(), dx.data(), *stream);
    Doubles expected = widen(dy);
    Doubles const at = widen(x);
    for (std::size_t i = 0; i < n; ++i) expected[i] *= gelu_slope(at[i]);
    expect_close(dx, expected, sizeof(TypeParam) == 2 ? 1.01 : 16);
    auto in_place = dy;
    gelu_backward(static_cast<std::int64_t>(n), x.data(), in_place.data(), in_place.data(),
                  *stream);
    EXPECT_TRUE(same_bits(in_place, dx));
  }
}

TYPED_TEST(Pointwise, swiglu_matches_double) {
  auto const stream = make_stream();
  for (std::size_t const n : kSizes) {
    auto const gate = random_values<TypeParam>(n, "gate", 3.0f);
    auto const up = random_values<TypeParam>(n, "up");
    std::vector<TypeParam> y(n);
    swiglu_forward(static_cast<std::int64_t>(n), gate.data(), up.data(), y.data(), *stream);
    Doubles expected = widen(up);
    Doubles const g = widen(gate);
    for (std::size_t i = 0; i < n; ++i) expected[i] *= reference::silu(g[i]);
    expect_close(y, expected, sizeof(TypeParam) == 2 ? 1.01 : 8);
  }
}

TYPED_TEST(Pointwise, swiglu_backward_matches_finite_differences_also_over_its_input) {
  auto const stream = make_stream();
  std::size_t const n = 5003;
  auto const gate = random_values<TypeParam>(n, "gate", 3.0f);
  auto const up = random_values<TypeParam>(n, "up");
  auto const dy = random_values<TypeParam>(n, "dy");
  std::vector<TypeParam> dgate(n), dup(n);
  swiglu_backward(n, gate.data(), up.data(), dy.data(), dgate.data(), dup.data(), *stream);
  Doubles expected_gate(n), expected_up(n);
  Doubles const g = widen(gate), u = widen(up), d = widen(dy);
  for (std::size_t i = 0; i < n; ++i) {
    Doubles const gradient = reference::numeric_gradient(
        {g[i], u[i]}, [](Doubles const& x) { return reference::silu(x[0]) * x[1]; });
    expected_gate[i] = d[i] * gradient[0];
    expected_up[i] = d[i] * gradient[1];
  }
  expect_close(dgate, expected_gate, sizeof(TypeParam) == 2 ? 1.01 : 16);
  expect_close(dup, expected_up, sizeof(TypeParam) == 2 ? 1.01 : 16);
  auto over_gate = gate;
  auto over_up = up;
  swiglu_backward(n, over_gate.data(), over_up.data(), dy.data(), over_gate.data(), over_up.data(),
                  *stream);
  EXPECT_TRUE(same_bits(over_gate, dgate));
  EXPECT_TRUE(same_bits(over_up, dup));
}

TYPED_TEST(Pointwise, add_rounds_the_sum_once_also_in_place) {
  auto const stream = make_stream();
  for (std::size_t const n : kSizes) {
    auto a = random_values<TypeParam>(n, "a");
    auto const b = random_values<TypeParam>(n, "b", 100.0f);
    std::vector<TypeParam> expected(n);
    for (std::size_t i = 0; i < n; ++i)
      expected[i] = TypeParam(static_cast<float>(a[i]) + static_cast<float>(b[i]));
    add(static_cast<std::int64_t>(n), a.data(), b.data(), a.data(), *stream);
    EXPECT_TRUE(same_bits(a, expected));
  }
}

TYPED_TEST(Pointwise, bias_backward_adds_column_sums_to_what_is_there) {
  auto const stream = make_stream();
  for (std::size_t const C : {1, 17, 64, 200}) {
    std::size_t const rows = 301;
    auto const dy = random_values<TypeParam>(rows * C, "dy");
    auto dbias = random_values<float>(C, "dbias");
    Doubles expected = widen(dbias);
    Doubles const d = widen(dy);
    for (std::size_t i = 0; i < d.size(); ++i) expected[i % C] += d[i];
    bias_backward(rows, static_cast<std::int64_t>(C), dy.data(), dbias.data(), *stream);
    expect_close(dbias, expected, 4);
  }
}

TYPED_TEST(Pointwise, results_do_not_depend_on_threads) {
  std::size_t const n = 100003;
  auto const x = random_values<TypeParam>(n, "x");
  std::vector<TypeParam> one(n), many(n);
  std::vector<float> bias_one(83), bias_many(83);
  gelu_forward(n, x.data(), one.data(), *make_stream(1));
  gelu_forward(n, x.data(), many.data(), *make_stream(5));
  bias_backward(1204, 83, x.data(), bias_one.data(), *make_stream(1));
  bias_backward(1204, 83, x.data(), bias_many.data(), *make_stream(5));
  EXPECT_TRUE(same_bits(one, many));
  EXPECT_TRUE(same_bits(bias_one, bias_many));
}

}  // namespace
}  // namespace spillway::ops
