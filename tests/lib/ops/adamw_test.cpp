// AdamW against double precision, and the properties that let a shard be cut anywhere and its
// weights be split.
#include "lib/ops/adamw.hpp"

#include <limits>

#include "lib/core/error.hpp"
#include "tests/lib/ops/ops_support.hpp"

namespace spillway::ops {
namespace {

using namespace testing_ops;  // NOLINT

constexpr float kLr = 3e-3f, kBeta1 = 0.9f, kBeta2 = 0.95f, kEps = 1e-8f, kDecay = 0.1f;
constexpr float kClip = 0.5f;

AdamwStep step_number(int t) {
  return {.lr = kLr,
          .beta1 = kBeta1,
          .beta2 = kBeta2,
          .eps = kEps,
          .weight_decay = kDecay,
          .bias1 = static_cast<float>(1 - std::pow(static_cast<double>(kBeta1), t)),
          .bias2 = static_cast<float>(1 - std::pow(static_cast<double>(kBeta2), t)),
          .grad_scale = kClip};
}

template <class Gradient>
std::vector<Gradient> gradient_of(std::size_t n, int t) {
  return random_values<Gradient>(n, ("gradient" + std::to_string(t)).c_str(), 0.1f);
}

void set_gradient(AdamwState& state, std::vector<float> const& gradient) {
  state.grad32 = gradient.data();
}
void set_gradient(AdamwState& state, std::vector<bf16> const& gradient) {
  state.grad16 = gradient.data();
}

Doubles reference_weights(Doubles const& start, int steps, bool bf16_gradient) {
  std::vector<reference::Adamw> elements(start.size());
  for (std::size_t i = 0; i < start.size(); ++i) elements[i].weight = start[i];
  for (int t = 1; t <= steps; ++t) {
    Doubles const gradient = bf16_gradient ? widen(gradient_of<bf16>(start.size(), t))
                                           : widen(gradient_of<float>(start.size(), t));
    for (std::size_t i = 0; i < start.size(); ++i)
      elements[i].step(gradient[i] * static_cast<double>(kClip), static_cast<double>(kLr),
                       static_cast<double>(kBeta1), static_cast<double>(kBeta2),
                       static_cast<double>(kEps), static_cast<double>(kDecay), t);
  }
  Doubles weights;
  for (auto const& element : elements) weights.push_back(element.weight);
  return weights;
}

template <class T>
class Adamw : public ::testing::Test {};
TYPED_TEST_SUITE(Adamw, FloatTypes);  // of the gradient

TYPED_TEST(Adamw, whole_weights_match_double_over_ten_steps) {
  std::size_t const n = 9001;
  auto weight = random_values<float>(n, "weight");
  Doubles const expected = reference_weights(widen(weight), 10, sizeof(TypeParam) == 2);
  std::vector<float> m(n), v(n);
  for (int t = 1; t <= 10; ++t) {
    auto const gradient = gradient_of<TypeParam>(n, t);
    AdamwState state{
        .n = static_cast<std::int64_t>(n), .hi32 = weight.data(), .m = m.data(), .v = v.data()};
    set_gradient(state, gradient);
    adamw(state, step_number(t), *make_stream());
  }
  expect_close(weight, expected, 12);
}

TYPED_TEST(Adamw, split_weights_have_the_bits_of_whole_ones_over_ten_steps) {
  std::size_t const n = 9001;
  auto weight = random_values<float>(n, "weight");
  std::vector<bf16> hi(n);
  std::vector<std::int16_t> lo(n);
  for (std::size_t i = 0; i < n; ++i) split_master(weight[i], hi[i], lo[i]);
  std::vector<float> m(n), v(n), split_m(n), split_v(n);
  for (int t = 1; t <= 10; ++t) {
    auto const gradient = gradient_of<TypeParam>(n, t);
    AdamwState whole{
        .n = static_cast<std::int64_t>(n), .hi32 = weight.data(), .m = m.data(), .v = v.data()};
    AdamwState split{.n = static_cast<std::int64_t>(n),
                     .hi = hi.data(),
                     .lo = lo.data(),
                     .m = split_m.data(),
                     .v = split_v.data()};
    set_gradient(whole, gradient);
    set_gradient(split, gradient);
    adamw(whole, step_number(t), *make_stream());
    adamw(split, step_number(t), *make_stream());
  }
  std::vector<float> joined(n);
  for (std::size_t i = 0; i < n; ++i) joined[i] = join_master(hi[i], lo[i]);
  EXPECT_TRUE(same_bits(joined, weight));
  EXPECT_TRUE(same_bits(split_m, m));
  EXPECT_TRUE(same_bits(split_v, v));
}

TYPED_TEST(Adamw, bits_do_not_depend_on_threads_nor_on_how_a_shard_is_cut) {
  std::size_t const n = 20011;
  auto const gradient = gradient_of<TypeParam>(n, 1);
  auto const run = [&](std::size_t piece, int threads) {
    auto weight = random_values<float>(n, "weight");
    auto m = random_values<float>(n, "m", 0.01f);
    std::vector<float> v(n, 1e-4f);
    auto const stream = make_stream(threads);
    for (std::size_t begin = 0; begin < n; begin += piece) {
      AdamwState state{.n = static_cast<std::int64_t>(std::min(piece, n - begin)),
                       .hi32 = weight.data() + begin,
                       .m = m.data() + begin,
                       .v = v.data() + begin};
      set_gradient(state, gradient);
      if (state.grad32 != nullptr) state.grad32 += begin;
      if (state.grad16 != nullptr) state.grad16 += begin;
      adamw(state, step_number(3), *stream);
    }
    weight.insert(weight.end(), m.begin(), m.end());
    weight.insert(weight.end(), v.begin(), v.end());
    return weight;
  };
  auto const whole = run(n, 1);
  EXPECT_TRUE(same_bits(whole, run(n, 5)));
  for (std::size_t const piece : {1u, 3u, 7u, 1000u, 4096u, 5001u})
    EXPECT_TRUE(same_bits(whole, run(piece, 2))) << piece;
}

TEST(AdamwState, a_small_rate_still_moves_every_split_master_weight) {
  std::size_t const n = 4099;
  std::vector<bf16> hi(n, bf16(1.0f));
  std::vector<std::int16_t> lo(n, 0);
  std::vector<float> m(n), v(n);
  auto const gradient = random_values<float>(n, "gradient");
  AdamwStep step = step_number(1);
  step.lr = 1e-6f;
  adamw({.n = static_cast<std::int64_t>(n),
         .hi = hi.data(),
         .lo = lo.data(),
         .m = m.data(),
         .v = v.data(),
         .grad32 = gradient.data()},
        step, *make_stream());
  for (std::size_t i = 0; i < n; ++i) ASSERT_NE(join_master(hi[i], lo[i]), 1.0f) << i;
}

TEST(AdamwState, refuses_weights_that_are_neither_whole_nor_split) {
  float x = 0;
  bf16 hi{};
  auto const stream = make_stream();
  EXPECT_THROW(adamw({.n = 1, .hi = &hi, .m = &x, .v = &x, .grad32 = &x}, {}, *stream), Error);
  EXPECT_THROW(adamw({.n = 1, .hi32 = &x, .m = &x, .v = &x}, {}, *stream), Error);
}

TEST(SplitMaster, joins_what_it_split_for_every_kind_of_number) {
  // Every sign and exponent with mantissas around all edges of rounding, among them all ties.
  for (std::uint32_t upper = 0; upper < 0x10000u; ++upper)
    for (std::uint32_t const lower :
         {0x0u, 0x1u, 0x1234u, 0x7ffeu, 0x7fffu, 0x8000u, 0x8001u, 0xabcdu, 0xfffeu, 0xffffu}) {
      std::uint32_t const bits = (upper << 16) | lower;
      float const master = std::bit_cast<float>(bits);
      bf16 hi;
      std::int16_t lo;
      split_master(master, hi, lo);
      if (std::isnan(master)) {
        ASSERT_TRUE(std::isnan(static_cast<float>(hi))) << bits;
        ASSERT_TRUE(std::isnan(join_master(hi, lo))) << bits;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(join_master(hi, lo)), bits);
      }
    }
}

TEST(SplitMaster, round_trips_every_lower_half_of_a_few_numbers) {
  for (float const start : {1.0f, -1.5f, 3.14159f, 1e-40f, 0.0f, -0.0f, 3.3e38f, 1.17549435e-38f})
    for (std::uint32_t lower = 0; lower < 0x10000u; ++lower) {
      std::uint32_t const bits = (std::bit_cast<std::uint32_t>(start) & 0xffff0000u) | lower;
      bf16 hi;
      std::int16_t lo;
      split_master(std::bit_cast<float>(bits), hi, lo);
      ASSERT_EQ(std::bit_cast<std::uint32_t>(join_master(hi, lo)), bits);
    }
}

TEST(SplitMaster, upper_part_is_a_nearest_bf16) {
  for (std::uint32_t bits = 0; bits < 0x7f7f0000u; bits += 12347u) {
    float const master = std::bit_cast<float>(bits);
    bf16 hi;
    std::int16_t lo;
    split_master(master, hi, lo);
    double const error = std::abs(static_cast<double>(static_cast<float>(hi)) - master);
    double const nearest = std::abs(static_cast<double>(static_cast<float>(bf16(master))) - master);
    ASSERT_EQ(error, nearest) << bits;
    if ((bits & 0xffffu) != 0x8000u) {
      ASSERT_EQ(hi.bits, bf16(master).bits) << bits;
    }
  }
}

TEST(SplitMaster, a_bf16_with_nothing_below_it_is_itself) {
  for (std::uint32_t upper = 0; upper < 0x10000u; ++upper) {
    bf16 hi{};
    hi.bits = static_cast<std::uint16_t>(upper);
    float const master = join_master(hi, 0);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(master), upper << 16);
  }
}

TEST(SumOfSquares, matches_double_for_any_length_and_any_threads) {
  for (std::size_t const n : {0u, 1u, 7u, 8u, 4095u, 4096u, 4097u, 2200000u}) {
    auto const x = random_values<float>(n, "x", 1e-3f);
    double expected = 0;
    for (double const v : widen(x)) expected += v * v;
    double const one = sum_of_squares(static_cast<std::int64_t>(n), x.data(), *make_stream(1));
    double const many = sum_of_squares(static_cast<std::int64_t>(n), x.data(), *make_stream(5));
    EXPECT_NEAR(one, expected, 1e-12 * expected) << n;
    EXPECT_EQ(one, many) << n;
  }
}

TEST(SumOfSquares, neither_overflows_nor_hides_what_is_not_finite) {
  std::vector<float> x(5000, 1e30f);
  EXPECT_NEAR(sum_of_squares(5000, x.data(), *make_stream()) / 5e63, 1.0, 1e-6);
  x[4999] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(sum_of_squares(5000, x.data(), *make_stream())));
  x[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(sum_of_squares(5000, x.data(), *make_stream())));
}

}  // namespace
}  // namespace spillway::ops
