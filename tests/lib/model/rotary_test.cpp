#include "lib/model/rotary.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace spillway::model {
namespace {

ModelConfig config(std::string const& rope) {
  return parse_config(R"({"model_type": "llama", "vocab_size": 8, "hidden_size": 256,
      "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
      "max_position_embeddings": 8192)" +
                          (rope.empty() ? "" : ", " + rope) + "}",
                      "test");
}

TEST(RotaryTest, frequencies_fall_geometrically_from_one) {
  auto const frequencies = rotary_frequencies(config(R"("rope_theta": 10000.0)"));
  ASSERT_EQ(frequencies.size(), 64u);
  for (std::size_t i = 0; i < 64; ++i)
    EXPECT_NEAR(frequencies[i], std::pow(10000.0, -static_cast<double>(i) / 64),
                1e-6 * frequencies[i]);
}

TEST(RotaryTest, linear_scaling_divides_positions) {
  auto const plain = rotary_frequencies(config(""));
  auto const scaled =
      rotary_frequencies(config(R"("rope_scaling": {"type": "linear", "factor": 4})"));
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_FLOAT_EQ(scaled[i], plain[i] / 4);
}

TEST(RotaryTest, llama3_scaling_has_the_published_shape) {
  // Llama 3.1: theta 500000, factor 8, low 1, high 4, original 8192; head_dim 128.
  auto const plain = rotary_frequencies(config(R"("rope_theta": 500000.0)"));
  auto const scaled = rotary_frequencies(
      config(R"("rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
             "low_freq_factor": 1.0, "high_freq_factor": 4.0,
             "original_max_position_embeddings": 8192})"));
  int kept = 0, divided = 0, between = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    double const frequency = std::pow(500000.0, -static_cast<double>(i) / 64);
    double const wavelength = 2 * 3.14159265358979 / frequency;
    if (wavelength < 2048) {
      EXPECT_FLOAT_EQ(scaled[i], plain[i]);
      ++kept;
    } else if (wavelength > 8192) {
      EXPECT_FLOAT_EQ(scaled[i], plain[i] / 8);
      ++divided;
    } else {
      double const smooth = (8192 / wavelength - 1) / 3;
      EXPECT_NEAR(scaled[i], frequency * ((1 - smooth) / 8 + smooth), 2e-6 * frequency);
      ++between;
    }
  }
  EXPECT_EQ(kept, 29);
  EXPECT_EQ(between, 6);
  EXPECT_EQ(divided, 29);
}

TEST(RotaryTest, both_spellings_give_the_same_table) {
  std::string const inner = R"("rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 1024)";
  RotaryTable const four(config(R"("rope_theta": 500000.0, "rope_scaling": {)" + inner + "}"),
                         8192);
  RotaryTable const five(config(R"("rope_parameters": {"rope_theta": 500000.0, )" + inner + "}"),
                         8192);
  EXPECT_EQ(four.cosine, five.cosine);
  EXPECT_EQ(four.sine, five.sine);
  RotaryTable const plain(config(R"("rope_theta": 500000.0)"), 8192);
  EXPECT_NE(four.cosine, plain.cosine);
}

TEST(RotaryTest, rows_are_positions) {
  RotaryTable const table(config(""), 3);
  ASSERT_EQ(table.cosine.size(), 3u * 64u);
  EXPECT_EQ(table.cosine[0], 1.0f);
  EXPECT_EQ(table.sine[0], 0.0f);
  EXPECT_FLOAT_EQ(table.cosine[2 * 64], std::cos(2.0f));
  EXPECT_FLOAT_EQ(table.sine[1 * 64], std::sin(1.0f));
}

}  // namespace
}  // namespace spillway::model
