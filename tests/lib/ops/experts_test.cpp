// Routing and the ways to experts and back, against double precision and finite differences.
#include "lib/ops/experts.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tests/lib/ops/ops_support.hpp"

namespace spillway::ops {
namespace {

using namespace testing_ops;  // NOLINT

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// Rows with their routing and the buffers of an order.
struct Routed {
  std::size_t rows, experts, k;
  std::vector<float> logits, probabilities, weights;
  std::vector<std::int32_t> chosen, slot_of, choice_of;
  std::vector<std::int64_t> begin;

  Routed(std::vector<float> values, std::size_t expert_count, std::size_t per_row)
      : rows(values.size() / expert_count),
        experts(expert_count),
        k(per_row),
        logits(std::move(values)),
        probabilities(logits),
        weights(rows * k),
        chosen(rows * k),
        slot_of(rows * k),
        choice_of(static_cast<std::size_t>(
            expert_capacity(std::int64_t(rows), std::int64_t(experts), std::int64_t(k)))),
        begin(experts + 1) {
    route(routing(), *make_stream());
    order_by_expert(order());
  }
  Route routing() {
    return {.rows = std::int64_t(rows),
            .experts = std::int64_t(experts),
            .k = std::int64_t(k),
            .probabilities = probabilities.data(),
            .chosen = chosen.data(),
            .weights = weights.data()};
  }
  ExpertOrder order() {
    return {.rows = std::int64_t(rows),
            .experts = std::int64_t(experts),
            .k = std::int64_t(k),
            .chosen = chosen.data(),
            .slot_of = slot_of.data(),
            .choice_of = choice_of.data(),
            .begin = begin.data()};
  }
  std::size_t slots() const { return static_cast<std::size_t>(begin[experts]); }
};

Routed random_routed(std::size_t rows, std::size_t experts, std::size_t k) {
  return {random_values<float>(rows * experts, "logits", 2.0f), experts, k};
}

Doubles softmax(Doubles const& logits, std::size_t row, std::size_t experts) {
  Doubles p(logits.begin() + std::ptrdiff_t(row * experts),
            logits.begin() + std::ptrdiff_t((row + 1) * experts));
  for (double& value : p) value = std::exp(value);
  double const sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) value /= sum;
  return p;
}

constexpr std::size_t kShapes[][3] = {{1, 1, 1}, {5, 3, 1}, {40, 4, 2}, {33, 8, 3}, {3, 5, 5}};

TEST(Experts, route_takes_the_likeliest_and_weighs_them_by_their_share) {
  for (auto const& [rows, experts, k] : kShapes) {
    Routed routed = random_routed(rows, experts, k);
    for (std::size_t row = 0; row < rows; ++row) {
      Doubles const p = softmax(widen(routed.logits), row, experts);
      std::vector<std::int32_t> right(experts);
      std::iota(right.begin(), right.end(), 0);
      std::stable_sort(right.begin(), right.end(), [&](std::int32_t a, std::int32_t b) {
        return p[std::size_t(a)] > p[std::size_t(b)];
      });
      double sum = 0;
      for (std::size_t j = 0; j < k; ++j) sum += p[std::size_t(right[j])];
      for (std::size_t j = 0; j < k; ++j) {
        EXPECT_EQ(routed.chosen[row * k + j], right[j]);
        EXPECT_NEAR(routed.weights[row * k + j], p[std::size_t(right[j])] / sum, 1e-7);
      }
      for (std::size_t e = 0; e < experts; ++e)
        EXPECT_NEAR(routed.probabilities[row * experts + e], p[e], 1e-7);
    }
  }
}

TEST(Experts, equal_ones_are_taken_from_the_lowest) {
  Routed const routed({0, 1, 1, 1, 5, 5, 5, 5, 2, 0, 2, 0}, 4, 2);
  EXPECT_EQ(routed.chosen, (std::vector<std::int32_t>{1, 2, 0, 1, 0, 2}));
  EXPECT_EQ(routed.weights, (std::vector<float>(6, 0.5f)));
}

TEST(Experts, a_row_with_nan_still_has_experts_in_range) {
  Routed const routed({kNaN, 0, 0, 1, 2, 3}, 3, 2);
  for (std::int32_t expert : routed.chosen) EXPECT_TRUE(expert >= 0 && expert < 3);
  EXPECT_TRUE(std::isnan(routed.weights[0]));
  EXPECT_EQ(routed.chosen[2], 2);
}

TEST(Experts, order_keeps_rows_in_order_and_pads_each_expert) {
  Routed const routed({0, 9, 0, 0, 9, 0, 9, 0, 0, 0, 9, 0}, 3, 1);
  EXPECT_EQ(routed.begin, (std::vector<std::int64_t>{0, kExpertRows, 2 * kExpertRows,
                                                     2 * kExpertRows}));  // the last has no row
  EXPECT_EQ(routed.slot_of,
            (std::vector<std::int32_t>{kExpertRows, kExpertRows + 1, 0, kExpertRows + 2}));
  EXPECT_EQ(routed.choice_of[0], 2);
  EXPECT_EQ(routed.choice_of[1], -1);
  EXPECT_EQ(routed.choice_of[kExpertRows + 2], 3);
  EXPECT_EQ(routed.choice_of[kExpertRows + 3], -1);
}

TEST(Experts, order_fits_its_capacity_when_one_expert_has_all_rows_and_when_all_share) {
  for (std::size_t rows : {1u, 63u, 64u, 65u, 200u}) {
    std::vector<float> one(rows * 4, 0.0f), all(rows * 4, 0.0f);
    for (std::size_t row = 0; row < rows; ++row) {
      one[row * 4 + 2] = 9;
      all[row * 4 + row % 4] = 9;
    }
    for (auto const& logits : {one, all}) {
      Routed const routed(logits, 4, 1);
      EXPECT_LE(routed.slots(), routed.choice_of.size());
      for (std::size_t choice = 0; choice < rows; ++choice)
        EXPECT_EQ(routed.choice_of[std::size_t(routed.slot_of[choice])], std::int32_t(choice));
    }
  }
}

template <class T>
class ExpertRows : public ::testing::Test {};
TYPED_TEST_SUITE(ExpertRows, FloatTypes);

TYPED_TEST(ExpertRows, gather_copies_rows_and_clears_padding) {
  Routed routed = random_routed(37, 4, 2);
  std::size_t const C = 7;
  auto const x = random_values<TypeParam>(routed.rows * C, "x");
  auto y = random_values<TypeParam>(routed.slots() * C, "y");
  gather_rows(routed.order(), std::int64_t(C), x.data(), y.data(), *make_stream());
  for (std::size_t slot = 0; slot < routed.slots(); ++slot) {
    std::int32_t const choice = routed.choice_of[slot];
    for (std::size_t c = 0; c < C; ++c)
      EXPECT_EQ(float(y[slot * C + c]),
                choice < 0 ? 0.0f : float(x[std::size_t(choice) / routed.k * C + c]));
  }
}

TYPED_TEST(ExpertRows, combine_adds_up_weighted_rows) {
  Routed routed = random_routed(37, 4, 2);
  std::size_t const C = 300;
  auto const y = random_values<TypeParam>(routed.slots() * C, "y");
  auto const base = random_values<float>(routed.rows * C, "base");
  std::vector<TypeParam> plain(routed.rows * C), out(routed.rows * C);
  CombineRows<TypeParam> args{.order = routed.order(),
                              .C = std::int64_t(C),
                              .weights = routed.weights.data(),
                              .y = y.data(),
                              .out = out.data()};
  combine_rows(args, *make_stream());
  args.base = base.data();
  args.weights = nullptr;
  args.out = plain.data();
  combine_rows(args, *make_stream());
  Doubles expected(out.size(), 0.0), expected_plain = widen(base);
  for (std::size_t choice = 0; choice < routed.chosen.size(); ++choice)
    for (std::size_t c = 0; c < C; ++c) {
      double const value = double(float(y[std::size_t(routed.slot_of[choice]) * C + c]));
      expected[choice / routed.k * C + c] += double(routed.weights[choice]) * value;
      expected_plain[choice / routed.k * C + c] += value;
    }
  expect_close(out, expected, sizeof(TypeParam) == 2 ? 1.01 : 4);
  expect_close(plain, expected_plain, sizeof(TypeParam) == 2 ? 1.01 : 4);
}

TYPED_TEST(ExpertRows, weigh_takes_the_weights_gradient_and_applies_the_weight) {
  Routed routed = random_routed(21, 3, 2);
  std::size_t const I = 45, C = 19;
  auto const activated = random_values<TypeParam>(routed.slots() * I, "activated");
  auto const before = random_values<TypeParam>(routed.slots() * I, "dactivated");
  auto const result = random_values<TypeParam>(routed.slots() * C, "dresult");
  auto dactivated = before;
  auto dresult = result;
  std::vector<float> dweights(routed.chosen.size());
  weigh_rows<TypeParam>({.order = routed.order(),
                         .I = std::int64_t(I),
                         .C = std::int64_t(C),
                         .weights = routed.weights.data(),
                         .activated = activated.data(),
                         .dactivated = dactivated.data(),
                         .dresult = dresult.data(),
                         .dweights = dweights.data()},
                        *make_stream());
  Doubles expected(dweights.size(), 0.0), weighted = widen(before), weighted_result = widen(result);
  for (std::size_t slot = 0; slot < routed.slots(); ++slot) {
    std::int32_t const choice = routed.choice_of[slot];
    if (choice < 0) continue;
    double const weight = double(routed.weights[std::size_t(choice)]);
    for (std::size_t i = 0; i < I; ++i) {
      expected[std::size_t(choice)] +=
          double(float(activated[slot * I + i])) * weighted[slot * I + i];
      weighted[slot * I + i] *= weight;
    }
    for (std::size_t c = 0; c < C; ++c) weighted_result[slot * C + c] *= weight;
  }
  expect_close(dweights, expected, 16);
  expect_close(dactivated, weighted, sizeof(TypeParam) == 2 ? 1.01 : 2);
  expect_close(dresult, weighted_result, sizeof(TypeParam) == 2 ? 1.01 : 2);
}

TYPED_TEST(ExpertRows, route_backward_matches_finite_differences) {
  for (auto const& [rows, experts, k] : kShapes) {
    if (experts == 1) continue;  // no logit changes anything
    Routed routed = random_routed(rows, experts, k);
    auto const dweights = random_values<float>(rows * k, "dweights");
    auto const dprobabilities = random_values<float>(experts, "dprobabilities");
    // The choice stays as it is: it has no gradient.
    auto const loss = [&](Doubles const& logits) {
      double sum = 0;
      for (std::size_t row = 0; row < rows; ++row) {
        Doubles const p = softmax(logits, row, experts);
        double share = 0;
        for (std::size_t j = 0; j < k; ++j) share += p[std::size_t(routed.chosen[row * k + j])];
        for (std::size_t j = 0; j < k; ++j)
          sum += double(dweights[row * k + j]) * p[std::size_t(routed.chosen[row * k + j])] / share;
        for (std::size_t e = 0; e < experts; ++e) sum += double(dprobabilities[e]) * p[e];
      }
      return sum;
    };
    std::vector<TypeParam> dlogits(rows * experts);
    route_backward<TypeParam>({.forward = routed.routing(),
                               .dweights = dweights.data(),
                               .dprobabilities = dprobabilities.data(),
                               .dlogits = dlogits.data()},
                              *make_stream());
    expect_close(dlogits, reference::numeric_gradient(widen(routed.logits), loss),
                 sizeof(TypeParam) == 2 ? 1.05 : 32);
  }
}

}  // namespace
}  // namespace spillway::ops
