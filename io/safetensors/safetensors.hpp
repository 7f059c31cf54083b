// Hugging Face safetensors: one file or shards with an index, read by ranges and written in shards.
// Format: 8-byte little-endian header length, JSON header, data. Every length in it is checked before use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/core/dtype.hpp"

namespace spillway::io {

struct TensorInfo {
  std::string name;
  DType type = DType::f32;               // f32, bf16, f16
  std::vector<std::int64_t> shape;
};

/// A folder's model.safetensors, or model.safetensors.index.json with its shards. All headers are checked at once: offsets
/// in order without hole or overlap, end of data = file size, no duplicate name, index and shards agree. Throws
/// Fault::bad_input naming file and tensor.
class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(std::filesystem::path const& folder);
  ~SafetensorsFolder();
  SafetensorsFolder(SafetensorsFolder&&) noexcept;

  std::vector<TensorInfo> const& tensors() const;   // sorted by name
  TensorInfo const* find(std::string_view name) const;
  /// Elements [begin, begin + out.size()) in C order, widened to fp32. Small reads; does not grow the page cache.
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

/// Writes model.safetensors, or model-00001-of-0000N.safetensors with model.safetensors.index.json when the bytes exceed
/// `shard_bytes`; `__metadata__: {"format": "pt"}`; header padded with spaces to 8 bytes. Written aside (*.tmp), synced,
/// renamed. Reads through `source` a few MiB at a time.
void write_safetensors(std::filesystem::path const& folder, std::span<TensorInfo const> tensors,
                       TensorReader& source, std::uint64_t shard_bytes = 5'000'000'000);

}  // namespace spillway::io
