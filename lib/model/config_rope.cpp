// Rotary positions of a config.json: base and the ways to stretch them, in both spellings.
#include <fmt/core.h>

#include <cmath>

#include "lib/model/config_parts.hpp"

namespace spillway::model {
namespace {

/// The length that the stretching starts from.
std::int64_t read_original_positions(ConfigObject const& file, ConfigObject const& rope,
                                     ModelConfig const& config) {
  std::string const key = "original_max_position_embeddings";
  return (file.has(key) ? file : rope).integer(key, 1, kExtentMax, config.max_positions);
}

/// How much longer the rotated vectors become (Peng et al. 2023, as transformers computes it).
double read_attention_factor(ConfigObject const& rope, double factor) {
  if (rope.has("attention_factor")) return rope.number("attention_factor", 1e-6, 1e6);
  auto const growth = [factor](double by) {
    return factor <= 1 ? 1.0 : 0.1 * by * std::log(factor) + 1.0;
  };
  double const above = rope.number("mscale", 0, 1e6, 0.0);
  double const below = rope.number("mscale_all_dim", 0, 1e6, 0.0);
  return above > 0 && below > 0 ? growth(above) / growth(below) : growth(1);
}

void read_llama3(ConfigObject const& file, ConfigObject const& rope, ModelConfig& config) {
  config.rope_low_freq_factor = rope.number("low_freq_factor", 1e-9, 1e9);
  config.rope_high_freq_factor = rope.number("high_freq_factor", 1e-9, 1e9);
  config.rope_original_positions = read_original_positions(file, rope, config);
  if (config.rope_high_freq_factor <= config.rope_low_freq_factor)
    rope.refuse("high_freq_factor",
                fmt::format("low_freq_factor {} must be smaller", config.rope_low_freq_factor));
}

void read_yarn(ConfigObject const& file, ConfigObject const& rope, ModelConfig& config) {
  config.rope_original_positions = read_original_positions(file, rope, config);
  if (rope.is_null("factor"))
    config.rope_factor = static_cast<double>(config.max_positions) /
                         static_cast<double>(config.rope_original_positions);
  config.rope_attention_factor = read_attention_factor(rope, config.rope_factor);
  // 0 counts as absent.
  double const fast = rope.number("beta_fast", 0, 1e9, 0.0);
  double const slow = rope.number("beta_slow", 0, 1e9, 0.0);
  config.rope_beta_fast = fast > 0 ? fast : 32;
  config.rope_beta_slow = slow > 0 ? slow : 1;
  config.rope_truncate = rope.boolean("truncate", true);
}

void refuse_parts_of_heads(ConfigObject const& object) {
  if (object.number("partial_rotary_factor", 0, 1, 1.0) != 1.0)
    object.refuse("partial_rotary_factor", "rotation of all dimensions of a head is supported");
}

void read_rope_scaling(ConfigObject const& file, ConfigObject const& rope, ModelConfig& config) {
  std::string const key = rope.has("rope_type") || !rope.has("type") ? "rope_type" : "type";
  std::string const type = rope.text(key, "default");
  refuse_parts_of_heads(rope);
  for (char const* layers : {"full_attention", "sliding_attention"})
    if (rope.has(layers)) rope.refuse(layers, "one rotation for all layers is supported");
  if (type == "default") return;
  bool const is_yarn = type == "yarn";
  if (!is_yarn && type != "linear" && type != "llama3" && type != "dynamic")
    rope.refuse(key, "supported: default, linear, dynamic, yarn, llama3");
  if (!is_yarn || !rope.is_null("factor")) config.rope_factor = rope.number("factor", 1, 1e9);
  if (type == "linear") config.rope_scaling = RopeScaling::linear;
  if (type == "dynamic") {
    config.rope_scaling = RopeScaling::dynamic;
    if (config.head_dim <= 2) rope.refuse(key, "dynamic needs a head_dim of more than 2");
  }
  if (type == "llama3") {
    config.rope_scaling = RopeScaling::llama3;
    read_llama3(file, rope, config);
  }
  if (is_yarn) {
    config.rope_scaling = RopeScaling::yarn;
    read_yarn(file, rope, config);
  }
}

}  // namespace

void read_rope(ConfigObject const& file, double theta_otherwise, ModelConfig& config) {
  refuse_parts_of_heads(file);
  config.rope_theta = file.number("rope_theta", 1e-3, 1e30, theta_otherwise);
  bool const both = file.has("rope_parameters") && file.has("rope_scaling");
  if (both && !file.same("rope_parameters", "rope_scaling"))
    file.refuse("rope_scaling", "rope_parameters says something else");
  if (file.has("rope_scaling")) {
    ConfigObject const rope = file.child("rope_scaling");
    read_rope_scaling(file, rope, config);
    config.rope_theta = rope.number("rope_theta", 1e-3, 1e30, config.rope_theta);
  }
  if (file.has("rope_parameters")) {
    ConfigObject const rope = file.child("rope_parameters");
    read_rope_scaling(file, rope, config);
    double const theta = rope.number("rope_theta", 1e-3, 1e30, config.rope_theta);
    if (file.has("rope_theta") && theta != config.rope_theta)
      file.refuse("rope_theta", fmt::format("rope_parameters.rope_theta is {}", theta));
    config.rope_theta = theta;
  }
  // Its ramp divides by the logarithm of the base.
  if (config.rope_scaling == RopeScaling::yarn && config.rope_theta <= 1)
    file.refuse("rope_theta", fmt::format("yarn needs more than 1, not {}", config.rope_theta));
}

}  // namespace spillway::model
