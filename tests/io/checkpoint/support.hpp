// What the checkpoint tests share: temporary directories, a model with awkward sizes, values known
// by formula.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"

namespace spillway::io::test {

/// Where temporary files are: a disk, so that transfers are direct; or memory where there is enough
/// of it, for cases that sync hundreds of times and whose point is not the disk.
enum class Place { disk, memory };

class TempDir {
 public:
  explicit TempDir(Place place = Place::disk);
  ~TempDir();
  TempDir(TempDir const&) = delete;
  TempDir& operator=(TempDir const&) = delete;
  std::filesystem::path const& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Bytes at an address that direct transfers accept.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t size);
  std::span<std::byte> span() { return {bytes_.get(), size_}; }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
  std::size_t size_;
};

/// Tensors with prime element counts, one to three dimensions, one unit larger than a checksum
/// block and one so small that only the first rank has any of it.
CheckpointSchema awkward_schema(DType weight_type);

/// The exact value of an element: representable in the type that stores it. h5py_check.py computes
/// the same.
float value_of(CheckpointSchema const& schema, SavedKind kind, std::string const& tensor,
               std::int64_t index);

/// One rank's shard of a unit: the values, and in all padding a number that must never be seen
/// again.
AlignedBytes shard_bytes(CheckpointSchema const& schema, UnitId unit, SavedKind kind,
                         shard::Range range);

/// What a range of a flat must read as: the values, zero in padding and beyond.
std::vector<float> expected_range(CheckpointSchema const& schema, UnitId unit, SavedKind kind,
                                  shard::Range range);

std::vector<SavedKind> all_kinds(CheckpointSchema const& schema);
std::vector<float> as_floats(DType type, std::span<std::byte const> bytes);

std::unique_ptr<Engine> test_engine();

/// Writes and finishes all shards of a checkpoint in progress, one rank after another; returns
/// their parts.
std::vector<std::vector<std::byte>> write_shards(std::filesystem::path const& directory,
                                                 CheckpointSchema const& schema, int ranks,
                                                 Engine& engine);

TrainingState state_at(std::int64_t step);

/// A whole save at one step.
std::filesystem::path save(std::filesystem::path const& checkpoints, CheckpointSchema const& schema,
                           int ranks, std::int64_t step, Engine& engine,
                           CommitHook const& hook = {});

struct Outcome {
  int status = 0;  // exit code; 128 + signal when killed
  std::string output;
};
/// Runs a shell command; stdout and stderr together.
Outcome run(std::string const& command);

/// Runs `action` in a forked child and returns how that ended; the child exits 0 after it.
int status_of_child(std::function<void()> const& action);

void flip_bit(std::filesystem::path const& file, std::uint64_t byte, int bit);

/// What the action throws as an Error, or "" if nothing.
std::string error_of(std::function<void()> const& action);

}  // namespace spillway::io::test
