// What the config.json of each family of Llama's keys may leave out, and what is its own.
#include "tests/lib/model/config_support.hpp"

namespace spillway::model {
namespace {

TEST(FamilyTest, mistral_defaults_are_those_of_transformers) {
  auto const config = like_llama("mistral");
  EXPECT_EQ(config.family, Family::mistral);
  EXPECT_EQ(config.kv_heads, 8);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.max_positions, 131072);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_EQ(config.windows, (std::vector<std::int64_t>{4096, 4096}));
  EXPECT_FALSE(config.tied_head);
  EXPECT_FALSE(config.qkv_bias || config.out_bias || config.mlp_bias);
  EXPECT_NAMES(refused_like_llama("mistral", {{"num_attention_heads", "4"}}),
               "num_key_value_heads is missing (num_attention_heads 4 is not a multiple of 8)");
}

TEST(FamilyTest, qwen2_defaults_are_those_of_transformers) {
  auto const config = like_llama("qwen2", {{"num_attention_heads", "32"}});
  EXPECT_EQ(config.family, Family::qwen2);
  EXPECT_EQ(config.kv_heads, 32);
  EXPECT_EQ(config.head_dim, 2);
  EXPECT_EQ(config.max_positions, 32768);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_EQ(config.window(0), 0);
  EXPECT_EQ(config.window(1), 0);
  EXPECT_FALSE(config.tied_head);
  EXPECT_TRUE(config.qkv_bias);
  EXPECT_FALSE(config.out_bias || config.mlp_bias);
}

TEST(FamilyTest, qwen3_defaults_are_those_of_transformers) {
  auto const config = like_llama("qwen3", {{"num_attention_heads", "32"}});
  EXPECT_EQ(config.family, Family::qwen3);
  EXPECT_EQ(config.kv_heads, 32);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.max_positions, 32768);
  EXPECT_TRUE(config.head_norms);
  EXPECT_FALSE(config.qkv_bias || config.out_bias || config.mlp_bias || config.tied_head);
  auto const biased =
      like_llama("qwen3", {{"num_attention_heads", "32"}, {"attention_bias", "true"}});
  EXPECT_TRUE(biased.qkv_bias && biased.out_bias);
  EXPECT_FALSE(like_llama("qwen2", {{"num_attention_heads", "32"}}).head_norms);
}

TEST(FamilyTest, mixtral_defaults_are_those_of_transformers) {
  auto const config = like_llama("mixtral");
  EXPECT_EQ(config.family, Family::mixtral);
  EXPECT_EQ(config.kv_heads, 8);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.max_positions, 131072);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.rope_theta, 1e6);
  EXPECT_EQ(config.window(0), 0);
  EXPECT_EQ(config.experts, 8);
  EXPECT_EQ(config.experts_per_token, 2);
  EXPECT_EQ(config.balance_coefficient, 0);
  EXPECT_EQ(like_llama("mixtral", {{"sliding_window", "9"}}).window(1), 9);
}

TEST(FamilyTest, the_balance_of_experts_is_trained_on_where_transformers_does_and_else_noted) {
  auto const silent = like_llama("mixtral", {{"router_aux_loss_coef", "0.02"}});
  EXPECT_EQ(silent.balance_coefficient, 0);
  ASSERT_EQ(silent.notes.size(), 1u);
  EXPECT_NAMES(silent.notes[0], "output_router_logits");
  EXPECT_NAMES(silent.notes[0], "0.02");
  auto const trained =
      like_llama("mixtral", {{"router_aux_loss_coef", "0.02"}, {"output_router_logits", "true"}});
  EXPECT_EQ(trained.balance_coefficient, 0.02);
  EXPECT_TRUE(trained.notes.empty());
  EXPECT_EQ(like_llama("mixtral", {{"output_router_logits", "true"}}).balance_coefficient, 0.001);
}

TEST(FamilyTest, experts_that_make_no_sense_are_refused) {
  auto const refused = [](char const* key, char const* value) {
    return refused_like_llama("mixtral", {{key, value}});
  };
  EXPECT_NAMES(refused("num_experts_per_tok", "9"), "num_experts_per_tok is 9");
  EXPECT_NAMES(refused("num_experts_per_tok", "0"), "num_experts_per_tok is 0");
  EXPECT_NAMES(refused("num_local_experts", "1"), "num_experts_per_tok is missing");
  EXPECT_NAMES(refused("num_local_experts", "4096"), "num_local_experts is 4096");
  EXPECT_NAMES(
      refused_like_llama("mixtral", {{"num_hidden_layers", "100000"}, {"num_local_experts", "11"}}),
      "num_local_experts is 11");
  EXPECT_NAMES(refused("router_aux_loss_coef", "-1"), "router_aux_loss_coef is -1");
}

TEST(FamilyTest, a_window_that_is_null_is_none) {
  EXPECT_EQ(like_llama("mistral", {{"sliding_window", "null"}}).window(1), 0);
  EXPECT_EQ(like_llama("mistral", {{"sliding_window", "7"}}).window(1), 7);
  EXPECT_NAMES(refused_like_llama("mistral", {{"sliding_window", "0"}}), "sliding_window is 0");
}

Entries qwen(Entries changes) {
  changes.emplace("num_key_value_heads", "8");
  return changes;
}

TEST(FamilyTest, windows_of_some_layers_follow_three_keys) {
  auto const windows = [](Entries changes) {
    return like_llama("qwen2", qwen(std::move(changes))).windows;
  };
  using Windows = std::vector<std::int64_t>;
  Entries const on{{"use_sliding_window", "true"}, {"sliding_window", "5"}};
  auto const with = [](Entries more, Entries const& base) {
    more.insert(base.begin(), base.end());
    return more;
  };
  EXPECT_EQ(windows(on), (Windows{0, 0}));  // max_window_layers is 28
  EXPECT_EQ(windows(with({{"max_window_layers", "1"}}, on)), (Windows{0, 5}));
  EXPECT_EQ(windows(with({{"max_window_layers", "0"}}, on)), (Windows{5, 5}));
  EXPECT_EQ(windows({{"max_window_layers", "0"}, {"sliding_window", "5"}}), (Windows{0, 0}));
  EXPECT_EQ(windows({{"max_window_layers", "0"}, {"use_sliding_window", "true"}}),
            (Windows{4096, 4096}));
  Entries const types{{"layer_types", R"(["sliding_attention", "full_attention"])"}};
  EXPECT_EQ(windows(with(types, on)), (Windows{5, 0}));
}

TEST(FamilyTest, layer_types_that_make_no_sense_are_refused) {
  auto const refused = [](char const* types) {
    return refused_like_llama("qwen2", qwen({{"layer_types", types}}));
  };
  EXPECT_NAMES(refused(R"(["sliding_attention", "full_attention"])"), "use_sliding_window");
  EXPECT_NAMES(refused(R"(["full_attention"])"), "layer_types");
  EXPECT_NAMES(refused(R"(["full_attention", "chunked_attention"])"), "chunked_attention");
  EXPECT_NAMES(refused(R"(["full_attention", 3])"), "layer_types");
  EXPECT_NAMES(refused("7"), "layer_types is 7");
}

}  // namespace
}  // namespace spillway::model
