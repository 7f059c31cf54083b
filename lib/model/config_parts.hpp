// The parts of reading a config.json: families, rotary positions, what is shared.
#pragma once

#include <cstdint>
#include <string>

#include "lib/model/config_object.hpp"
#include "lib/model/spec.hpp"

namespace spillway::model {

inline constexpr std::int64_t kLayersMax = 100'000;

/// Fills what depends on the family that "model_type" names; refuses unknown ones.
void read_family(ConfigObject const& file, ModelConfig& config);

/// rope_theta beside rope_scaling (transformers 4), or both within rope_parameters (transformers
/// 5). Needs head_dim and max_positions of `config`.
void read_rope(ConfigObject const& file, double theta_otherwise, ModelConfig& config);

}  // namespace spillway::model
