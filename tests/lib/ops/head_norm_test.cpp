// The norm over heads against double precision; backward against finite differences.
#include "lib/ops/head_norm.hpp"

#include "tests/lib/ops/ops_support.hpp"

namespace spillway::ops {
namespace {

using namespace testing_ops;  // NOLINT

constexpr std::size_t kGap = 3;  // elements between the heads of two rows that are not theirs

// Heads [rows, heads, D] in matrices with gaps, all of which hold values that must stay.
template <class T>
struct Case {
  std::size_t rows, heads, D, stride;
  std::vector<T> x, weight, y, dy, dx;
  std::vector<float> rstd, dweight;

  Case(std::size_t row_count, std::size_t head_count, std::size_t width)
      : rows(row_count),
        heads(head_count),
        D(width),
        stride(heads * D + kGap),
        x(random_values<T>(rows * stride, "x", 2.0f, 0.5f)),
        weight(random_values<T>(D, "weight", 0.5f, 1.0f)),
        y(random_values<T>(rows * stride, "y")),
        dy(random_values<T>(rows * stride, "dy")),
        dx(random_values<T>(rows * stride, "dx")),
        rstd(rows * heads),
        dweight(random_values<float>(D, "dweight")) {}

  void forward(device::Stream& stream) {
    head_norm_forward(HeadNormForward<T>{.rows = std::int64_t(rows),
                                         .heads = std::int64_t(heads),
                                         .head_dim = std::int64_t(D),
                                         .eps = 1e-3f,
                                         .x = x.data(),
                                         .x_stride = std::int64_t(stride),
                                         .weight = weight.data(),
                                         .y = y.data(),
                                         .y_stride = std::int64_t(stride),
                                         .rstd = rstd.data()},
                      stream);
  }
  void backward(device::Stream& stream) {
    head_norm_backward(HeadNormBackward<T>{.rows = std::int64_t(rows),
                                           .heads = std::int64_t(heads),
                                           .head_dim = std::int64_t(D),
                                           .x = x.data(),
                                           .x_stride = std::int64_t(stride),
                                           .weight = weight.data(),
                                           .rstd = rstd.data(),
                                           .dy = dy.data(),
                                           .dy_stride = std::int64_t(stride),
                                           .dx = dx.data(),
                                           .dweight = dweight.data()},
                       stream);
  }

  /// The heads of a matrix without the gaps.
  template <class Values>
  Values dense(Values const& matrix) const {
    Values heads_only;
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < heads * D; ++c) heads_only.push_back(matrix[r * stride + c]);
    return heads_only;
  }
  Doubles expected(Doubles const& at_x, Doubles const& at_weight) const {
    return reference::rms_norm(rows * heads, D, static_cast<double>(1e-3f), at_x, at_weight);
  }
  void expect_gaps(std::vector<T> const& matrix, char const* name) const {
    auto const before = random_values<T>(rows * stride, name);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = heads * D; c < stride; ++c)
        EXPECT_EQ(float(matrix[r * stride + c]), float(before[r * stride + c])) << name;
  }
};

constexpr std::size_t kShapes[][3] = {{1, 1, 4}, {3, 2, 17}, {5, 3, 80}, {2, 1, 130}};

template <class T>
class HeadNorm : public ::testing::Test {};
TYPED_TEST_SUITE(HeadNorm, FloatTypes);

TYPED_TEST(HeadNorm, forward_matches_double) {
  for (auto const& [rows, heads, D] : kShapes) {
    Case<TypeParam> c(rows, heads, D);
    c.forward(*make_stream());
    expect_close(c.dense(c.y), c.expected(widen(c.dense(c.x)), widen(c.weight)),
                 sizeof(TypeParam) == 2 ? 1.01 : 8);
    c.expect_gaps(c.y, "y");
  }
}

TYPED_TEST(HeadNorm, backward_matches_finite_differences) {
  for (auto const& [rows, heads, D] : kShapes) {
    Case<TypeParam> c(rows, heads, D);
    c.forward(*make_stream());
    Doubles const x = widen(c.dense(c.x)), weight = widen(c.weight), dy = widen(c.dense(c.dy));
    Doubles expected_weight = reference::numeric_gradient(
        weight, [&](Doubles const& at) { return reference::dot(dy, c.expected(x, at)); });
    for (std::size_t i = 0; i < D; ++i) expected_weight[i] += widen(c.dweight)[i];
    c.backward(*make_stream());
    expect_close(
        c.dense(c.dx),
        reference::numeric_gradient(
            x, [&](Doubles const& at) { return reference::dot(dy, c.expected(at, weight)); }),
        sizeof(TypeParam) == 2 ? 1.05 : 32, "dx");
    expect_close(c.dweight, expected_weight, 32, "dweight");
    c.expect_gaps(c.dx, "dx");
  }
}

TYPED_TEST(HeadNorm, results_do_not_depend_on_threads) {
  Case<TypeParam> one(49, 3, 70), many(49, 3, 70);
  one.forward(*make_stream(1));
  one.backward(*make_stream(1));
  many.forward(*make_stream(5));
  many.backward(*make_stream(5));
  EXPECT_TRUE(same_bits(one.y, many.y));
  EXPECT_TRUE(same_bits(one.dx, many.dx));
  EXPECT_TRUE(same_bits(one.dweight, many.dweight));
}

}  // namespace
}  // namespace spillway::ops
