#include "lib/model/names.hpp"

#include <fmt/core.h>

namespace spillway::model {
namespace {

/// Names as save_pretrained of transformers writes them. Those of a block follow its prefix and
/// number; empty where a family has no such module.
struct Table {
  ModelNames model;
  char const* block;
  BlockNames modules;
  char const* expert;
  ExpertNames expert_modules;
};

Table const& table_of(Family family) {
  static Table const gpt2{
      .model = {.prefix = "transformer.",
                .token_embedding = "transformer.wte",
                .position_embedding = "transformer.wpe",
                .final_norm = "transformer.ln_f",
                .head = "lm_head"},
      .block = "transformer.h",
      .modules = {.attention_norm = "ln_1",
                  .qkv = "attn.c_attn",
                  .out = "attn.c_proj",
                  .mlp_norm = "ln_2",
                  .up = "mlp.c_fc",
                  .down = "mlp.c_proj"},
      .expert = "",
      .expert_modules = {},
  };
  static Table const llama_like{
      .model = {.prefix = "model.",
                .token_embedding = "model.embed_tokens",
                .position_embedding = "",
                .final_norm = "model.norm",
                .head = "lm_head"},
      .block = "model.layers",
      .modules = {.attention_norm = "input_layernorm",
                  .q = "self_attn.q_proj",
                  .k = "self_attn.k_proj",
                  .v = "self_attn.v_proj",
                  .q_norm = "self_attn.q_norm",
                  .k_norm = "self_attn.k_norm",
                  .out = "self_attn.o_proj",
                  .mlp_norm = "post_attention_layernorm",
                  .router = "block_sparse_moe.gate",
                  .gate = "mlp.gate_proj",
                  .up = "mlp.up_proj",
                  .down = "mlp.down_proj"},
      .expert = "block_sparse_moe.experts",
      .expert_modules = {.gate = "w1", .up = "w3", .down = "w2"},
  };
  return family == Family::gpt2 ? gpt2 : llama_like;
}

}  // namespace

ModelNames const& model_names(Family family) { return table_of(family).model; }

BlockNames block_names(Family family, std::int64_t layer) {
  Table const& table = table_of(family);
  std::string const block = fmt::format("{}.{}.", table.block, layer);
  BlockNames names = table.modules;
  for (std::string BlockNames::*part :
       {&BlockNames::attention_norm, &BlockNames::qkv, &BlockNames::q, &BlockNames::k,
        &BlockNames::v, &BlockNames::q_norm, &BlockNames::k_norm, &BlockNames::out,
        &BlockNames::mlp_norm, &BlockNames::router, &BlockNames::gate, &BlockNames::up,
        &BlockNames::down})
    if (!(names.*part).empty()) names.*part = block + names.*part;
  return names;
}

ExpertNames expert_names(Family family, std::int64_t layer, std::int64_t expert) {
  Table const& table = table_of(family);
  std::string const prefix = fmt::format("{}.{}.{}.{}.", table.block, layer, table.expert, expert);
  ExpertNames const& modules = table.expert_modules;
  return {prefix + modules.gate, prefix + modules.up, prefix + modules.down};
}

}  // namespace spillway::model
