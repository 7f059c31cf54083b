// Hugging Face safetensors: one file or shards with an index, read by ranges and written in shards.
// Format: 8-byte little-endian header length, JSON header, data. Every length in it is checked
// first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/core/dtype.hpp"

namespace spillway::io {

struct TensorInfo {
  std::string name;
  DType type = DType::f32;  // f32, bf16, f16
  std::vector<std::int64_t> shape;
};

/// A tensor of a type that is not read as weights (I64, BOOL, F64, ...), legal in a file.
struct OtherTensor {
  std::string name;
  std::string type;  // as in the file
};

/// A folder's model.safetensors, or model.safetensors.index.json with its shards; or one file by
/// its own path. All headers are checked at once: data without hole or overlap, end of data = file
/// size, no duplicate name, index and shards agree. Throws Fault::bad_input naming file and tensor.
class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(std::filesystem::path const& folder);
  ~SafetensorsFolder();
  SafetensorsFolder(SafetensorsFolder&&) noexcept;

  std::vector<TensorInfo> const& tensors() const;  // sorted by name
  std::vector<OtherTensor> const& others() const;  // sorted by name
  TensorInfo const* find(std::string_view name) const;
  /// Elements [begin, begin + out.size()) in C order, widened to fp32. Reads in small pieces from
  /// any thread; does not grow the page cache. Fault::bad_input for a tensor that is absent or of
  /// another type.
  void read(std::string_view name, std::int64_t begin, std::span<float> out) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Gives elements of a tensor piece by piece to the writer.
class TensorReader {
 public:
  virtual ~TensorReader() = default;
  virtual void read(TensorInfo const& tensor, std::int64_t begin, std::span<float> out) = 0;
};

/// Writes model.safetensors, or model-00001-of-0000N.safetensors with model.safetensors.index.json
/// when the bytes exceed `shard_bytes`; `__metadata__: {"format": "pt"}`; header padded with spaces
/// to 8 bytes. Tensors keep their order, but wider types come first in a file, so that each is
/// aligned to its elements. Written aside (*.tmp), synced, read back and compared with `tensors`,
/// renamed. Reads through `source` a few MiB at a time. A finite value that the type cannot hold is
/// an error naming tensor and element.
void write_safetensors(std::filesystem::path const& folder, std::span<TensorInfo const> tensors,
                       TensorReader& source, std::uint64_t shard_bytes = 5'000'000'000);

}  // namespace spillway::io
