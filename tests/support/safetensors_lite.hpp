// Reads a small safetensors file whole, for reference values in tests; independent of
// io/safetensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace spillway::test {

struct StoredTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> floats;           // of F32
  std::vector<std::int32_t> integers;  // of I64, which here are tokens
};

using StoredTensors = std::map<std::string, StoredTensor>;

/// F32 and I64 only; throws std::runtime_error for anything else.
StoredTensors read_safetensors(std::string const& path);

/// A text file whole.
std::string read_text(std::string const& path);

}  // namespace spillway::test
