// Saves checkpoints over all ranks: space first, then shards, then the commit on rank 0, then
// retention.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "io/checkpoint/checkpoint.hpp"
#include "lib/comm/communicator.hpp"
#include "lib/core/log.hpp"
#include "offload/tiered_store.hpp"

namespace spillway::app {

struct SaverOptions {
  std::filesystem::path directory;     // checkpoints/
  std::int64_t keep = 3;               // newest of this run's own; 0: all
  std::filesystem::path resumed_from;  // never removed
  bool owns_directory = false;         // what is there already is this run's own
};

/// One checkpoint at a time: begin(), then a pass of the engine that sees every unit, then
/// finish(). All ranks alike.
class Saver {
 public:
  Saver(SaverOptions options, io::CheckpointSchema schema, comm::Communicator& comm,
        io::Engine& engine, offload::TieredStore& store, Log log);
  ~Saver();

  /// Reserves the space of a checkpoint of `state`. False, with a warning, where there is none:
  /// training goes on, the older checkpoints stay.
  bool begin(io::TrainingState state);
  bool active() const { return writer_ != nullptr; }
  /// Waits for the bytes, syncs, commits, removes what retention lets go. Throws on a fault of the
  /// disk.
  void finish();

 private:
  void retain();

  SaverOptions options_;
  io::CheckpointSchema schema_;
  comm::Communicator& comm_;
  io::Engine& engine_;
  offload::TieredStore& store_;
  Log log_;
  io::TrainingState state_;
  std::unique_ptr<io::ShardWriter> writer_;
  std::set<std::filesystem::path> own_;
};

}  // namespace spillway::app
