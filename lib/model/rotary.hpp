// Cosines and sines of rotary positions, with the stretched frequencies of long-context models.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/model/spec.hpp"

namespace spillway::model {

/// Angle per position of each pair of dimensions, [head_dim/2]. In fp32 as transformers computes
/// them: at position 8191 the rounding of a frequency is already visible in the logits.
/// `positions`: the length of the sequences, on which "dynamic" frequencies depend.
std::vector<float> rotary_frequencies(ModelConfig const& config, std::int64_t positions = 0);

/// [positions, head_dim/2] each, times the scaling's factor; empty for learned positions.
struct RotaryTable {
  RotaryTable(ModelConfig const& config, std::int64_t positions);
  std::vector<float> cosine;
  std::vector<float> sine;
};

}  // namespace spillway::model
