// The decoder against values that transformers computed in float64.
#include <gtest/gtest.h>

#include "tests/lib/model/cases.hpp"

namespace spillway::test {
namespace {

constexpr double kLearningRate = 1e-3, kBeta1 = 0.9, kBeta2 = 0.95, kDecay = 0.1;

ops::AdamwStep adamw_step(int t, double norm) {
  ops::AdamwStep step;
  step.lr = static_cast<float>(kLearningRate);
  step.beta1 = static_cast<float>(kBeta1);
  step.beta2 = static_cast<float>(kBeta2);
  step.weight_decay = static_cast<float>(kDecay);
  step.bias1 = static_cast<float>(1 - std::pow(kBeta1, t));
  step.bias2 = static_cast<float>(1 - std::pow(kBeta2, t));
  step.grad_scale = static_cast<float>(std::min(1.0, 1 / (norm + 1e-6)));
  return step;
}

// How far ten steps in bf16 may leave the curve: bf16 rounds to 2^-8 of a value, and a mean loss of
// 96 tokens, as well as a norm of all gradients, averages over many roundings.
constexpr double kBf16Losses = 0x1p-10, kBf16Norms = 0x1p-6;
// Each gradient by itself. A near tie between two experts may fall the other way in bf16: then one
// row of the few that an expert has here is another expert's.
constexpr double kBf16Gradient = 4e-2, kBf16GradientOfExperts = 0.2;

struct Curve {
  std::vector<float> losses, norms;
};

Curve train_ten_steps(ResidentModel& model, Case const& oracle) {
  Curve curve;
  double const targets = static_cast<double>(oracle.targets.size());
  for (int t = 1; t <= 10; ++t) {
    model.zero_gradients();
    auto const sum = model.forward_backward(oracle.tokens(), static_cast<float>(1 / targets));
    double const norm = model.gradient_norm();
    curve.losses.push_back(static_cast<float>(sum.loss / targets));
    curve.norms.push_back(static_cast<float>(norm));
    model.update(adamw_step(t, norm));
  }
  return curve;
}

class OracleTest : public testing::TestWithParam<char const*> {
 protected:
  Case const oracle_ = oracle_case(GetParam());
};

TEST_P(OracleTest, has_the_tensors_and_shapes_of_the_file) {
  std::size_t count = 0;
  for (auto const& unit : oracle_.spec.units) {
    for (auto const& tensor : unit.tensors) {
      ASSERT_TRUE(oracle_.weights.count(tensor.name)) << tensor.name;
      EXPECT_EQ(oracle_.weights.at(tensor.name).shape, tensor.shape) << tensor.name;
      ++count;
    }
  }
  EXPECT_EQ(count, oracle_.weights.size());
}

TEST_P(OracleTest, logits_agree_to_a_hundred_thousandth) {
  ResidentModel model = load(oracle_);
  EXPECT_LT(relative_distance(model.logits(oracle_.tokens()), oracle_.expected.at("logits").floats),
            1e-5);
}

TEST_P(OracleTest, loss_agrees_to_a_hundred_thousandth) {
  ResidentModel model = load(oracle_);
  auto const sum = model.evaluate(oracle_.tokens());
  double const expected = oracle_.expected.at("loss").floats[0];
  EXPECT_EQ(sum.targets, 96);
  EXPECT_NEAR(sum.loss / 96, expected, 1e-5 * expected);
}

TEST_P(OracleTest, every_gradient_and_their_norm_agree_to_a_ten_thousandth) {
  ResidentModel model = load(oracle_);
  model.forward_backward(oracle_.tokens(), 1.0f / 96);
  for (auto const& [name, tensor] : oracle_.weights)
    EXPECT_LT(relative_distance(model.gradient(name), oracle_.expected.at("grad." + name).floats),
              1e-4)
        << name;
  if (oracle_.expected.count("aux_loss") > 0) {
    double const expected_aux = oracle_.expected.at("aux_loss").floats[0];
    EXPECT_NEAR(model.balance_loss(), expected_aux, 1e-5 * expected_aux);
  }
  double const expected = oracle_.expected.at("grad_norm").floats[0];
  EXPECT_NEAR(model.gradient_norm(), expected, 1e-4 * expected);
}

TEST_P(OracleTest, gradients_add_up_over_micro_batches) {
  ResidentModel model = load(oracle_);
  model.forward_backward(oracle_.tokens(), 0.25f / 96);
  model.forward_backward(oracle_.tokens(), 0.75f / 96);
  for (auto const& [name, tensor] : oracle_.weights)
    EXPECT_LT(relative_distance(model.gradient(name), oracle_.expected.at("grad." + name).floats),
              1e-4)
        << name;
}

TEST_P(OracleTest, ten_adamw_steps_follow_the_curve_and_end_at_the_weights) {
  ResidentModel model = load(oracle_);
  Curve const curve = train_ten_steps(model, oracle_);
  auto const& losses = oracle_.expected.at("losses").floats;
  auto const& norms = oracle_.expected.at("grad_norms").floats;
  for (std::size_t t = 0; t < 10; ++t) {
    EXPECT_NEAR(curve.losses[t], losses[t], 1e-4 * losses[t]) << "step " << t + 1;
    EXPECT_NEAR(curve.norms[t], norms[t], 1e-4 * norms[t]) << "step " << t + 1;
  }
  for (auto const& [name, tensor] : oracle_.weights)
    EXPECT_LT(relative_distance(model.master(name), oracle_.expected.at("final." + name).floats),
              1e-4)
        << name;
}

TEST_P(OracleTest, bf16_stays_near_the_curve) {
  ResidentModel model = load(oracle_, {.compute = DType::bf16});
  Curve const curve = train_ten_steps(model, oracle_);
  auto const& losses = oracle_.expected.at("losses").floats;
  auto const& norms = oracle_.expected.at("grad_norms").floats;
  for (std::size_t t = 0; t < 10; ++t) {
    EXPECT_NEAR(curve.losses[t], losses[t], kBf16Losses * losses[t]) << "step " << t + 1;
    EXPECT_NEAR(curve.norms[t], norms[t], kBf16Norms * norms[t]) << "step " << t + 1;
  }
}

TEST_P(OracleTest, bf16_gradients_point_the_same_way) {
  ResidentModel model = load(oracle_, {.compute = DType::bf16});
  model.forward_backward(oracle_.tokens(), 1.0f / 96);
  double const bound = oracle_.spec.config.experts > 0 ? kBf16GradientOfExperts : kBf16Gradient;
  for (auto const& [name, tensor] : oracle_.weights)
    EXPECT_LT(relative_distance(model.gradient(name), oracle_.expected.at("grad." + name).floats),
              bound)
        << name;
}

INSTANTIATE_TEST_SUITE_P(Models, OracleTest,
                         testing::Values("tiny-gpt2", "tiny-llama", "tiny-llama3-tied",
                                         "tiny-mistral", "tiny-qwen2", "tiny-qwen3",
                                         "tiny-mixtral"),
                         [](auto const& param) {
                           std::string name = param.param;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace spillway::test
