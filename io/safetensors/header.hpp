// The header of one safetensors file: every length in it is checked before it is used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/plain_file.hpp"
#include "lib/core/dtype.hpp"

namespace spillway::io {

/// One tensor of a file.
struct HeaderEntry {
  std::string name;
  std::string type_name;      // as in the file: "F32", "I64", ...
  std::optional<DType> type;  // of those that are read as weights
  std::vector<std::int64_t> shape;
  std::int64_t elements = 0;
  std::uint64_t begin = 0;  // bytes from the start of the file
  std::uint64_t end = 0;
};

/// All tensors in the order of their data. Throws Fault::bad_input naming file and tensor unless
/// the data are covered from end to end without hole or overlap and nothing follows them.
std::vector<HeaderEntry> read_header(PlainReader const& file);

/// The bytes before the data: length and JSON, padded with spaces to a multiple of 8. Offsets in
/// `entries` count from the start of the data.
std::string make_header(std::vector<HeaderEntry> const& entries);

/// "F32", "BF16" or "F16"; other types are not written.
std::string_view safetensors_name(DType type);

/// "[2, 3]" for messages.
std::string shape_text(std::vector<std::int64_t> const& shape);

}  // namespace spillway::io
