// Small configurations of each family, with keys changed, and the messages of refused ones.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "lib/core/error.hpp"
#include "lib/model/spec.hpp"

namespace spillway::model {

using Entries = std::map<std::string, std::string>;  // key to JSON text; empty: left out

inline std::string json(Entries entries, Entries const& changes) {
  for (auto const& [key, value] : changes) entries[key] = value;
  std::string text;
  for (auto const& [key, value] : entries)
    if (!value.empty()) text += (text.empty() ? "" : ", ") + ("\"" + key + "\": ") + value;
  return "{" + text + "}";
}

inline ModelConfig gpt2(Entries const& changes = {}) {
  return parse_config(json({{"model_type", "\"gpt2\""},
                            {"vocab_size", "100"},
                            {"n_embd", "64"},
                            {"n_layer", "2"},
                            {"n_head", "4"},
                            {"n_positions", "32"}},
                           changes),
                      "folder/config.json");
}

inline ModelConfig llama(Entries const& changes = {}) {
  return parse_config(json({{"model_type", "\"llama\""},
                            {"vocab_size", "100"},
                            {"hidden_size", "64"},
                            {"num_hidden_layers", "2"},
                            {"num_attention_heads", "4"},
                            {"intermediate_size", "96"}},
                           changes),
                      "folder/config.json");
}

/// A config.json of a family of Llama's keys, with its 64 hidden values in 8 heads.
inline ModelConfig like_llama(char const* type, Entries changes = {}) {
  changes.emplace("model_type", '"' + std::string(type) + '"');
  changes.emplace("num_attention_heads", "8");
  return llama(changes);
}

/// The message of the refusal, which must be bad input and name the file.
template <class Action>
inline std::string refusal(Action action) {
  try {
    action();
  } catch (Error const& error) {
    EXPECT_EQ(error.fault(), Fault::bad_input);
    EXPECT_NE(std::string(error.what()).find("folder/config.json"), std::string::npos)
        << error.what();
    return error.what();
  }
  ADD_FAILURE() << "was accepted";
  return "";
}
inline std::string refused_gpt2(Entries const& changes) {
  return refusal([&] { gpt2(changes); });
}
inline std::string refused_llama(Entries const& changes) {
  return refusal([&] { llama(changes); });
}
inline std::string refused_like_llama(char const* type, Entries const& changes) {
  return refusal([&] { like_llama(type, changes); });
}
#define EXPECT_NAMES(message, text) EXPECT_NE((message).find(text), std::string::npos) << (message)

}  // namespace spillway::model
