// Sharded HDF5 checkpoints: step-000000123/{shard-00000-of-00002.h5, ..., index.h5}, written aside and renamed.
// Format: DESIGN.md section 6; the bytes of a shard go to their dataset's file offset through the I/O engine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/engine.hpp"
#include "lib/core/dtype.hpp"
#include "lib/core/strong.hpp"
#include "lib/shard/flat.hpp"

namespace spillway::io {

/// What a checkpoint holds of each shard element. `weight` is the compute weight (fp32 or bf16). `master` (fp32) is
/// there only where the compute weight is not itself the master.
enum class SavedKind { weight, master, m, v };
std::string_view name_of(SavedKind kind);

struct SavedUnit {
  std::string name;          // "embedding", "block.0", ...
  shard::FlatLayout layout;
};

/// What does not change between checkpoints of a run.
struct CheckpointSchema {
  std::vector<SavedUnit> units;
  DType weight_type = DType::f32;      // f32: kinds weight, m, v. bf16: kinds weight, master, m, v
  std::string config_json;             // the model's config.json
  bool has(SavedKind kind) const { return kind != SavedKind::master || weight_type != DType::f32; }
  DType type(SavedKind kind) const { return kind == SavedKind::weight ? weight_type : DType::f32; }
};

/// Training state at the end of a step. `json` is the rest of the state as the program writes it (an object).
struct TrainingState {
  std::int64_t step = 0;
  std::int64_t tokens = 0;             // seen so far, all ranks
  std::int64_t next_position = 0;      // of the sampler: global, all ranks
  std::string json = "{}";
};

/// Elements covered by one checksum (XXH3, 64 bits) within a shard's dataset; the last block may be shorter.
inline constexpr std::int64_t kChecksumElements = 65536;

/// Bytes of one rank's shard file and of the index, for the space check before saving.
std::uint64_t shard_file_bytes(CheckpointSchema const& schema, int ranks);

/// Writes one rank's shard into the directory of a checkpoint in progress.
class ShardWriter {
 public:
  /// Creates and reserves `directory`/shard-RRRRR-of-NNNNN.h5. Throws Fault::no_room, Fault::io.
  ShardWriter(std::filesystem::path const& directory, CheckpointSchema const& schema, Rank rank,
              int ranks, Engine& engine);
  ~ShardWriter();
  ShardWriter(ShardWriter const&) = delete;
  ShardWriter& operator=(ShardWriter const&) = delete;

  /// Takes elements [begin, begin + data.size()/size_of(type)) of this rank's shard of a unit; computes checksums now
  /// and returns the ticket of the transfer: `data` must stay as it is until it is done. `begin` is a multiple of
  /// kChecksumElements; so is the count unless the piece ends the shard. Address aligned to 4096. Thread-safe.
  Ticket write(UnitId unit, SavedKind kind, std::int64_t begin, std::span<std::byte const> data);

  /// After all tickets are done: fails if any element was not written, syncs the file, and returns this shard's part of
  /// the index (opaque bytes, for commit_checkpoint on rank 0).
  std::vector<std::byte> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// "step-000000123" and back; nullopt-like -1 for other names.
std::string checkpoint_name(std::int64_t step);
std::int64_t checkpoint_step(std::string const& directory_name);
/// Path of the directory a checkpoint is written to before it is renamed: checkpoints/step-000000123.tmp
std::filesystem::path prepare_checkpoint(std::filesystem::path const& checkpoints, std::int64_t step);

/// Rank 0, after all ranks' finish(): writes index.h5 (virtual datasets /model/<name>, /optimizer/{master,m,v}/<name>,
/// fill NaN; shards with size and hashes; config; state) and CHECKSUMS, syncs, renames, syncs the parent, replaces the
/// symlink `latest`, syncs again. Returns the final path.
std::filesystem::path commit_checkpoint(std::filesystem::path const& checkpoints,
                                        CheckpointSchema const& schema, TrainingState const& state,
                                        std::vector<std::vector<std::byte>> const& shard_parts);

/// Names and removes step-*.tmp and latest.tmp that a killed run has left; returns their names.
std::vector<std::string> clean_leftovers(std::filesystem::path const& checkpoints);

/// Committed checkpoints by step, ascending; other entries are ignored.
std::vector<std::filesystem::path> list_checkpoints(std::filesystem::path const& checkpoints);

/// Reads a committed checkpoint: only its index at first, then any range of any unit.
class CheckpointReader {
 public:
  /// Verifies the index and the presence and size of every shard. Throws Fault::bad_input naming the file.
  explicit CheckpointReader(std::filesystem::path directory);
  ~CheckpointReader();
  CheckpointReader(CheckpointReader&&) noexcept;

  CheckpointSchema const& schema() const;
  TrainingState const& state() const;
  int ranks() const;
  std::filesystem::path const& directory() const;

  /// Throws Fault::bad_input naming the first unit or tensor that differs from `expected`.
  void check_model(CheckpointSchema const& expected) const;

  /// Elements `flat` of a unit's padded flat (0 beyond the saved shards), from whichever shards hold them; every block
  /// touched is verified. Borders are multiples of kShardQuantum. Throws Fault::bad_input with file, dataset, offset.
  void read(UnitId unit, SavedKind kind, shard::Range flat, std::span<std::byte> out, Engine& engine) const;

  /// Any element range of one tensor by name, as fp32. For export, diff and generation.
  void read_tensor(SavedKind kind, std::string_view name, std::int64_t begin, std::span<float> out,
                   Engine& engine) const;

  /// Reads every byte; throws at the first that does not match, naming file, dataset and offset.
  void verify(Engine& engine) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::io
