// File names of a Hugging Face model folder.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <string>

namespace spillway::io {

inline constexpr char const* kSingleFile = "model.safetensors";
inline constexpr char const* kShardIndexFile = "model.safetensors.index.json";

/// Shard `number` of `count`, counted from 1.
inline std::string shard_file(std::size_t number, std::size_t count) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", number, count);
}

}  // namespace spillway::io
