#include "lib/model/rotary.hpp"

#include <algorithm>
#include <cmath>

namespace spillway::model {
namespace {

/// Llama 3: long wavelengths are divided by the factor, short ones kept, those between
/// interpolated.
float stretch_llama3(float frequency, ModelConfig const& config) {
  float const factor = static_cast<float>(config.rope_factor);
  float const low = static_cast<float>(config.rope_low_freq_factor);
  float const high = static_cast<float>(config.rope_high_freq_factor);
  float const original = static_cast<float>(config.rope_original_positions);
  float const wavelength = static_cast<float>(2 * M_PI) / frequency;
  if (wavelength < original / high) return frequency;
  if (wavelength > original / low) return frequency / factor;
  float const smooth = (original / wavelength - low) / (high - low);
  return (1 - smooth) * (frequency / factor) + smooth * frequency;
}

/// NTK-aware: beyond max_position_embeddings the base grows with the sequence's length.
double stretched_base(ModelConfig const& config, std::int64_t positions) {
  if (config.rope_scaling != RopeScaling::dynamic || positions <= config.max_positions)
    return config.rope_theta;
  // In fp32 from here on, as transformers has the length in a tensor.
  float const factor = static_cast<float>(config.rope_factor);
  float const length = static_cast<float>(positions);
  float const stretch = factor * length / static_cast<float>(config.max_positions) -
                        static_cast<float>(config.rope_factor - 1);
  double const dim = static_cast<double>(config.head_dim);
  float const power = static_cast<float>(std::pow(static_cast<double>(stretch), dim / (dim - 2)));
  return static_cast<double>(static_cast<float>(config.rope_theta) * power);
}

/// YaRN (Peng et al. 2023): pairs that turn often keep their frequency, those that turn less than
/// once in the original length are divided by the factor, and a ramp over the pairs lies between.
class YarnRamp {
 public:
  explicit YarnRamp(ModelConfig const& config) : factor_(static_cast<float>(config.rope_factor)) {
    double const dim = static_cast<double>(config.head_dim);
    auto const pair_of = [&](double rotations) {
      double const positions = static_cast<double>(config.rope_original_positions);
      return dim * std::log(positions / (rotations * 2 * M_PI)) / (2 * std::log(config.rope_theta));
    };
    double low = pair_of(config.rope_beta_fast);
    double high = pair_of(config.rope_beta_slow);
    if (config.rope_truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, dim - 1);
    if (low == high) high += 0.001;  // the ramp is a step then
    low_ = static_cast<float>(low);
    width_ = static_cast<float>(high - low);
  }

  float frequency(std::int64_t pair, float power) const {
    float const divided = std::clamp((static_cast<float>(pair) - low_) / width_, 0.0f, 1.0f);
    float const kept = 1 - divided;
    return 1.0f / (factor_ * power) * (1 - kept) + 1.0f / power * kept;
  }

 private:
  float factor_, low_ = 0, width_ = 1;
};

}  // namespace

std::vector<float> rotary_frequencies(ModelConfig const& config, std::int64_t positions) {
  std::vector<float> frequencies;
  double const base = stretched_base(config, positions);
  for (std::int64_t i = 0; i < config.head_dim; i += 2) {
    float const exponent = static_cast<float>(i) / static_cast<float>(config.head_dim);
    float const power = static_cast<float>(std::pow(base, static_cast<double>(exponent)));
    float frequency = 1.0f / power;
    if (config.rope_scaling == RopeScaling::linear)
      frequency /= static_cast<float>(config.rope_factor);
    if (config.rope_scaling == RopeScaling::llama3) frequency = stretch_llama3(frequency, config);
    if (config.rope_scaling == RopeScaling::yarn)
      frequency = YarnRamp(config).frequency(i / 2, power);
    frequencies.push_back(frequency);
  }
  return frequencies;
}

RotaryTable::RotaryTable(ModelConfig const& config, std::int64_t positions) {
  if (config.positions != Positions::rotary) return;
  std::vector<float> const frequencies = rotary_frequencies(config, positions);
  float const factor = static_cast<float>(config.rope_attention_factor);
  std::size_t const size = frequencies.size() * static_cast<std::size_t>(positions);
  cosine.reserve(size);
  sine.reserve(size);
  for (std::int64_t position = 0; position < positions; ++position) {
    for (float frequency : frequencies) {
      float const angle = static_cast<float>(position) * frequency;
      cosine.push_back(static_cast<float>(std::cos(static_cast<double>(angle))) * factor);
      sine.push_back(static_cast<float>(std::sin(static_cast<double>(angle))) * factor);
    }
  }
}

}  // namespace spillway::model
