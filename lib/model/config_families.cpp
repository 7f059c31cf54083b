// From a family's config.json to the parts that its decoder is composed of. GPT-2 has keys of its
// own; the others share Llama's and differ by a row of a table.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "lib/core/error.hpp"
#include "lib/model/config_parts.hpp"

namespace spillway::model {
namespace {

enum class Bias {
  none,
  qkv,
  attention_bias
};  // attention_bias: that key, for all four projections
/// Which layers sliding_window is for: none reads it, all of them, or those that
/// use_sliding_window, max_window_layers and layer_types say.
enum class Window { none, all_layers, some_layers };

/// What a family computes, and what transformers takes where its config.json leaves a key out.
struct Traits {
  char const* model_type;
  Family family;
  std::int64_t kv_heads = 0;  // 0: as many as heads, which null says everywhere
  std::int64_t head_dim = 0;  // 0: hidden_size / heads
  std::int64_t max_positions = 0;
  double norm_eps = 1e-6;
  double rope_theta = 10000.0;
  Bias bias = Bias::none;
  bool mlp_bias = false;  // the key is read
  bool head_norms = false;
  bool experts = false;
  Window window = Window::none;
  std::int64_t sliding_window = 0;  // positions; 0: all
};

constexpr Traits kLlamaLike[] = {
    {.model_type = "llama",
     .family = Family::llama,
     .max_positions = 2048,
     .bias = Bias::attention_bias,
     .mlp_bias = true},
    {.model_type = "mistral",
     .family = Family::mistral,
     .kv_heads = 8,
     .max_positions = 131072,
     .window = Window::all_layers,
     .sliding_window = 4096},
    {.model_type = "qwen2",
     .family = Family::qwen2,
     .kv_heads = 32,
     .max_positions = 32768,
     .bias = Bias::qkv,
     .window = Window::some_layers,
     .sliding_window = 4096},
    {.model_type = "qwen3",
     .family = Family::qwen3,
     .kv_heads = 32,
     .head_dim = 128,
     .max_positions = 32768,
     .bias = Bias::attention_bias,
     .head_norms = true,
     .window = Window::some_layers,
     .sliding_window = 4096},
    {.model_type = "mixtral",
     .family = Family::mixtral,
     .kv_heads = 8,
     .max_positions = 131072,
     .norm_eps = 1e-5,
     .rope_theta = 1e6,
     .experts = true,
     .window = Window::all_layers},
};

void read_gpt2(ConfigObject const& file, ModelConfig& config) {
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

/// A key whose absence means the family's own number and whose null means `null_means`.
std::int64_t read_count(ConfigObject const& file, std::string const& key, std::int64_t otherwise,
                        std::int64_t null_means) {
  if (file.is_null(key) || (!file.has(key) && otherwise == 0)) return null_means;
  return file.integer(key, 1, kExtentMax, otherwise);
}

void read_heads(ConfigObject const& file, Traits const& traits, ModelConfig& config) {
  config.heads = file.integer("num_attention_heads", 1, kExtentMax);
  config.kv_heads = read_count(file, "num_key_value_heads", traits.kv_heads, config.heads);
  if (config.heads % config.kv_heads != 0)
    file.refuse("num_key_value_heads", fmt::format("num_attention_heads {} is not a multiple of {}",
                                                   config.heads, config.kv_heads));
  std::int64_t const even_share = config.hidden_size / config.heads;
  config.head_dim = read_count(file, "head_dim", traits.head_dim, even_share);
  bool const derived = file.is_null("head_dim") || (!file.has("head_dim") && traits.head_dim == 0);
  if (derived && config.hidden_size % config.heads != 0)
    file.refuse("num_attention_heads",
                fmt::format("hidden_size {} is not a multiple of it and there is no head_dim",
                            config.hidden_size));
  std::string const source = file.has("head_dim") ? "head_dim" : "num_attention_heads";
  if (config.head_dim % 2 != 0)
    file.refuse(source,
                fmt::format("rotary positions need an even head_dim, not {}", config.head_dim));
  if (config.head_dim > kExtentMax / config.heads)
    file.refuse(source, fmt::format("num_attention_heads * head_dim exceeds {}", kExtentMax));
}

/// Whether each layer has the window, from layer_types or, without it, from max_window_layers.
std::vector<bool> read_sliding_layers(ConfigObject const& file, ModelConfig const& config,
                                      bool has_window) {
  auto const layers = static_cast<std::size_t>(config.layers);
  std::vector<bool> sliding(layers, false);
  std::int64_t const first = file.integer("max_window_layers", 0, kExtentMax, 28);
  if (!file.has("layer_types")) {
    for (std::size_t i = 0; i < layers; ++i)
      sliding[i] = has_window && static_cast<std::int64_t>(i) >= first;
    return sliding;
  }
  std::vector<std::string> const types = file.texts("layer_types", config.layers);
  for (std::size_t i = 0; i < layers; ++i) {
    sliding[i] = types[i] == "sliding_attention";
    if (!sliding[i] && types[i] != "full_attention")
      file.refuse("layer_types", "supported: full_attention, sliding_attention");
    if (sliding[i] && !has_window)
      file.refuse("layer_types",
                  "sliding_attention needs use_sliding_window = true and a sliding_window");
  }
  return sliding;
}

void read_windows(ConfigObject const& file, Traits const& traits, ModelConfig& config) {
  if (traits.window == Window::none) return;
  auto const layers = static_cast<std::size_t>(config.layers);
  std::int64_t window = read_count(file, "sliding_window", traits.sliding_window, 0);
  if (traits.window == Window::all_layers) {
    config.windows.assign(layers, window);
    if (file.has("layer_types"))
      config.notes.push_back("layer_types is not followed: sliding_window holds for all layers");
    return;
  }
  if (!file.boolean("use_sliding_window", false)) window = 0;
  for (bool slides : read_sliding_layers(file, config, window > 0))
    config.windows.push_back(slides ? window : 0);
}

/// The load-balancing loss is added where transformers adds it: if output_router_logits is true.
void read_experts(ConfigObject const& file, ModelConfig& config) {
  constexpr std::int64_t kExpertsMax = 1024;
  constexpr std::int64_t kAllExpertsMax = 1'000'000;
  config.experts = file.integer("num_local_experts", 1, kExpertsMax, 8);
  config.experts_per_token = file.integer("num_experts_per_tok", 1, kExpertsMax, 2);
  if (config.experts_per_token > config.experts)
    file.refuse("num_experts_per_tok", fmt::format("num_local_experts is {}, fewer than {}",
                                                   config.experts, config.experts_per_token));
  if (config.layers > kAllExpertsMax / config.experts)
    file.refuse("num_local_experts", fmt::format("times num_hidden_layers {} it exceeds {}",
                                                 config.layers, kAllExpertsMax));
  double const coefficient = file.number("router_aux_loss_coef", 0, 1e6, 0.001);
  if (file.boolean("output_router_logits", false)) {
    config.balance_coefficient = coefficient;
  } else if (coefficient > 0) {
    config.notes.push_back(fmt::format(
        "output_router_logits is false: the load-balancing loss is reported as aux_loss and not "
        "trained on (set it to true to add {} times that loss)",
        coefficient));
  }
  if (file.number("router_jitter_noise", 0, 1, 0.0) > 0)
    config.notes.push_back("router_jitter_noise is not followed: training runs without it");
}

void read_llama_like(ConfigObject const& file, Traits const& traits, ModelConfig& config) {
  config.family = traits.family;
  config.vocab_size = file.integer("vocab_size", 1, kExtentMax);
  config.hidden_size = file.integer("hidden_size", 1, kExtentMax);
  config.layers = file.integer("num_hidden_layers", 1, kLayersMax);
  config.intermediate_size = file.integer("intermediate_size", 1, kExtentMax);
  config.max_positions =
      file.integer("max_position_embeddings", 1, kExtentMax, traits.max_positions);
  read_heads(file, traits, config);
  config.norm_eps = file.number("rms_norm_eps", 1e-30, 1, traits.norm_eps);
  std::string const activation = file.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") file.refuse("hidden_act", "supported: silu");
  config.tied_head = file.boolean("tie_word_embeddings", false);
  if (traits.bias == Bias::attention_bias)
    config.qkv_bias = config.out_bias = file.boolean("attention_bias", false);
  if (traits.bias == Bias::qkv) config.qkv_bias = true;
  if (traits.mlp_bias) config.mlp_bias = file.boolean("mlp_bias", false);
  config.head_norms = traits.head_norms;
  config.norm = Norm::rms;
  config.positions = Positions::rotary;
  config.mlp = Mlp::gated_silu;
  config.weight_order = WeightOrder::out_in;
  if (traits.experts) read_experts(file, config);
  read_windows(file, traits, config);
  read_rope(file, traits.rope_theta, config);
}

}  // namespace

void read_family(ConfigObject const& file, ModelConfig& config) {
  std::string const type = file.text("model_type");
  if (type == "gpt2") return read_gpt2(file, config);
  std::vector<std::string> supported{"gpt2"};
  for (Traits const& traits : kLlamaLike) {
    if (type == traits.model_type) return read_llama_like(file, traits, config);
    supported.push_back(traits.model_type);
  }
  file.refuse("model_type", fmt::format("supported: {}", fmt::join(supported, ", ")));
}

char const* name_of(Family family) {
  for (Traits const& traits : kLlamaLike)
    if (traits.family == family) return traits.model_type;
  return "gpt2";
}

}  // namespace spillway::model
