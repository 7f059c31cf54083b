// Rotary positions against rotation by angles worked out in double.
#include "lib/ops/rope.hpp"

#include "tests/lib/ops/ops_support.hpp"

namespace spillway::ops {
namespace {

using namespace testing_ops;  // NOLINT

constexpr double kBase = 10000;

struct Tables {
  std::vector<float> cosine, sine;
  Tables(std::size_t T, std::size_t head_dim) {
    for (std::size_t t = 0; t < T; ++t)
      for (std::size_t i = 0; i < head_dim / 2; ++i) {
        double const angle =
            static_cast<double>(t) *
            std::pow(kBase, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
        cosine.push_back(static_cast<float>(std::cos(angle)));
        sine.push_back(static_cast<float>(std::sin(angle)));
      }
  }
};

template <class T>
class RopeTest : public ::testing::Test {};
TYPED_TEST_SUITE(RopeTest, FloatTypes);

TYPED_TEST(RopeTest, rotates_the_halves_of_each_head_by_position_and_nothing_else) {
  for (std::size_t const T : {1, 2, 17, 501})
    for (std::size_t const head_dim : {16, 32, 64, 80}) {
      std::size_t const B = 2, heads = 3, stride = heads * head_dim + 7;
      Tables const tables(T, head_dim);
      auto x = random_values<TypeParam>(B * T * stride, "x");
      Doubles expected = widen(x);
      for (std::size_t row = 0; row < B * T; ++row)
        for (std::size_t head = 0; head < heads; ++head) {
          auto const start =
              expected.begin() + static_cast<std::ptrdiff_t>(row * stride + head * head_dim);
          Doubles const turned =
              reference::rope(Doubles(start, start + static_cast<std::ptrdiff_t>(head_dim)),
                              static_cast<double>(row % T), kBase);
          std::copy(turned.begin(), turned.end(), start);
        }
      Rope<TypeParam> const args{.B = static_cast<std::int64_t>(B),
                                 .T_ = static_cast<std::int64_t>(T),
                                 .heads = static_cast<std::int64_t>(heads),
                                 .head_dim = static_cast<std::int64_t>(head_dim),
                                 .x = x.data(),
                                 .stride = static_cast<std::int64_t>(stride),
                                 .cosine = tables.cosine.data(),
                                 .sine = tables.sine.data()};
      rope(args, Turn::forward, *make_stream());
      expect_close(x, expected, sizeof(TypeParam) == 2 ? 1.01 : 6);
    }
}

TYPED_TEST(RopeTest, backward_undoes_forward) {
  std::size_t const T = 49, head_dim = 64;
  Tables const tables(T, head_dim);
  auto x = random_values<TypeParam>(T * head_dim, "x");
  Doubles const before = widen(x);
  Rope<TypeParam> const args{.B = 1,
                             .T_ = static_cast<std::int64_t>(T),
                             .heads = 1,
                             .head_dim = static_cast<std::int64_t>(head_dim),
                             .x = x.data(),
                             .stride = static_cast<std::int64_t>(head_dim),
                             .cosine = tables.cosine.data(),
                             .sine = tables.sine.data()};
  rope(args, Turn::forward, *make_stream());
  EXPECT_FALSE(before == widen(x));
  rope(args, Turn::backward, *make_stream());
  expect_close(x, before, 4);
}

}  // namespace
}  // namespace spillway::ops
