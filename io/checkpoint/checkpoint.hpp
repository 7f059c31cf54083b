// Sharded HDF5 checkpoints: step-000000123/{shard-00000-of-00002.h5, ..., index.h5}, written aside
// and renamed. Format: DESIGN.md section 6; the bytes of a shard go to their dataset's file offset
// through the I/O engine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/engine.hpp"
#include "lib/core/dtype.hpp"
#include "lib/core/strong.hpp"
#include "lib/shard/flat.hpp"

namespace spillway::io {

/// What a checkpoint holds of each shard element. `weight` is the compute weight (fp32 or bf16).
/// `master` (fp32) is there only where the compute weight is not itself the master.
enum class SavedKind { weight, master, m, v };
std::string_view name_of(SavedKind kind);

struct SavedUnit {
  std::string name;  // "embedding", "block.0", ...
  shard::FlatLayout layout;
};

/// What does not change between checkpoints of a run.
struct CheckpointSchema {
  std::vector<SavedUnit> units;
  DType weight_type = DType::f32;  // f32: kinds weight, m, v. bf16: kinds weight, master, m, v
  std::string config_json;         // the model's config.json
  bool has(SavedKind kind) const { return kind != SavedKind::master || weight_type != DType::f32; }
  DType type(SavedKind kind) const { return kind == SavedKind::weight ? weight_type : DType::f32; }
};

/// Training state at the end of a step. `json` is the rest of the state as the program writes it
/// (an object).
struct TrainingState {
  std::int64_t step = 0;
  std::int64_t tokens = 0;         // seen so far, all ranks
  std::int64_t next_position = 0;  // of the sampler: global, all ranks
  std::string json = "{}";
};

/// Elements covered by one checksum (XXH3, 64 bits) within a shard's dataset; the last block may be
/// shorter.
inline constexpr std::int64_t kChecksumElements = 65536;

/// Bytes of one rank's shard file and of its part of the index, for the space check before saving:
/// `ranks` times this is never less than the directory takes.
std::uint64_t shard_file_bytes(CheckpointSchema const& schema, int ranks);

/// Writes one rank's shard into the directory of a checkpoint in progress.
class ShardWriter {
 public:
  /// Creates and reserves `directory`/shard-RRRRR-of-NNNNN.h5. Throws Fault::no_room, Fault::io.
  ShardWriter(std::filesystem::path const& directory, CheckpointSchema const& schema, Rank rank,
              int ranks, Engine& engine);
  /// Without finish() the file is removed, so that a failed save gives its space back.
  ~ShardWriter();
  ShardWriter(ShardWriter const&) = delete;
  ShardWriter& operator=(ShardWriter const&) = delete;

  /// Takes elements [begin, begin + data.size()/size_of(type)) of this rank's shard of a unit;
  /// computes checksums now and returns the ticket of the transfer: `data` must stay as it is until
  /// it is done. `begin` is a multiple of kChecksumElements; so is the count unless the piece ends
  /// the shard. Address aligned to 4096. Thread-safe.
  Ticket write(UnitId unit, SavedKind kind, std::int64_t begin, std::span<std::byte const> data);

  /// After all tickets are done: fails if any element was not written, syncs the file, and returns
  /// this shard's part of the index (opaque bytes, for commit_checkpoint on rank 0).
  std::vector<std::byte> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// "step-000000123" and back; nullopt-like -1 for other names.
std::string checkpoint_name(std::int64_t step);
std::int64_t checkpoint_step(std::string const& directory_name);
/// Path of the directory a checkpoint is written to before it is renamed:
/// checkpoints/step-000000123.tmp. Creates it; every rank may call it, before or after the others
/// have.
std::filesystem::path prepare_checkpoint(std::filesystem::path const& checkpoints,
                                         std::int64_t step);

/// Rank 0, when a save has failed: removes the directory of prepare_checkpoint and so frees its
/// space.
void discard_checkpoint(std::filesystem::path const& checkpoints, std::int64_t step);

/// Called with the name of each point of the commit as it is passed, so that a test can end the
/// process there: "index written", "index synced", "checksums written", "checksums synced",
/// "directory synced", "exchanged" (or "set aside") and "renamed", "parent synced", "latest
/// written", "latest renamed", "latest synced".
using CommitHook = std::function<void(std::string_view point)>;

/// Rank 0, after all ranks' finish(): writes index.h5 (virtual datasets /model/<name>,
/// /optimizer/{master,m,v}/<name>, fill NaN; shards with size and hashes; config; state) and
/// CHECKSUMS, syncs, renames, syncs the parent, replaces the symlink `latest`, syncs again. A
/// checkpoint of that step that is there already is replaced, and is whole until then. Returns the
/// final path.
std::filesystem::path commit_checkpoint(std::filesystem::path const& checkpoints,
                                        CheckpointSchema const& schema, TrainingState const& state,
                                        std::vector<std::vector<std::byte>> const& shard_parts,
                                        CommitHook const& passed = {});

/// Names and removes step-*.tmp and latest.tmp that a killed run has left; returns their names. A
/// checkpoint that was set aside for its successor, which never came, gets its name back (and is
/// not in the list).
std::vector<std::string> clean_leftovers(std::filesystem::path const& checkpoints);

/// Committed checkpoints by step, ascending; other entries are ignored.
std::vector<std::filesystem::path> list_checkpoints(std::filesystem::path const& checkpoints);

/// Reads a committed checkpoint: only its index at first, then any range of any unit.
class CheckpointReader {
 public:
  /// Verifies the index and the presence and size of every shard. Throws Fault::bad_input naming
  /// the file.
  explicit CheckpointReader(std::filesystem::path directory);
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;

  CheckpointSchema const& schema() const;
  TrainingState const& state() const;
  int ranks() const;
  std::filesystem::path const& directory() const;

  /// Throws Fault::bad_input naming the first unit or tensor that differs from `expected`.
  void check_model(CheckpointSchema const& expected) const;

  /// Elements `flat` of a unit's padded flat (0 beyond the saved shards), from whichever shards
  /// hold them; every block touched is verified. Borders are multiples of kShardQuantum. Throws
  /// Fault::bad_input with file, dataset, offset.
  void read(UnitId unit, SavedKind kind, shard::Range flat, std::span<std::byte> out,
            Engine& engine) const;

  /// Any element range of one tensor by name, as fp32. For export, diff and generation.
  void read_tensor(SavedKind kind, std::string_view name, std::int64_t begin, std::span<float> out,
                   Engine& engine) const;

  /// Reads every byte; throws at the first that does not match, naming file, dataset and offset.
  void verify(Engine& engine) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One line for each tensor and kind whose elements differ in any bit, or that only one of the two
/// has; empty when the checkpoints hold the same tensors. The numbers of ranks do not matter.
std::vector<std::string> diff_checkpoints(CheckpointReader const& first,
                                          CheckpointReader const& second, Engine& engine);

/// The newest checkpoint that opens (index verified, all shards there with their sizes), or null.
/// Why each newer one was passed over is added to `skipped`, one line each.
std::unique_ptr<CheckpointReader> open_newest(std::filesystem::path const& checkpoints,
                                              std::vector<std::string>& skipped);

/// Of a run's own checkpoints, those to remove so that the `keep` newest by number stay; 0 keeps
/// all. Never one of `kept` (the one resumed from), whatever its number. Ascending by step.
std::vector<std::filesystem::path> superseded(std::span<std::filesystem::path const> own, int keep,
                                              std::span<std::filesystem::path const> kept);

/// Removes a checkpoint: renamed away first, so that no half of it is ever under its name.
void remove_checkpoint(std::filesystem::path const& checkpoint);

}  // namespace spillway::io
