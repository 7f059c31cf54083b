#include "lib/model/spec.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "lib/core/error.hpp"

namespace spillway::model {
namespace {

ModelSpec spec_of(std::string const& json) { return make_spec(parse_config(json, "test")); }

TensorSpec find(ModelSpec const& spec, std::string const& name) {
  for (auto const& unit : spec.units)
    for (auto const& tensor : unit.tensors)
      if (tensor.name == name) return tensor;
  throw Error(Fault::internal, "no tensor " + name);
}

bool has(ModelSpec const& spec, std::string const& name) {
  for (auto const& unit : spec.units)
    for (auto const& tensor : unit.tensors)
      if (tensor.name == name) return true;
  return false;
}

ModelSpec gpt2_small() {
  return spec_of(R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_layer": 12,
                     "n_head": 12, "n_positions": 1024})");
}

std::string const kTinyLlama = R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048,
    "num_hidden_layers": 22, "num_attention_heads": 32, "num_key_value_heads": 4,
    "intermediate_size": 5632)";

TEST(SpecTest, parameter_counts_are_those_published) {
  EXPECT_EQ(gpt2_small().parameters, 124'439'808);
  EXPECT_EQ(spec_of(kTinyLlama + "}").parameters, 1'100'048'384);
  EXPECT_EQ(spec_of(R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096,
      "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 11008})")
                .parameters,
            6'738'415'616);
  EXPECT_EQ(spec_of(R"({"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
      "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
      "intermediate_size": 14336})")
                .parameters,
            8'030'261'248);
  // SmolLM2-135M: tied head, 9 heads that read 3.
  EXPECT_EQ(spec_of(R"({"model_type": "llama", "vocab_size": 49152, "hidden_size": 576,
      "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
      "intermediate_size": 1536, "tie_word_embeddings": true})")
                .parameters,
            134'515'008);
}

TEST(SpecTest, parameter_counts_of_other_families_are_those_published) {
  EXPECT_EQ(spec_of(R"({"model_type": "mistral", "vocab_size": 32000, "hidden_size": 4096,
      "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 14336})")
                .parameters,
            7'241'732'096);
  // Qwen2-0.5B: biases of q, k and v.
  EXPECT_EQ(spec_of(R"({"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896,
      "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
      "intermediate_size": 4864, "tie_word_embeddings": true})")
                .parameters,
            494'032'768);
  // Qwen3-0.6B: 16 heads of 128 over 1024 hidden values, norms of heads.
  EXPECT_EQ(spec_of(R"({"model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024,
      "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
      "intermediate_size": 3072, "tie_word_embeddings": true})")
                .parameters,
            596'049'920);
}

std::string const kMixtral = R"({"model_type": "mixtral", "vocab_size": 32000, "hidden_size": 4096,
    "num_hidden_layers": 32, "num_attention_heads": 32, "intermediate_size": 14336})";

TEST(SpecTest, mixtral_has_47_billion_parameters_of_which_a_token_sees_13) {
  auto const spec = spec_of(kMixtral);
  EXPECT_EQ(spec.parameters, 46'702'792'704);
  EXPECT_EQ(spec.parameters_per_token, 12'879'925'248);
  auto const dense = gpt2_small();
  EXPECT_EQ(dense.parameters_per_token, dense.parameters);
}

TEST(SpecTest, mixtral_names_its_experts_as_its_files_do) {
  auto const spec = spec_of(kMixtral);
  std::string const block = "model.layers.31.block_sparse_moe.";
  EXPECT_EQ(find(spec, block + "gate.weight").shape, (std::vector<std::int64_t>{8, 4096}));
  EXPECT_EQ(find(spec, block + "experts.7.w1.weight").shape,
            (std::vector<std::int64_t>{14336, 4096}));
  EXPECT_EQ(find(spec, block + "experts.7.w2.weight").shape,
            (std::vector<std::int64_t>{4096, 14336}));
  EXPECT_EQ(find(spec, block + "experts.7.w3.weight").shape,
            (std::vector<std::int64_t>{14336, 4096}));
  EXPECT_FALSE(has(spec, "model.layers.0.mlp.gate_proj.weight"));
  auto const layout = spec.layout(UnitId{1});
  EXPECT_EQ(layout.find("model.layers.0.block_sparse_moe.experts.3.w1.weight").range.end,
            layout.find("model.layers.0.block_sparse_moe.experts.3.w3.weight").range.begin);
}

TEST(SpecTest, units_are_embedding_blocks_and_head) {
  auto const spec = gpt2_small();
  ASSERT_EQ(spec.units.size(), 14u);
  EXPECT_EQ(spec.units[0].name, "embedding");
  EXPECT_EQ(spec.units[1].name, "block.0");
  EXPECT_EQ(spec.units[12].name, "block.11");
  EXPECT_EQ(spec.units[13].name, "head");
  EXPECT_EQ(spec.units[13].tensors.size(), 2u);
}

TEST(SpecTest, a_tied_head_has_no_tensor_and_the_embedding_answers_to_its_name) {
  auto const tied = spec_of(kTinyLlama + R"(, "tie_word_embeddings": true})");
  auto const untied = spec_of(kTinyLlama + "}");
  EXPECT_FALSE(has(tied, "lm_head.weight"));
  EXPECT_EQ(find(untied, "lm_head.weight").shape, (std::vector<std::int64_t>{32000, 2048}));
  EXPECT_EQ(accepted_names(find(tied, "model.embed_tokens.weight")),
            (std::vector<std::string>{"model.embed_tokens.weight", "embed_tokens.weight",
                                      "lm_head.weight"}));
  EXPECT_EQ(accepted_names(find(untied, "model.embed_tokens.weight")),
            (std::vector<std::string>{"model.embed_tokens.weight", "embed_tokens.weight"}));
  EXPECT_EQ(accepted_names(find(untied, "lm_head.weight")),
            std::vector<std::string>{"lm_head.weight"});
}

TEST(SpecTest, gpt2_tensors_are_accepted_without_their_prefix) {
  EXPECT_EQ(accepted_names(find(gpt2_small(), "transformer.h.3.attn.c_attn.bias")),
            (std::vector<std::string>{"transformer.h.3.attn.c_attn.bias", "h.3.attn.c_attn.bias"}));
}

TEST(SpecTest, gpt2_starts_as_published) {
  auto const spec = gpt2_small();
  EXPECT_EQ(find(spec, "transformer.wte.weight").init_std, 0.02);
  EXPECT_EQ(find(spec, "transformer.wpe.weight").init_std, 0.02);
  EXPECT_EQ(find(spec, "transformer.h.0.attn.c_attn.weight").init_std, 0.02);
  EXPECT_EQ(find(spec, "transformer.h.0.mlp.c_fc.weight").init_std, 0.02);
  double const residual = 0.02 / std::sqrt(24.0);
  EXPECT_DOUBLE_EQ(find(spec, "transformer.h.0.attn.c_proj.weight").init_std, residual);
  EXPECT_DOUBLE_EQ(find(spec, "transformer.h.11.mlp.c_proj.weight").init_std, residual);
  EXPECT_EQ(find(spec, "transformer.h.5.ln_2.weight").init_mean, 1);
  EXPECT_EQ(find(spec, "transformer.h.5.ln_2.weight").init_std, 0);
  EXPECT_EQ(find(spec, "transformer.h.5.ln_2.bias").init_mean, 0);
  EXPECT_EQ(find(spec, "transformer.h.5.mlp.c_fc.bias").init_std, 0);
}

TEST(SpecTest, llama_starts_with_one_deviation_everywhere) {
  auto const spec = spec_of(kTinyLlama + R"(, "initializer_range": 0.05})");
  for (auto const& unit : spec.units) {
    for (auto const& tensor : unit.tensors) {
      EXPECT_EQ(tensor.init_std, tensor.shape.size() == 2 ? 0.05 : 0) << tensor.name;
      EXPECT_EQ(tensor.init_mean, tensor.shape.size() == 2 ? 0 : 1) << tensor.name;
    }
  }
}

TEST(SpecTest, tensors_of_two_dimensions_decay_and_others_do_not) {
  for (auto const& unit : gpt2_small().units)
    for (auto const& tensor : unit.tensors)
      EXPECT_EQ(tensor.decay, tensor.shape.size() >= 2) << tensor.name;
}

TEST(SpecTest, llama_biases_follow_the_two_flags) {
  auto const attention = spec_of(kTinyLlama + R"(, "attention_bias": true})");
  EXPECT_EQ(find(attention, "model.layers.0.self_attn.q_proj.bias").shape,
            std::vector<std::int64_t>{2048});
  EXPECT_EQ(find(attention, "model.layers.0.self_attn.k_proj.bias").shape,
            std::vector<std::int64_t>{256});
  EXPECT_TRUE(has(attention, "model.layers.0.self_attn.v_proj.bias"));
  EXPECT_TRUE(has(attention, "model.layers.0.self_attn.o_proj.bias"));
  EXPECT_FALSE(has(attention, "model.layers.0.mlp.up_proj.bias"));
  auto const mlp = spec_of(kTinyLlama + R"(, "mlp_bias": true})");
  EXPECT_FALSE(has(mlp, "model.layers.0.self_attn.o_proj.bias"));
  EXPECT_EQ(find(mlp, "model.layers.0.mlp.gate_proj.bias").shape, std::vector<std::int64_t>{5632});
  EXPECT_TRUE(has(mlp, "model.layers.21.mlp.down_proj.bias"));
}

TEST(SpecTest, head_dim_sets_the_widths_of_the_projections) {
  auto const spec = spec_of(kTinyLlama + R"(, "head_dim": 80})");
  EXPECT_EQ(find(spec, "model.layers.0.self_attn.q_proj.weight").shape,
            (std::vector<std::int64_t>{2560, 2048}));
  EXPECT_EQ(find(spec, "model.layers.0.self_attn.k_proj.weight").shape,
            (std::vector<std::int64_t>{320, 2048}));
  EXPECT_EQ(find(spec, "model.layers.0.self_attn.o_proj.weight").shape,
            (std::vector<std::int64_t>{2048, 2560}));
}

TEST(SpecTest, a_layout_places_every_tensor_of_its_unit) {
  auto const spec = gpt2_small();
  for (int u = 0; u < static_cast<int>(spec.units.size()); ++u) {
    auto const layout = spec.layout(UnitId{u});
    ASSERT_EQ(layout.tensors().size(), spec.units[static_cast<std::size_t>(u)].tensors.size());
    for (auto const& tensor : spec.units[static_cast<std::size_t>(u)].tensors)
      EXPECT_EQ(layout.find(tensor.name).shape, tensor.shape);
  }
}

}  // namespace
}  // namespace spillway::model
