// Cross entropy and its gradient against double precision, with rows without target and huge
// logits.
#include "lib/ops/cross_entropy.hpp"

#include <limits>

#include "tests/lib/ops/ops_support.hpp"

namespace spillway::ops {
namespace {

using namespace testing_ops;  // NOLINT

template <class T>
struct Case {
  std::size_t rows, V;
  std::vector<float> logits;
  std::vector<std::int32_t> targets;
  std::vector<float> losses;
  std::vector<T> dlogits;
  float scale = 1;

  Case(std::size_t row_count, std::size_t vocabulary, float spread)
      : rows(row_count),
        V(vocabulary),
        logits(random_values<float>(rows * V, "logits", spread)),
        losses(rows, -1.0f),
        dlogits(rows * V, T(7.0f)) {
    for (std::size_t r = 0; r < rows; ++r)
      targets.push_back(static_cast<std::int32_t>((r * 7 + V / 2) % V));
  }
  /// In `parts` even parts of the vocabulary.
  void run(device::Stream& stream, std::size_t parts = 3) {
    std::vector<float> maximum(rows), target(rows);
    std::vector<double> others(rows);
    SoftmaxState const state{maximum.data(), others.data(), target.data()};
    auto const count = static_cast<std::int64_t>(rows);
    std::size_t const width = (V + parts - 1) / parts;
    cross_entropy_start(count, state, stream);
    for (std::size_t first = 0; first < V; first += width)
      cross_entropy_observe(part(first, width), state, stream);
    cross_entropy_losses(count, targets.data(), state, losses.data(), stream);
    for (std::size_t first = 0; first < V; first += width)
      cross_entropy_gradient(part(first, width), state, scale, dlogits.data() + first, stream);
  }
  LogitsPart part(std::size_t first, std::size_t width) const {
    return {.rows = static_cast<std::int64_t>(rows),
            .columns = static_cast<std::int64_t>(std::min(width, V - first)),
            .first = static_cast<std::int64_t>(first),
            .logits = logits.data() + first,
            .stride = static_cast<std::int64_t>(V),
            .targets = targets.data()};
  }
  Doubles row(std::size_t r) const {
    Doubles const wide = widen(logits);
    return Doubles(wide.begin() + static_cast<std::ptrdiff_t>(r * V),
                   wide.begin() + static_cast<std::ptrdiff_t>((r + 1) * V));
  }
};

template <class T>
class CrossEntropyTest : public ::testing::Test {};
TYPED_TEST_SUITE(CrossEntropyTest, FloatTypes);

TYPED_TEST(CrossEntropyTest, losses_match_double_in_any_number_of_parts) {
  for (std::size_t const V : {1, 2, 17, 49, 1031, 50257})
    for (std::size_t const parts : {1, 2, 7}) {
      Case<TypeParam> c(3, V, 2.0f);
      c.run(*make_stream(), parts);
      for (std::size_t r = 0; r < c.rows; ++r) {
        double const expected =
            reference::cross_entropy(c.row(r), static_cast<std::size_t>(c.targets[r]));
        EXPECT_NEAR(c.losses[r], expected, 1e-6 * std::max(1.0, expected)) << V;
      }
    }
}

TYPED_TEST(CrossEntropyTest, gradient_matches_finite_differences_times_scale) {
  for (std::size_t const V : {2, 17, 49, 120}) {
    Case<TypeParam> c(5, V, 3.0f);
    c.scale = 0.37f;
    c.run(*make_stream());
    Doubles expected;
    for (std::size_t r = 0; r < c.rows; ++r) {
      auto const target = static_cast<std::size_t>(c.targets[r]);
      for (double const d : reference::numeric_gradient(c.row(r), [&](Doubles const& logits) {
             return reference::cross_entropy(logits, target);
           }))
        expected.push_back(d * static_cast<double>(0.37f));
    }
    expect_close(c.dlogits, expected, sizeof(TypeParam) == 2 ? 1.01 : 16);
  }
}

TYPED_TEST(CrossEntropyTest, a_confident_row_keeps_the_small_gradient_of_its_target) {
  Case<TypeParam> c(1, 2, 0.0f);
  c.logits = {20.0f, 0.0f};
  c.targets = {0};
  c.run(*make_stream());
  double const rest = 1 / (1 + std::exp(20.0));
  EXPECT_NEAR(c.losses[0], std::log1p(std::exp(-20.0)), 1e-9);
  EXPECT_NEAR(static_cast<float>(c.dlogits[0]) / -rest, 1.0, 1e-2);
  EXPECT_NEAR(static_cast<float>(c.dlogits[1]) / rest, 1.0, 1e-2);
}

TYPED_TEST(CrossEntropyTest, rows_without_target_have_no_loss_and_no_gradient) {
  Case<TypeParam> c(4, 49, 2.0f);
  c.targets[1] = c.targets[3] = -1;
  c.logits[3 * 49 + 5] = std::numeric_limits<float>::quiet_NaN();
  c.run(*make_stream());
  for (std::size_t const r : {1u, 3u}) {
    EXPECT_EQ(c.losses[r], 0.0f);
    for (std::size_t v = 0; v < 49; ++v) EXPECT_EQ(static_cast<float>(c.dlogits[r * 49 + v]), 0.0f);
  }
  EXPECT_GT(c.losses[0], 0.0f);
}

TYPED_TEST(CrossEntropyTest, huge_logits_do_not_overflow) {
  Case<TypeParam> c(2, 49, 1e4f);
  c.logits[0] = 1e4f;
  c.logits[49] = -1e4f;
  c.run(*make_stream());
  Doubles expected;
  for (std::size_t r = 0; r < 2; ++r) {
    Doubles const logits = c.row(r);
    auto const target = static_cast<std::size_t>(c.targets[r]);
    double const loss = reference::cross_entropy(logits, target);
    EXPECT_NEAR(c.losses[r], loss, 1e-6 * loss);
    for (std::size_t v = 0; v < 49; ++v)
      expected.push_back(std::exp(-reference::cross_entropy(logits, v)) - (v == target ? 1 : 0));
  }
  expect_close(c.dlogits, expected, sizeof(TypeParam) == 2 ? 1.01 : 16);
}

TYPED_TEST(CrossEntropyTest, a_logit_that_is_not_finite_shows_in_the_loss) {
  for (float const bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Case<TypeParam> c(2, 49, 1.0f);
    c.logits[7] = bad;
    c.run(*make_stream());
    EXPECT_FALSE(std::isfinite(c.losses[0]));
    EXPECT_TRUE(std::isfinite(c.losses[1]));
  }
}

TYPED_TEST(CrossEntropyTest, results_do_not_depend_on_threads) {
  Case<TypeParam> one(17, 1031, 2.0f), many(17, 1031, 2.0f);
  one.run(*make_stream(1));
  many.run(*make_stream(5));
  EXPECT_TRUE(same_bits(one.losses, many.losses));
  EXPECT_TRUE(same_bits(one.dlogits, many.dlogits));
}

}  // namespace
}  // namespace spillway::ops
