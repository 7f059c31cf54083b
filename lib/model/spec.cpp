#include "lib/model/spec.hpp"

#include <fmt/core.h>

#include <cmath>

#include "lib/core/numeric.hpp"
#include "lib/model/names.hpp"

namespace spillway::model {
namespace {

/// Appends tensors with the shapes, initial values and aliases of one family.
class UnitBuilder {
 public:
  UnitBuilder(ModelConfig const& config, std::string name) : config_(config) { unit_.name = name; }

  void table(std::string const& name, std::int64_t rows) {
    add(name + ".weight", {rows, config_.hidden_size}, 0, config_.initializer_range);
  }
  void norm(std::string const& module) {
    add(module + ".weight", {config_.hidden_size}, 1, 0);
    if (config_.norm == Norm::layer) add(module + ".bias", {config_.hidden_size}, 0, 0);
  }
  void head_norm(std::string const& module) { add(module + ".weight", {config_.head_dim}, 1, 0); }
  void weight(std::string const& module, std::int64_t in, std::int64_t out, double std) {
    bool const in_out = config_.weight_order == WeightOrder::in_out;
    add(module + ".weight", in_out ? std::vector{in, out} : std::vector{out, in}, 0, std);
  }
  void bias(std::string const& module, std::int64_t out) { add(module + ".bias", {out}, 0, 0); }
  void linear(std::string const& module, std::int64_t in, std::int64_t out, double std,
              bool has_bias) {
    weight(module, in, out, std);
    if (has_bias) bias(module, out);
  }
  /// Of the tensors so far that are added after `first`.
  void use(std::size_t first, double share) {
    for (std::size_t i = first; i < unit_.tensors.size(); ++i) unit_.tensors[i].use = share;
  }
  std::size_t size() const { return unit_.tensors.size(); }
  void alias(std::string name) { unit_.tensors.back().aliases.push_back(std::move(name)); }
  UnitSpec take() { return std::move(unit_); }

 private:
  void add(std::string name, std::vector<std::int64_t> shape, double mean, double std) {
    TensorSpec tensor{.name = std::move(name),
                      .shape = std::move(shape),
                      .init_mean = mean,
                      .init_std = std,
                      .aliases = {}};
    tensor.decay = tensor.shape.size() >= 2;
    std::string const prefix = model_names(config_.family).prefix;
    if (tensor.name.starts_with(prefix))
      tensor.aliases.push_back(tensor.name.substr(prefix.size()));
    unit_.tensors.push_back(std::move(tensor));
  }

  ModelConfig const& config_;
  UnitSpec unit_;
};

UnitSpec embedding_unit(ModelConfig const& config) {
  ModelNames const& names = model_names(config.family);
  UnitBuilder unit(config, "embedding");
  unit.table(names.token_embedding, config.vocab_size);
  if (config.tied_head) unit.alias(names.head + ".weight");
  if (config.positions == Positions::learned)
    unit.table(names.position_embedding, config.max_positions);
  return unit.take();
}

/// Gate and up beside each other: one matrix product where no padding lies between.
void add_experts(ModelConfig const& config, std::int64_t layer, UnitBuilder& unit) {
  std::int64_t const hidden = config.hidden_size, inner = config.intermediate_size;
  double const std = config.initializer_range;
  unit.weight(block_names(config.family, layer).router, hidden, config.experts, std);
  std::size_t const first = unit.size();
  for (std::int64_t expert = 0; expert < config.experts; ++expert) {
    ExpertNames const names = expert_names(config.family, layer, expert);
    unit.weight(names.gate, hidden, inner, std);
    unit.weight(names.up, hidden, inner, std);
    unit.weight(names.down, inner, hidden, std);
  }
  unit.use(first,
           static_cast<double>(config.experts_per_token) / static_cast<double>(config.experts));
}

UnitSpec block_unit(ModelConfig const& config, std::int64_t layer) {
  BlockNames const names = block_names(config.family, layer);
  std::int64_t const hidden = config.hidden_size;
  std::int64_t const queries = config.heads * config.head_dim;
  std::int64_t const keys = config.kv_heads * config.head_dim;
  double const std = config.initializer_range;
  // GPT-2 shrinks what is added to the residual stream by the number of additions (Radford et al.
  // 2019).
  double const residual_std = config.family == Family::gpt2
                                  ? std / std::sqrt(2.0 * static_cast<double>(config.layers))
                                  : std;
  UnitBuilder unit(config, fmt::format("block.{}", layer));
  unit.norm(names.attention_norm);
  if (!names.qkv.empty()) {
    unit.linear(names.qkv, hidden, queries + 2 * keys, std, config.qkv_bias);
  } else {  // weights beside each other, and biases: one matrix product where no padding lies
            // between
    unit.weight(names.q, hidden, queries, std);
    unit.weight(names.k, hidden, keys, std);
    unit.weight(names.v, hidden, keys, std);
    if (config.qkv_bias) {
      unit.bias(names.q, queries);
      unit.bias(names.k, keys);
      unit.bias(names.v, keys);
    }
  }
  if (config.head_norms) {
    unit.head_norm(names.q_norm);
    unit.head_norm(names.k_norm);
  }
  unit.linear(names.out, queries, hidden, residual_std, config.out_bias);
  unit.norm(names.mlp_norm);
  if (config.experts > 0) {
    add_experts(config, layer, unit);
    return unit.take();
  }
  if (config.mlp == Mlp::gated_silu)
    unit.linear(names.gate, hidden, config.intermediate_size, std, config.mlp_bias);
  unit.linear(names.up, hidden, config.intermediate_size, std, config.mlp_bias);
  unit.linear(names.down, config.intermediate_size, hidden, residual_std, config.mlp_bias);
  return unit.take();
}

UnitSpec head_unit(ModelConfig const& config) {
  ModelNames const& names = model_names(config.family);
  UnitBuilder unit(config, "head");
  unit.norm(names.final_norm);
  if (!config.tied_head) unit.table(names.head, config.vocab_size);
  return unit.take();
}

}  // namespace

std::vector<std::string> accepted_names(TensorSpec const& tensor) {
  std::vector<std::string> names{tensor.name};
  names.insert(names.end(), tensor.aliases.begin(), tensor.aliases.end());
  return names;
}

shard::FlatLayout ModelSpec::layout(UnitId unit) const {
  std::vector<shard::FlatLayout::Tensor> tensors;
  for (auto const& tensor : units.at(static_cast<std::size_t>(unit.get())).tensors)
    tensors.push_back({tensor.name, tensor.shape});
  return shard::FlatLayout(tensors);
}

ModelSpec make_spec(ModelConfig config) {
  ModelSpec spec;
  spec.units.push_back(embedding_unit(config));
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    spec.units.push_back(block_unit(config, layer));
  spec.units.push_back(head_unit(config));
  double used = 0;
  for (auto const& unit : spec.units)
    for (auto const& tensor : unit.tensors) {
      spec.parameters += shard::element_count(tensor.shape);
      used += tensor.use * static_cast<double>(shard::element_count(tensor.shape));
    }
  spec.parameters_per_token = std::llround(used);
  spec.config = std::move(config);
  return spec;
}

}  // namespace spillway::model
