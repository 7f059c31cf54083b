// What a checkpoint says of itself: model, state, and of each shard its size, places and hashes. As
// JSON text plus block checksums as plain numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"

namespace spillway::io {

/// A newer program may write a higher number; this one refuses it.
inline constexpr std::int64_t kFormatVersion = 1;

/// The kinds that a checkpoint of this schema stores, in the order of its files.
std::vector<SavedKind> kinds_of(CheckpointSchema const& schema);
/// Where a kind's bytes are: an fp32 weight is its own master.
SavedKind stored_as(CheckpointSchema const& schema, SavedKind kind);

/// "shard-00001-of-00004.h5"
std::string shard_name(Rank rank, int ranks);
/// "/block.0/weight"
std::string extent_name(CheckpointSchema const& schema, UnitId unit, SavedKind kind);

/// No shard file is larger.
std::uint64_t shard_bytes_max(CheckpointSchema const& schema, int ranks);

std::int64_t blocks_of(std::int64_t elements);

/// One contiguous dataset of a shard file.
struct Extent {
  UnitId unit;
  SavedKind kind = SavedKind::weight;
  std::uint64_t offset = 0;  // bytes from the start of the file
  std::int64_t elements = 0;
  std::int64_t first_checksum = 0;  // of its blocks, within ShardRecord::checksums
};

struct ShardRecord {
  std::string file;
  std::uint64_t size = 0;
  std::uint64_t metadata_hash = 0;  // XXH3 of all bytes outside the extents, in order
  std::vector<Extent> extents;      // by unit, then kind; ascending offsets
  std::vector<std::uint64_t> checksums;

  Extent const& extent(UnitId unit, SavedKind kind) const;
};

/// Half-open byte range of a file.
struct ByteRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// The bytes of a shard file that belong to no extent.
std::vector<ByteRange> metadata_ranges(CheckpointSchema const& schema, ShardRecord const& shard);

/// A rank's part of the index as bytes, and back; throws Fault::bad_input.
std::vector<std::byte> pack_shard(ShardRecord const& shard);
ShardRecord unpack_shard(std::span<std::byte const> bytes, CheckpointSchema const& schema,
                         int ranks);

struct Manifest {
  CheckpointSchema schema;
  TrainingState state;
  std::vector<ShardRecord> shards;

  int ranks() const { return static_cast<int>(shards.size()); }
};

/// Without the block checksums, which stand in a dataset of their own, shard after shard.
std::string to_json(Manifest const& manifest);
std::vector<std::uint64_t> all_checksums(Manifest const& manifest);
/// Throws Fault::bad_input naming the entry that is missing or contradicts the others.
Manifest parse_manifest(std::string const& json, std::span<std::uint64_t const> checksums);

/// Fails (Fault::bad_input) unless the shards hold exactly what the schema says.
void check_complete(Manifest const& manifest);

}  // namespace spillway::io
