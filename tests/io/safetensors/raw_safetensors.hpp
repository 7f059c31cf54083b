// Safetensors files byte by byte, right and wrong, without the code under test.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>

#include "tests/io/safetensors/test_files.hpp"

namespace spillway::test {

inline std::string raw_safetensors(std::string_view header, std::string_view data) {
  return bytes_of(std::uint64_t{header.size()}) + std::string(header) + std::string(data);
}

/// One entry of a header.
inline std::string entry(std::string_view name, std::string_view dtype, std::string_view shape,
                         std::uint64_t begin, std::uint64_t end) {
  return fmt::format(R"("{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", name, dtype,
                     shape, begin, end);
}

/// A header of these entries.
inline std::string object(std::initializer_list<std::string> entries) {
  return fmt::format("{{{}}}", fmt::join(entries, ","));
}

/// F32 tensors "NAME" of two elements each, one after the other, holding 1, 2, 3, ...
inline std::string pairs(std::initializer_list<std::string_view> names) {
  std::string header = "{";
  std::string data;
  float value = 0;
  for (auto name : names) {
    if (header.size() > 1) header += ",";
    header += entry(name, "F32", "[2]", data.size(), data.size() + 8);
    for (int i = 0; i < 2; ++i) data += bytes_of(value += 1);
  }
  return raw_safetensors(header + "}", data);
}

}  // namespace spillway::test
