// Reads a Hugging Face config.json into a ModelConfig; every value is checked before it is used.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>

#include "lib/core/error.hpp"
#include "lib/model/spec.hpp"

namespace spillway::model {
namespace {

using nlohmann::json;

// Bounds keep every product of two extents within int64 and the list of units within memory.
constexpr std::int64_t kExtentMax = (std::int64_t{1} << 31) - 1;
constexpr std::int64_t kLayersMax = 100'000;
constexpr double kParametersMax = 1e15;

constexpr std::initializer_list<char const*> kDropoutKeys = {
    "attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout", "hidden_dropout", "dropout"};

/// A JSON object whose values are read by key, type and bounds, with the place named in every
/// error.
class Object {
 public:
  Object(json const& value, std::string origin, std::string path = "")
      : value_(value), origin_(std::move(origin)), path_(std::move(path)) {
    if (!value.is_object())
      fail(Fault::bad_input, fmt::format("{}: {} is {} (an object is needed). Correct it?", origin_,
                                         path_.empty() ? "the file" : path_, shown(value)));
  }

  /// Null counts as absent.
  bool has(std::string const& key) const { return value_.contains(key) && !value_[key].is_null(); }
  json const& raw(std::string const& key) const { return value_[key]; }
  Object child(std::string const& key) const { return {value_[key], origin_, path_ + key + "."}; }

  std::int64_t integer(std::string const& key, std::int64_t least, std::int64_t most,
                       std::optional<std::int64_t> otherwise = {}) const {
    if (!has(key)) return otherwise ? *otherwise : missing<std::int64_t>(key);
    json const& value = value_[key];
    bool const fits = value.is_number_unsigned()
                          ? value.get<std::uint64_t>() <= std::uint64_t(kExtentMax)
                          : value.is_number_integer();
    if (!fits || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
      refuse(key, fmt::format("an integer from {} to {} is needed", least, most));
    return value.get<std::int64_t>();
  }

  double number(std::string const& key, double least, double most,
                std::optional<double> otherwise = {}) const {
    if (!has(key)) return otherwise ? *otherwise : missing<double>(key);
    json const& value = value_[key];
    bool const fits =
        value.is_number() && value.get<double>() >= least && value.get<double>() <= most;
    if (!fits) refuse(key, fmt::format("a number from {} to {} is needed", least, most));
    return value.get<double>();
  }

  bool boolean(std::string const& key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!value_[key].is_boolean()) refuse(key, "true or false is needed");
    return value_[key].get<bool>();
  }

  std::string text(std::string const& key, std::optional<std::string> otherwise = {}) const {
    if (!has(key)) return otherwise ? *otherwise : missing<std::string>(key);
    if (!value_[key].is_string()) refuse(key, "a text is needed");
    return value_[key].get<std::string>();
  }

  [[noreturn]] void refuse(std::string const& key, std::string const& why) const {
    fail(Fault::bad_input,
         fmt::format("{}: {}{} is {} ({}). Use another model or correct the file?", origin_, path_,
                     key, shown(value_[key]), why));
  }

 private:
  template <class Value>
  [[noreturn]] Value missing(std::string const& key) const {
    fail(Fault::bad_input,
         fmt::format("{}: {}{} is missing (the model cannot be built without it). Add it?", origin_,
                     path_, key));
  }
  static std::string shown(json const& value) {
    std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    return text.size() > 80 ? text.substr(0, 80) + "..." : text;
  }

  json const& value_;
  std::string origin_;
  std::string path_;
};

json parse_text(std::string const& text, std::string const& origin) {
  try {
    return json::parse(text);
  } catch (json::exception const& error) {
    fail(Fault::bad_input,
         fmt::format("{} is not valid JSON ({}). Is it a config.json?", origin, error.what()));
  }
}

void read_gpt2(Object const& file, ModelConfig& config) {
  config.family = Family::gpt2;
  config.vocab_size = file.integer("vocab_size", 1, kExtentMax);
  config.hidden_size = file.integer("n_embd", 1, kExtentMax);
  config.layers = file.integer("n_layer", 1, kLayersMax);
  config.heads = file.integer("n_head", 1, kExtentMax);
  config.kv_heads = config.heads;
  config.max_positions =
      file.integer("n_positions", 1, kExtentMax, file.integer("n_ctx", 1, kExtentMax, 1024));
  if (config.hidden_size % config.heads != 0)
    file.refuse("n_head", fmt::format("n_embd {} is not a multiple of it", config.hidden_size));
  config.head_dim = config.hidden_size / config.heads;
  bool const fits = file.has("n_inner") || config.hidden_size <= kExtentMax / 4;
  if (!fits) file.refuse("n_embd", fmt::format("4 times it exceeds {}", kExtentMax));
  config.intermediate_size = file.integer("n_inner", 1, kExtentMax, 4 * config.hidden_size);
  config.norm_eps = file.number("layer_norm_epsilon", 1e-30, 1, 1e-5);
  std::string const activation = file.text("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    file.refuse("activation_function", "supported: gelu_new, gelu_pytorch_tanh");
  if (file.boolean("add_cross_attention", false))
    file.refuse("add_cross_attention", "decoders without an encoder are supported");
  // reorder_and_upcast_attn asks for scores in fp32, which is what attention does in any case.
  file.boolean("reorder_and_upcast_attn", false);
  config.scale_attention = file.boolean("scale_attn_weights", true);
  config.scale_attention_by_layer = file.boolean("scale_attn_by_inverse_layer_idx", false);
  config.tied_head = file.boolean("tie_word_embeddings", true);
  config.qkv_bias = config.out_bias = config.mlp_bias = true;
  config.norm = Norm::layer;
  config.positions = Positions::learned;
  config.mlp = Mlp::gelu;
  config.weight_order = WeightOrder::in_out;
}

void read_rope_scaling(Object const& rope, ModelConfig& config) {
  std::string const key = rope.has("rope_type") || !rope.has("type") ? "rope_type" : "type";
  std::string const type = rope.text(key, "default");
  rope.number("partial_rotary_factor", 0, 1, 1.0);
  if (rope.has("partial_rotary_factor") && rope.number("partial_rotary_factor", 0, 1) != 1.0)
    rope.refuse("partial_rotary_factor", "rotation of all dimensions of a head is supported");
  if (type == "default") return;
  if (type != "linear" && type != "llama3") rope.refuse(key, "supported: default, linear, llama3");
  config.rope_factor = rope.number("factor", 1, 1e9);
  config.rope_scaling = RopeScaling::linear;
  if (type == "linear") return;
  config.rope_scaling = RopeScaling::llama3;
  config.rope_low_freq_factor = rope.number("low_freq_factor", 1e-9, 1e9);
  config.rope_high_freq_factor = rope.number("high_freq_factor", 1e-9, 1e9);
  config.rope_original_positions = rope.integer("original_max_position_embeddings", 1, kExtentMax);
  if (config.rope_high_freq_factor <= config.rope_low_freq_factor)
    rope.refuse("high_freq_factor",
                fmt::format("low_freq_factor {} must be smaller", config.rope_low_freq_factor));
}

/// rope_theta beside rope_scaling (transformers 4), or both within rope_parameters (transformers
/// 5).
void read_rope(Object const& file, ModelConfig& config) {
  config.rope_theta = file.number("rope_theta", 1e-3, 1e30, 10000.0);
  bool const both = file.has("rope_parameters") && file.has("rope_scaling");
  if (both && file.raw("rope_parameters") != file.raw("rope_scaling"))
    file.refuse("rope_scaling", "rope_parameters says something else");
  if (file.has("rope_scaling")) read_rope_scaling(file.child("rope_scaling"), config);
  if (!file.has("rope_parameters")) return;
  Object const rope = file.child("rope_parameters");
  read_rope_scaling(rope, config);
  double const theta = rope.number("rope_theta", 1e-3, 1e30, config.rope_theta);
  if (file.has("rope_theta") && theta != config.rope_theta)
    file.refuse("rope_theta", fmt::format("rope_parameters.rope_theta is {}", theta));
  config.rope_theta = theta;
}

void read_llama(Object const& file, ModelConfig& config) {
  config.family = Family::llama;
  config.vocab_size = file.integer("vocab_size", 1, kExtentMax);
  config.hidden_size = file.integer("hidden_size", 1, kExtentMax);
  config.layers = file.integer("num_hidden_layers", 1, kLayersMax);
  config.heads = file.integer("num_attention_heads", 1, kExtentMax);
  config.kv_heads = file.integer("num_key_value_heads", 1, kExtentMax, config.heads);
  config.intermediate_size = file.integer("intermediate_size", 1, kExtentMax);
  config.max_positions = file.integer("max_position_embeddings", 1, kExtentMax, 2048);
  if (config.heads % config.kv_heads != 0)
    file.refuse("num_key_value_heads",
                fmt::format("num_attention_heads {} is not a multiple of it", config.heads));
  if (!file.has("head_dim") && config.hidden_size % config.heads != 0)
    file.refuse("num_attention_heads",
                fmt::format("hidden_size {} is not a multiple of it and there is no head_dim",
                            config.hidden_size));
  config.head_dim = file.integer("head_dim", 1, kExtentMax, config.hidden_size / config.heads);
  std::string const source = file.has("head_dim") ? "head_dim" : "num_attention_heads";
  if (config.head_dim % 2 != 0)
    file.refuse(source,
                fmt::format("rotary positions need an even head_dim, not {}", config.head_dim));
  if (config.head_dim > kExtentMax / config.heads)
    file.refuse(source, fmt::format("num_attention_heads * head_dim exceeds {}", kExtentMax));
  config.norm_eps = file.number("rms_norm_eps", 1e-30, 1, 1e-6);
  std::string const activation = file.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") file.refuse("hidden_act", "supported: silu");
  config.tied_head = file.boolean("tie_word_embeddings", false);
  config.qkv_bias = config.out_bias = file.boolean("attention_bias", false);
  config.mlp_bias = file.boolean("mlp_bias", false);
  config.norm = Norm::rms;
  config.positions = Positions::rotary;
  config.mlp = Mlp::gated_silu;
  config.weight_order = WeightOrder::out_in;
  read_rope(file, config);
}

void read_notes(Object const& file, ModelConfig& config) {
  for (char const* key : kDropoutKeys) {
    double const rate = file.number(key, 0, 1, 0.0);
    if (rate > 0)
      config.notes.push_back(
          fmt::format("{} = {} is not followed: training runs without dropout", key, rate));
  }
}

void check_size(ModelConfig const& config, std::string const& origin) {
  auto const wide = [](std::int64_t a, std::int64_t b) { return double(a) * double(b); };
  double const attention = wide(config.hidden_size, config.heads * config.head_dim) * 4;
  double const mlp = wide(config.hidden_size, config.intermediate_size) * 3;
  double const total = double(config.layers) * (attention + mlp) +
                       wide(config.hidden_size, config.vocab_size) * 2 +
                       wide(config.hidden_size, config.max_positions);
  if (total > kParametersMax)
    fail(Fault::bad_input,
         fmt::format("{}: the model would have about {:.3g} parameters (more than "
                     "{:.0e}). Is a size mistyped?",
                     origin, total, kParametersMax));
}

}  // namespace

ModelConfig parse_config(std::string const& text, std::string const& origin) {
  json const parsed = parse_text(text, origin);
  Object const file(parsed, origin);
  std::string const type = file.text("model_type");
  ModelConfig config;
  if (type == "gpt2") {
    read_gpt2(file, config);
  } else if (type == "llama") {
    read_llama(file, config);
  } else {
    file.refuse("model_type", "supported: gpt2, llama");
  }
  if (file.has("quantization_config"))
    file.refuse("quantization_config", "models with plain weights are supported");
  config.initializer_range = file.number("initializer_range", 0, 1e3, 0.02);
  config.dtype = file.text("dtype", file.text("torch_dtype", ""));
  config.json = text;
  read_notes(file, config);
  check_size(config, origin);
  return config;
}

}  // namespace spillway::model
