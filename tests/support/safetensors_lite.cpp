#include "tests/support/safetensors_lite.hpp"

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace spillway::test {

std::string read_text(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

StoredTensors read_safetensors(std::string const& path) {
  std::string const bytes = read_text(path);
  std::uint64_t header_length = 0;
  std::memcpy(&header_length, bytes.data(), sizeof header_length);
  auto const header = nlohmann::json::parse(bytes.substr(8, header_length));
  char const* const data = bytes.data() + 8 + header_length;
  StoredTensors tensors;
  for (auto const& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    StoredTensor tensor;
    tensor.shape = entry["shape"].get<std::vector<std::int64_t>>();
    auto const begin = entry["data_offsets"][0].get<std::size_t>();
    auto const size = entry["data_offsets"][1].get<std::size_t>() - begin;
    if (entry["dtype"] == "F32") {
      tensor.floats.resize(size / sizeof(float));
      std::memcpy(tensor.floats.data(), data + begin, size);
    } else if (entry["dtype"] == "I64") {
      std::vector<std::int64_t> wide(size / sizeof(std::int64_t));
      std::memcpy(wide.data(), data + begin, size);
      for (std::int64_t value : wide) tensor.integers.push_back(static_cast<std::int32_t>(value));
    } else {
      throw std::runtime_error(path + ": " + name + " is neither F32 nor I64");
    }
    tensors.emplace(name, std::move(tensor));
  }
  return tensors;
}

}  // namespace spillway::test
