// What a model is made of: units, tensors, shapes, initial values. Read from config.json; no
// weights here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/core/dtype.hpp"
#include "lib/shard/flat.hpp"

namespace spillway::model {

enum class Family { gpt2, llama, mistral, qwen2, qwen3, mixtral };
/// As "model_type" spells it.
char const* name_of(Family family);

enum class Norm { layer, rms };
enum class Positions { learned, rotary };
enum class Mlp { gelu, gated_silu };  // gelu: the tanh form (gelu_new)
/// Row order of a linear layer's weight: y = x W (Conv1D of GPT-2, [in, out]) or y = x W^T ([out,
/// in]).
enum class WeightOrder { in_out, out_in };
/// How rotary frequencies are stretched for long contexts, by "rope_type" (none: "default").
enum class RopeScaling { none, linear, dynamic, yarn, llama3 };

struct ModelConfig {
  Family family = Family::gpt2;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t max_positions = 0;
  double norm_eps = 1e-5;
  double rope_theta = 10000.0;
  double initializer_range = 0.02;
  bool tied_head = false;
  bool qkv_bias = false;
  bool out_bias = false;  // of the attention's output projection: attention_bias of Llama sets both
  bool mlp_bias = false;
  bool head_norms = false;                // RMSNorm of each query and key before its rotation
  bool scale_attention = true;            // scores / sqrt(head_dim)
  bool scale_attention_by_layer = false;  // scores of layer i / (i + 1) besides
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 1;                                      // of all but none
  double rope_low_freq_factor = 1, rope_high_freq_factor = 4;  // llama3
  double rope_beta_fast = 32, rope_beta_slow = 1;              // yarn: rotations at the ramp's ends
  double rope_attention_factor = 1;                            // yarn: of the rotated vectors
  bool rope_truncate = true;                                   // yarn: the ramp has whole ends
  std::int64_t rope_original_positions = 0;                    // llama3 and yarn
  std::vector<std::int64_t> windows;  // of each layer: positions a query sees, itself included; 0:
                                      // all before it. Empty: 0 for all
  std::int64_t experts = 0;  // MLPs of a block that a router chooses among; 0: one, no router
  std::int64_t experts_per_token = 0;  // that it chooses
  double balance_coefficient = 0;      // of the load-balancing loss that is added; 0: none
  Norm norm = Norm::layer;
  Positions positions = Positions::learned;
  Mlp mlp = Mlp::gelu;
  WeightOrder weight_order = WeightOrder::in_out;
  std::string dtype;  // of the stored weights as the file names it ("float32"); empty: not said
  std::string json;   // config.json as it came in: kept for checkpoints and export
  std::vector<std::string> notes;  // what was read but is not followed (dropout), for the log

  std::int64_t window(std::int64_t layer) const {
    return windows.empty() ? 0 : windows.at(static_cast<std::size_t>(layer));
  }
};

/// Parses the text of a Hugging Face config.json. `origin` names it in errors. Throws
/// Fault::bad_input naming key and value for what is missing, wrong or not supported (unknown
/// model_type, rope_type, activation, ...).
ModelConfig parse_config(std::string const& json, std::string const& origin);

struct TensorSpec {
  std::string name;  // full Hugging Face name, e.g. "transformer.h.0.attn.c_attn.weight"
  std::vector<std::int64_t> shape;
  double init_mean = 0;              // 1 for norm weights
  double init_std = 0;               // 0: constant init_mean
  bool decay = false;                // two or more dimensions
  double use = 1;                    // share of the positions that it is multiplied with
  std::vector<std::string> aliases;  // other names that files carry it under, for reading
};

/// Names under which a file may carry the tensor: its own, then without the base model's prefix,
/// then for the embedding of a tied head the head's. Write only under `name`.
std::vector<std::string> accepted_names(TensorSpec const& tensor);

/// Parameters that are gathered, used and released together.
struct UnitSpec {
  std::string name;  // "embedding", "block.0", ..., "head"
  std::vector<TensorSpec> tensors;
};

struct ModelSpec {
  ModelConfig config;
  std::vector<UnitSpec> units;  // embedding, layers blocks, head (final norm and untied head)
  std::int64_t parameters = 0;  // tied weights once
  std::int64_t parameters_per_token = 0;  // that a token passes through: not those of all experts

  shard::FlatLayout layout(UnitId unit) const;
};

/// Names follow save_pretrained of transformers for the family (GPT-2: "transformer.wte.weight",
/// ...).
ModelSpec make_spec(ModelConfig config);

}  // namespace spillway::model
