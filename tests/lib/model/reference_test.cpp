// Odd shapes, biases, grouped heads, windows, experts and long positions against numpy and
// transformers in float64 (tests/data/reference).
#include <gtest/gtest.h>

#include "tests/lib/model/cases.hpp"

namespace spillway::test {
namespace {

class ReferenceTest : public testing::TestWithParam<char const*> {};

TEST_P(ReferenceTest, logits_and_loss_sum_agree) {
  Case const reference = reference_case(GetParam());
  ResidentModel model = load(reference);
  EXPECT_LT(
      relative_distance(model.logits(reference.tokens()), reference.expected.at("logits").floats),
      1e-5);
  auto const sum = model.evaluate(reference.tokens());
  double const expected = reference.expected.at("loss").floats[0];
  EXPECT_NEAR(sum.loss, expected, 1e-5 * expected);
  EXPECT_EQ(sum.targets, reference.shape.rows() - 2);  // two are masked
}

TEST_P(ReferenceTest, every_gradient_agrees) {
  Case const reference = reference_case(GetParam());
  ResidentModel model = load(reference);
  model.forward_backward(reference.tokens(), 1);
  if (reference.expected.count("aux_loss") > 0) {
    double const expected_aux = reference.expected.at("aux_loss").floats[0];
    EXPECT_NEAR(model.balance_loss(), expected_aux, 1e-6 * expected_aux);
  }
  // A key bias moves all scores of a row alike, so its gradient is 0 but for rotation: compare to
  // the whole norm too.
  for (auto const& [name, tensor] : reference.weights) {
    auto const& expected = reference.expected.at("grad." + name).floats;
    double norm = 0;
    for (float value : expected) norm = std::max(norm, static_cast<double>(std::abs(value)));
    EXPECT_LT(largest_difference(model.gradient(name), expected), 1e-4 * norm + 1e-6) << name;
  }
}

TEST_P(ReferenceTest, bf16_gradients_point_the_same_way) {
  Case const reference = reference_case(GetParam());
  ResidentModel model = load(reference, {.compute = DType::bf16});
  auto const sum = model.forward_backward(reference.tokens(), 1);
  double const expected = reference.expected.at("loss").floats[0];
  EXPECT_NEAR(sum.loss, expected, 2e-2 * expected);
  double difference = 0, norm = 0;
  for (auto const& [name, tensor] : reference.weights) {
    auto const gradient = model.gradient(name);
    auto const& right = reference.expected.at("grad." + name).floats;
    for (std::size_t i = 0; i < right.size(); ++i) {
      difference += std::pow(static_cast<double>(gradient[i] - right[i]), 2);
      norm += std::pow(static_cast<double>(right[i]), 2);
    }
  }
  // A near tie between experts may fall the other way.
  EXPECT_LT(std::sqrt(difference / norm), reference.spec.config.experts > 0 ? 0.2 : 5e-2);
}

INSTANTIATE_TEST_SUITE_P(
    Variants, ReferenceTest,
    testing::Values("llama_odd", "llama_wide_heads", "llama_plain", "llama_merged", "gpt2_odd",
                    "gpt2_unscaled", "mistral_window", "mistral_one", "mistral_wide",
                    "mistral_tiles", "mistral_yarn", "qwen2_upper", "qwen2_types", "qwen2_dynamic",
                    "qwen3_biased", "qwen3_tied", "qwen3_merged", "mixtral_top1", "mixtral_top3",
                    "mixtral_plain", "mixtral_all", "llama_yarn", "llama_dynamic"),
    [](auto const& param) { return std::string(param.param); });

class LongPositionTest : public testing::TestWithParam<char const*> {};

TEST_P(LongPositionTest, logits_of_the_last_positions_agree) {
  Case const reference = reference_case(GetParam());
  auto const& expected = reference.expected.at("logits");
  ResidentModel model = load(reference, {.keep = model::Keep::nothing});
  auto const logits = model.logits(reference.tokens(), reference.shape.T - expected.shape[1]);
  EXPECT_LT(relative_distance(logits, expected.floats), 2e-5);
}

INSTANTIATE_TEST_SUITE_P(Variants, LongPositionTest, testing::Values("llama_long", "llama3_long"),
                         [](auto const& param) { return std::string(param.param); });

}  // namespace
}  // namespace spillway::test
