// Whole checksum blocks of shard files, read directly, several in flight, each verified before it
// is seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "io/checkpoint/manifest.hpp"
#include "io/engine.hpp"

namespace spillway::io {

/// Consecutive blocks of one dataset of one shard, small enough for one slot of the bounce buffer.
struct BlockRun {
  std::size_t shard = 0;   // index into Manifest::shards
  std::size_t extent = 0;  // index into ShardRecord::extents
  shard::Range
      elements;  // of the shard's dataset; begins at a block, ends at one or with the dataset
};

/// Adds the runs that hold the elements `wanted` of a shard's dataset.
void append_runs(Manifest const& manifest, std::size_t shard, std::size_t extent,
                 shard::Range wanted, std::vector<BlockRun>& runs);

using BlockSink = std::function<void(BlockRun const&, std::span<std::byte const>)>;

/// Gives the runs to `sink` in their order. Throws Fault::bad_input naming file, dataset and offset
/// of the first block that does not match its checksum.
void read_blocks(Manifest const& manifest, std::filesystem::path const& directory,
                 std::span<BlockRun const> runs, Engine& engine, BlockSink const& sink);

}  // namespace spillway::io
