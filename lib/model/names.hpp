// Hugging Face names of a decoder's tensors by their role, without ".weight" and ".bias".
#pragma once

#include <cstdint>
#include <string>

#include "lib/model/spec.hpp"

namespace spillway::model {

/// Modules of one block. GPT-2 has one `qkv`, the others `q`, `k`, `v` and `gate`.
struct BlockNames {
  std::string attention_norm;
  std::string qkv;
  std::string q, k, v;
  std::string q_norm, k_norm;
  std::string out;
  std::string mlp_norm;
  std::string router;
  std::string gate;
  std::string up;
  std::string down;
};

/// Modules of one expert.
struct ExpertNames {
  std::string gate;
  std::string up;
  std::string down;
};

struct ModelNames {
  std::string prefix;  // of the base model, missing in files saved without the head
  std::string token_embedding;
  std::string position_embedding;
  std::string final_norm;
  std::string head;
};

ModelNames const& model_names(Family family);
BlockNames block_names(Family family, std::int64_t layer);
ExpertNames expert_names(Family family, std::int64_t layer, std::int64_t expert);

}  // namespace spillway::model
