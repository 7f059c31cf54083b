// What config.json may say, in both spellings, and what is refused by key and value.
#include "tests/lib/model/config_support.hpp"
#include "tests/support/safetensors_lite.hpp"

namespace spillway::model {
namespace {

TEST(ConfigTest, gpt2_defaults_are_those_of_transformers) {
  auto const config = gpt2();
  EXPECT_EQ(config.family, Family::gpt2);
  EXPECT_EQ(config.intermediate_size, 256);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.initializer_range, 0.02);
  EXPECT_TRUE(config.tied_head);
  EXPECT_TRUE(config.scale_attention);
  EXPECT_FALSE(config.scale_attention_by_layer);
  EXPECT_EQ(config.weight_order, WeightOrder::in_out);
  EXPECT_TRUE(config.qkv_bias && config.out_bias && config.mlp_bias);
}

TEST(ConfigTest, llama_defaults_are_those_of_transformers) {
  auto const config = llama();
  EXPECT_EQ(config.family, Family::llama);
  EXPECT_EQ(config.kv_heads, 4);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_EQ(config.rope_scaling, RopeScaling::none);
  EXPECT_FALSE(config.tied_head);
  EXPECT_FALSE(config.qkv_bias || config.out_bias || config.mlp_bias);
}

TEST(ConfigTest, the_text_is_kept_as_it_came) {
  std::string const text = test::read_text(SPILLWAY_TEST_DATA "/oracle/tiny-llama/config.json");
  EXPECT_EQ(parse_config(text, "x").json, text);
}

TEST(ConfigTest, nulls_count_as_absent) {
  EXPECT_EQ(gpt2({{"n_inner", "null"}}).intermediate_size, 256);
  EXPECT_EQ(llama({{"num_key_value_heads", "null"}, {"head_dim", "null"}, {"rope_scaling", "null"}})
                .kv_heads,
            4);
}

TEST(ConfigTest, explicit_sizes_win) {
  EXPECT_EQ(gpt2({{"n_inner", "77"}}).intermediate_size, 77);
  EXPECT_EQ(llama({{"head_dim", "80"}}).head_dim, 80);
  EXPECT_EQ(llama({{"num_key_value_heads", "2"}}).kv_heads, 2);
  EXPECT_EQ(llama({{"hidden_size", "66"}, {"head_dim", "16"}}).hidden_size, 66);
  EXPECT_FALSE(gpt2({{"tie_word_embeddings", "false"}}).tied_head);
  EXPECT_TRUE(llama({{"tie_word_embeddings", "true"}}).tied_head);
  EXPECT_FALSE(gpt2({{"scale_attn_weights", "false"}}).scale_attention);
  EXPECT_TRUE(gpt2({{"scale_attn_by_inverse_layer_idx", "true"}}).scale_attention_by_layer);
  EXPECT_EQ(llama({{"rms_norm_eps", "1e-05"}}).norm_eps, 1e-5);
}

TEST(ConfigTest, both_spellings_of_the_type_of_the_weights_are_read) {
  EXPECT_EQ(llama({{"torch_dtype", "\"bfloat16\""}}).dtype, "bfloat16");
  EXPECT_EQ(llama({{"dtype", "\"float32\""}}).dtype, "float32");
  EXPECT_EQ(llama().dtype, "");
}

TEST(ConfigTest, both_spellings_of_rotary_settings_are_read) {
  std::string const scaling = R"("rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
      "high_freq_factor": 4.0, "original_max_position_embeddings": 64)";
  auto const four = llama({{"rope_theta", "500000.0"}, {"rope_scaling", "{" + scaling + "}"}});
  auto const five = llama({{"rope_parameters", R"({"rope_theta": 500000.0, )" + scaling + "}"}});
  for (auto const& config : {four, five}) {
    EXPECT_EQ(config.rope_theta, 500000.0);
    EXPECT_EQ(config.rope_scaling, RopeScaling::llama3);
    EXPECT_EQ(config.rope_factor, 8.0);
    EXPECT_EQ(config.rope_low_freq_factor, 1.0);
    EXPECT_EQ(config.rope_high_freq_factor, 4.0);
    EXPECT_EQ(config.rope_original_positions, 64);
  }
  EXPECT_EQ(llama({{"rope_scaling", R"({"type": "linear", "factor": 2})"}}).rope_scaling,
            RopeScaling::linear);
  EXPECT_EQ(
      llama({{"rope_parameters", R"({"rope_type": "default"})"}, {"rope_theta", "7"}}).rope_theta,
      7.0);
}

TEST(ConfigTest, rotary_settings_that_contradict_each_other_are_refused) {
  EXPECT_NAMES(refused_llama({{"rope_theta", "7"}, {"rope_parameters", R"({"rope_theta": 8.0})"}}),
               "rope_theta");
  EXPECT_NAMES(refused_llama({{"rope_scaling", R"({"type": "linear", "factor": 2})"},
                              {"rope_parameters", R"({"rope_theta": 8.0})"}}),
               "rope_scaling");
}

TEST(ConfigTest, unknown_rotary_types_are_refused_by_name) {
  for (char const* type : {"longrope", "proportional", "mrope"}) {
    std::string const value = std::string("\"") + type + "\"";
    auto const four =
        refused_llama({{"rope_scaling", "{\"type\": " + value + ", \"factor\": 4.0}"}});
    EXPECT_NAMES(four, "rope_scaling.type");
    EXPECT_NAMES(four, type);
    auto const five = refused_llama({{"rope_parameters", "{\"rope_type\": " + value + "}"}});
    EXPECT_NAMES(five, "rope_parameters.rope_type");
    EXPECT_NAMES(five, type);
  }
  EXPECT_NAMES(refused_llama({{"rope_scaling", R"({"rope_type": "linear"})"}}),
               "rope_scaling.factor");
  EXPECT_NAMES(refused_llama({{"rope_parameters", R"({"partial_rotary_factor": 0.5})"}}),
               "partial_rotary_factor");
}

TEST(ConfigTest, yarn_has_the_attention_factor_of_transformers) {
  auto const yarn = [](char const* more) {
    return llama({{"rope_scaling", std::string(R"({"type": "yarn", "factor": 4.0)") + more + "}"}});
  };
  auto const plain = yarn("");
  EXPECT_EQ(plain.rope_scaling, RopeScaling::yarn);
  EXPECT_EQ(plain.rope_original_positions, 2048);  // max_position_embeddings
  EXPECT_DOUBLE_EQ(plain.rope_attention_factor, 1.138629436111989);
  EXPECT_EQ(plain.rope_beta_fast, 32);
  EXPECT_EQ(plain.rope_beta_slow, 1);
  EXPECT_TRUE(plain.rope_truncate);
  EXPECT_EQ(yarn(R"(, "attention_factor": 0.5)").rope_attention_factor, 0.5);
  EXPECT_DOUBLE_EQ(yarn(R"(, "mscale": 2.0, "mscale_all_dim": 1.0)").rope_attention_factor,
                   1.277258872223978 / 1.138629436111989);
  auto const other = yarn(R"(, "original_max_position_embeddings": 64, "beta_fast": 16,
                              "beta_slow": 2, "truncate": false)");
  EXPECT_EQ(other.rope_original_positions, 64);
  EXPECT_EQ(other.rope_beta_fast, 16);
  EXPECT_EQ(other.rope_beta_slow, 2);
  EXPECT_FALSE(other.rope_truncate);
  EXPECT_EQ(llama({{"rope_scaling", R"({"type": "yarn", "factor": null,
                    "original_max_position_embeddings": 512})"}})
                .rope_factor,
            4);
  EXPECT_NAMES(refused_llama(
                   {{"rope_theta", "1.0"}, {"rope_scaling", R"({"type": "yarn", "factor": 4.0})"}}),
               "rope_theta");
}

TEST(ConfigTest, other_model_types_are_refused_with_the_supported_ones) {
  for (char const* type : {"gemma", "bert", "LLAMA"}) {
    auto const message = refused_llama({{"model_type", std::string("\"") + type + "\""}});
    EXPECT_NAMES(message, type);
    EXPECT_NAMES(message, "gpt2, llama, mistral, qwen2, qwen3, mixtral");
  }
  EXPECT_NAMES(refused_llama({{"model_type", ""}}), "model_type is missing");
}

TEST(ConfigTest, the_tanh_form_of_gelu_is_the_only_one) {
  EXPECT_NO_THROW(gpt2({{"activation_function", "\"gelu_new\""}}));
  EXPECT_NO_THROW(gpt2({{"activation_function", "\"gelu_pytorch_tanh\""}}));
  for (char const* name : {"gelu", "relu", "silu"}) {
    auto const message = refused_gpt2({{"activation_function", std::string("\"") + name + "\""}});
    EXPECT_NAMES(message, "activation_function");
    EXPECT_NAMES(message, name);
  }
  EXPECT_NAMES(refused_llama({{"hidden_act", "\"gelu\""}}), "hidden_act");
}

TEST(ConfigTest, dropout_is_noted_and_not_followed) {
  auto const config = gpt2({{"attn_pdrop", "0.1"}, {"resid_pdrop", "0.1"}, {"embd_pdrop", "0"}});
  ASSERT_EQ(config.notes.size(), 2u);
  EXPECT_NE(config.notes[0].find("attn_pdrop = 0.1"), std::string::npos);
  EXPECT_TRUE(llama({{"attention_dropout", "0.0"}}).notes.empty());
  EXPECT_NAMES(refused_llama({{"attention_dropout", "1.5"}}), "attention_dropout");
}

TEST(ConfigTest, what_is_missing_is_named) {
  for (char const* key : {"vocab_size", "n_embd", "n_layer", "n_head"})
    EXPECT_NAMES(refused_gpt2({{key, ""}}), std::string(key) + " is missing");
  for (char const* key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                          "intermediate_size"})
    EXPECT_NAMES(refused_llama({{key, ""}}), std::string(key) + " is missing");
}

TEST(ConfigTest, numbers_that_make_no_sense_are_refused_with_key_and_value) {
  for (char const* value :
       {"0", "-3", "2147483648", "9223372036854775807", "18446744073709551615", "1e300", "64.5",
        "\"64\"", "true", "[64]", "{}", "99999999999999999999999999"}) {
    for (char const* key :
         {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
          "num_key_value_heads", "head_dim", "intermediate_size", "max_position_embeddings"})
      EXPECT_NAMES(refused_llama({{key, value}}), std::string(key) + " is ");
    EXPECT_NAMES(refused_gpt2({{"n_inner", value}}), "n_inner is ");
  }
  EXPECT_NAMES(refused_llama({{"num_hidden_layers", "-3"}}), "is -3");
  for (char const* value : {"-1", "\"x\"", "2.0", "[]"})
    EXPECT_NAMES(refused_llama({{"rms_norm_eps", value}}), "rms_norm_eps");
  for (char const* value : {"-1", "0", "1e999", "null", "\"1e4\""}) {
    if (std::string(value) == "null") continue;
    EXPECT_FALSE(refusal([&] { llama({{"rope_theta", value}}); }).empty());
  }
}

TEST(ConfigTest, sizes_that_do_not_divide_are_refused) {
  EXPECT_NAMES(refused_gpt2({{"n_head", "5"}}), "n_head is 5");
  EXPECT_NAMES(refused_llama({{"num_attention_heads", "3"}}), "num_attention_heads is 3");
  EXPECT_NAMES(refused_llama({{"num_key_value_heads", "3"}}), "num_key_value_heads is 3");
  EXPECT_NAMES(refused_llama({{"head_dim", "15"}}), "head_dim is 15");
  EXPECT_NAMES(refused_llama({{"hidden_size", "20"}}), "even head_dim");
}

TEST(ConfigTest, models_beyond_any_machine_are_refused_before_anything_overflows) {
  EXPECT_NAMES(refused_llama({{"hidden_size", "2147483640"}, {"intermediate_size", "2147483647"}}),
               "parameters");
  EXPECT_NAMES(refused_llama({{"num_attention_heads", "2147483647"}, {"head_dim", "2147483646"}}),
               "head_dim");
  EXPECT_NAMES(refused_gpt2({{"n_embd", "2147483644"}}), "n_embd");
  EXPECT_NAMES(refused_gpt2({{"n_layer", "100001"}}), "n_layer");
}

TEST(ConfigTest, wrong_types_are_refused) {
  EXPECT_NAMES(refused_llama({{"tie_word_embeddings", "\"yes\""}}), "tie_word_embeddings");
  EXPECT_NAMES(refused_llama({{"attention_bias", "1"}}), "attention_bias");
  EXPECT_NAMES(refused_llama({{"hidden_act", "3"}}), "hidden_act");
  EXPECT_NAMES(refused_llama({{"rope_scaling", "\"linear\""}}), "rope_scaling");
  EXPECT_NAMES(refused_llama({{"model_type", "7"}}), "model_type");
  EXPECT_NAMES(refused_gpt2({{"add_cross_attention", "true"}}), "add_cross_attention");
  EXPECT_NAMES(refused_llama({{"quantization_config", "{\"bits\": 4}"}}), "quantization_config");
}

TEST(ConfigTest, text_that_is_no_json_object_is_refused) {
  for (char const* text :
       {"", "{", "[]", "null", "7", "{\"model_type\": NaN}", "{\"a\": \"\xff\"}", "\x80\x02}q"})
    EXPECT_FALSE(refusal([&] { parse_config(text, "folder/config.json"); }).empty()) << text;
}

}  // namespace
}  // namespace spillway::model
