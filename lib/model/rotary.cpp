#include "lib/model/rotary.hpp"

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

}  // namespace

std::vector<float> rotary_frequencies(ModelConfig const& config) {
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < config.head_dim; i += 2) {
    float const exponent = static_cast<float>(i) / static_cast<float>(config.head_dim);
    float const power =
        static_cast<float>(std::pow(config.rope_theta, static_cast<double>(exponent)));
    float frequency = 1.0f / power;
    if (config.rope_scaling == RopeScaling::linear)
      frequency /= static_cast<float>(config.rope_factor);
    if (config.rope_scaling == RopeScaling::llama3) frequency = stretch_llama3(frequency, config);
    frequencies.push_back(frequency);
  }
  return frequencies;
}

RotaryTable::RotaryTable(ModelConfig const& config, std::int64_t positions) {
  if (config.positions != Positions::rotary) return;
  std::vector<float> const frequencies = rotary_frequencies(config);
  std::size_t const size = frequencies.size() * static_cast<std::size_t>(positions);
  cosine.reserve(size);
  sine.reserve(size);
  for (std::int64_t position = 0; position < positions; ++position) {
    for (float frequency : frequencies) {
      float const angle = static_cast<float>(position) * frequency;
      cosine.push_back(static_cast<float>(std::cos(static_cast<double>(angle))));
      sine.push_back(static_cast<float>(std::sin(static_cast<double>(angle))));
    }
  }
}

}  // namespace spillway::model
