#include "lib/model/weight_source.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

namespace spillway::model {
namespace {

TensorSpec table(std::string name = "model.embed_tokens.weight") {
  return {std::move(name), {1000, 500}, 0, 0.02, true, {}};
}

std::vector<float> draw(std::uint64_t seed, TensorSpec const& tensor, std::int64_t begin,
                        std::size_t count) {
  std::vector<float> out(count);
  RandomWeights(seed).read(tensor, begin, out);
  return out;
}

TEST(RandomWeightsTest, any_cut_gives_the_same_elements) {
  auto const whole = draw(1, table(), 0, 5000);
  for (std::size_t begin : {0u, 1u, 2u, 3u, 4u, 4095u, 4998u, 4999u}) {
    for (std::size_t count : {std::size_t{1}, (5000 - begin) / 2, 5000 - begin}) {
      auto const part = draw(1, table(), static_cast<std::int64_t>(begin), count);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<long>(begin)));
    }
  }
}

TEST(RandomWeightsTest, elements_are_normal_with_the_tensors_mean_and_deviation) {
  auto const values = draw(7, table(), 0, 500'000);
  std::vector<double> moments(5);
  for (float value : values)
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(static_cast<double>(value) / 0.02, k);
  for (double& moment : moments) moment /= static_cast<double>(values.size());
  // Standard errors at this count: 0.0014, 0.002, 0.0055, 0.014; five of them.
  EXPECT_NEAR(moments[1], 0, 0.007);
  EXPECT_NEAR(moments[2], 1, 0.010);
  EXPECT_NEAR(moments[3], 0, 0.028);
  EXPECT_NEAR(moments[4], 3, 0.070);
}

TEST(RandomWeightsTest, neighbours_are_not_correlated) {
  auto const values = draw(7, table(), 0, 500'000);
  for (std::size_t lag : {1u, 2u, 4u, 500u}) {
    double sum = 0;
    for (std::size_t i = lag; i < values.size(); ++i)
      sum += static_cast<double>(values[i]) * static_cast<double>(values[i - lag]) / 0.0004;
    EXPECT_NEAR(sum / static_cast<double>(values.size() - lag), 0, 0.007) << "lag " << lag;
  }
}

TEST(RandomWeightsTest, name_and_seed_decide_the_values) {
  auto const values = draw(1, table(), 0, 100);
  EXPECT_NE(draw(2, table(), 0, 100), values);
  EXPECT_NE(draw(1, table("lm_head.weight"), 0, 100), values);
  EXPECT_EQ(draw(1, table(), 0, 100), values);
}

TEST(RandomWeightsTest, a_norm_weight_is_constant) {
  TensorSpec const norm{"model.norm.weight", {64}, 1, 0, false, {}};
  EXPECT_EQ(draw(5, norm, 0, 64), std::vector<float>(64, 1.0f));
}

TEST(RandomWeightsTest, elements_beyond_four_billion_differ_from_the_first) {
  EXPECT_NE(draw(1, table(), std::int64_t{1} << 32, 100), draw(1, table(), 0, 100));
}

}  // namespace
}  // namespace spillway::model
