// LayerNorm and RMSNorm against double precision; backward against finite differences.
#include "lib/ops/norm.hpp"

#include "tests/lib/ops/ops_support.hpp"

namespace spillway::ops {
namespace {

using namespace testing_ops;  // NOLINT

enum class Kind { layer, rms };

// One norm with all its buffers.
template <class T>
struct Case {
  Kind kind;
  std::size_t rows, C;
  std::vector<T> x, weight, bias, y, dy, dx;
  std::vector<float> mean, rstd, dweight, dbias;

  Case(Kind which, std::size_t row_count, std::size_t width, float scale = 2.0f, float shift = 0.5f)
      : kind(which),
        rows(row_count),
        C(width),
        x(random_values<T>(rows * C, "x", scale, shift)),
        weight(random_values<T>(C, "weight", 0.5f, 1.0f)),
        bias(random_values<T>(C, "bias")),
        y(rows * C),
        dy(random_values<T>(rows * C, "dy")),
        dx(random_values<T>(rows * C, "dx")),
        mean(rows),
        rstd(rows),
        dweight(random_values<float>(C, "dweight")),
        dbias(random_values<float>(C, "dbias")) {}

  void forward(device::Stream& stream) {
    NormForward<T> const args{.rows = static_cast<std::int64_t>(rows),
                              .C = static_cast<std::int64_t>(C),
                              .x = x.data(),
                              .weight = weight.data(),
                              .bias = kind == Kind::layer ? bias.data() : nullptr,
                              .y = y.data(),
                              .mean = kind == Kind::layer ? mean.data() : nullptr,
                              .rstd = rstd.data()};
    kind == Kind::layer ? layer_norm_forward(args, stream) : rms_norm_forward(args, stream);
  }

  void backward(device::Stream& stream, bool add_to_dx, bool over_dy = false) {
    NormBackward<T> const args{.rows = static_cast<std::int64_t>(rows),
                               .C = static_cast<std::int64_t>(C),
                               .x = x.data(),
                               .weight = weight.data(),
                               .mean = kind == Kind::layer ? mean.data() : nullptr,
                               .rstd = rstd.data(),
                               .dy = dy.data(),
                               .dx = over_dy ? dy.data() : dx.data(),
                               .add_to_dx = add_to_dx,
                               .dweight = dweight.data(),
                               .dbias = kind == Kind::layer ? dbias.data() : nullptr};
    kind == Kind::layer ? layer_norm_backward(args, stream) : rms_norm_backward(args, stream);
  }

  Doubles expected(Doubles const& at_x, Doubles const& at_weight, Doubles const& at_bias) const {
    double const eps = static_cast<double>(1e-5f);
    return kind == Kind::layer ? reference::layer_norm(rows, C, eps, at_x, at_weight, at_bias)
                               : reference::rms_norm(rows, C, eps, at_x, at_weight);
  }
};

constexpr std::size_t kShapes[][2] = {{1, 1}, {1, 2}, {2, 17}, {3, 49}, {5, 80}, {4, 131}};

template <class T>
class Norm : public ::testing::Test {};
TYPED_TEST_SUITE(Norm, FloatTypes);

TYPED_TEST(Norm, forward_matches_double) {
  for (Kind const kind : {Kind::layer, Kind::rms})
    for (auto const& [rows, C] : kShapes) {
      Case<TypeParam> c(kind, rows, C);
      c.forward(*make_stream());
      expect_close(c.y, c.expected(widen(c.x), widen(c.weight), widen(c.bias)),
                   sizeof(TypeParam) == 2 ? 1.01 : 8);
    }
}

TYPED_TEST(Norm, layer_norm_keeps_its_accuracy_where_the_mean_is_large) {
  Case<TypeParam> c(Kind::layer, 3, 768, 1.0f, 100.0f);
  c.forward(*make_stream());
  // The mean itself is rounded to fp32: 100 * 2^-24 of a deviation of 1.
  expect_close(c.y, c.expected(widen(c.x), widen(c.weight), widen(c.bias)),
               sizeof(TypeParam) == 2 ? 1.05 : 200);
}

TYPED_TEST(Norm, backward_matches_finite_differences) {
  for (Kind const kind : {Kind::layer, Kind::rms})
    for (auto const& [rows, C] : kShapes) {
      if (C < 3) continue;  // the output hardly depends on x there
      Case<TypeParam> c(kind, rows, C);
      c.forward(*make_stream());
      Doubles const x = widen(c.x), weight = widen(c.weight), bias = widen(c.bias);
      Doubles const dy = widen(c.dy), dweight = widen(c.dweight), dbias = widen(c.dbias);
      c.backward(*make_stream(), false);
      auto loss = [&](Doubles const& at_x, Doubles const& at_weight, Doubles const& at_bias) {
        return reference::dot(dy, c.expected(at_x, at_weight, at_bias));
      };
      expect_close(
          c.dx,
          reference::numeric_gradient(x, [&](Doubles const& at) { return loss(at, weight, bias); }),
          sizeof(TypeParam) == 2 ? 1.05 : 32, "dx");
      Doubles expected_weight =
          reference::numeric_gradient(weight, [&](Doubles const& at) { return loss(x, at, bias); });
      for (std::size_t i = 0; i < C; ++i) expected_weight[i] += dweight[i];
      expect_close(c.dweight, expected_weight, 32, "dweight");
      if (kind == Kind::rms) continue;
      Doubles expected_bias =
          reference::numeric_gradient(bias, [&](Doubles const& at) { return loss(x, weight, at); });
      for (std::size_t i = 0; i < C; ++i) expected_bias[i] += dbias[i];
      expect_close(c.dbias, expected_bias, 32, "dbias");
    }
}

TYPED_TEST(Norm, backward_adds_to_dx_where_asked_and_may_overwrite_dy) {
  for (Kind const kind : {Kind::layer, Kind::rms}) {
    Case<TypeParam> set(kind, 5, 80), added(kind, 5, 80), over(kind, 5, 80);
    for (auto* c : {&set, &added, &over}) c->forward(*make_stream());
    Doubles expected = widen(added.dx);
    set.backward(*make_stream(), false);
    added.backward(*make_stream(), true);
    over.backward(*make_stream(), false, true);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += widen(set.dx)[i];
    expect_close(added.dx, expected, sizeof(TypeParam) == 2 ? 3 : 8);
    EXPECT_TRUE(same_bits(over.dy, set.dx));
    EXPECT_TRUE(same_bits(over.dweight, set.dweight));
  }
}

TYPED_TEST(Norm, results_do_not_depend_on_threads) {
  for (Kind const kind : {Kind::layer, Kind::rms}) {
    Case<TypeParam> one(kind, 49, 770), many(kind, 49, 770);
    one.forward(*make_stream(1));
    one.backward(*make_stream(1), true);
    many.forward(*make_stream(5));
    many.backward(*make_stream(5), true);
    EXPECT_TRUE(same_bits(one.y, many.y));
    EXPECT_TRUE(same_bits(one.dx, many.dx));
    EXPECT_TRUE(same_bits(one.dweight, many.dweight));
    EXPECT_TRUE(same_bits(one.dbias, many.dbias));
  }
}

}  // namespace
}  // namespace spillway::ops
