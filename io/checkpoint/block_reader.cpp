#include "io/checkpoint/block_reader.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include "io/checkpoint/checksum.hpp"
#include "io/file.hpp"
#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::io {

namespace {

constexpr std::size_t kSlotBytes = 1u << 20;
constexpr std::size_t kSlots =
    8;  // enough in flight for the speed of the disk, and 8 MiB is no burden on any budget
constexpr std::size_t kAlignment = 4096;

struct FreeDeleter {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};

std::unique_ptr<std::byte, FreeDeleter> aligned_bytes(std::size_t bytes) {
  auto* const raw = static_cast<std::byte*>(std::aligned_alloc(kAlignment, bytes));
  if (raw == nullptr) throw std::bad_alloc();
  return std::unique_ptr<std::byte, FreeDeleter>(raw);
}

/// One read in flight. The ticket is last, so that it has waited before file and memory go.
struct Slot {
  std::span<std::byte> memory;
  std::shared_ptr<File> file;
  Ticket ticket;
};

/// Reads ahead over the runs with a ring of slots.
class BlockReader {
 public:
  BlockReader(Manifest const& manifest, std::filesystem::path const& directory,
              std::span<BlockRun const> runs, Engine& engine)
      : manifest_(manifest),
        directory_(directory),
        runs_(runs),
        engine_(engine),
        slots_(std::min(kSlots, runs.size())) {
    memory_ = aligned_bytes(kSlotBytes * slots_.size());
    for (std::size_t i = 0; i < slots_.size(); ++i)
      slots_[i].memory = {memory_.get() + i * kSlotBytes, kSlotBytes};
  }

  void run(BlockSink const& sink) {
    for (std::size_t i = 0; i < slots_.size(); ++i) issue(i);
    for (std::size_t i = 0; i < runs_.size(); ++i) {
      Slot& slot = slots_[i % slots_.size()];
      slot.ticket.wait();
      auto const bytes = std::span<std::byte const>(slot.memory).first(bytes_of(runs_[i]));
      verify(runs_[i], bytes);
      sink(runs_[i], bytes);
      if (i + slots_.size() < runs_.size()) issue(i + slots_.size());
    }
  }

 private:
  ShardRecord const& shard(BlockRun const& run) const { return manifest_.shards[run.shard]; }
  Extent const& extent(BlockRun const& run) const { return shard(run).extents[run.extent]; }
  std::size_t element_bytes(BlockRun const& run) const {
    return size_of(manifest_.schema.type(extent(run).kind));
  }
  std::size_t bytes_of(BlockRun const& run) const {
    return static_cast<std::size_t>(run.elements.size()) * element_bytes(run);
  }
  std::uint64_t offset_of(BlockRun const& run) const {
    return extent(run).offset + static_cast<std::uint64_t>(run.elements.begin) * element_bytes(run);
  }

  void issue(std::size_t i) {
    BlockRun const& run = runs_[i];
    if (file_ == nullptr || run.shard != file_shard_) {
      if (file_ != nullptr && !file_->direct()) file_->drop_cache();
      file_ = std::make_shared<File>(directory_ / shard(run).file, Access::read);
      file_shard_ = run.shard;
    }
    Slot& slot = slots_[i % slots_.size()];
    slot.file = file_;
    slot.ticket =
        engine_.read(*file_, FileOffset{offset_of(run)}, slot.memory.first(bytes_of(run)));
  }

  void verify(BlockRun const& run, std::span<std::byte const> bytes) const {
    std::size_t const block = static_cast<std::size_t>(kChecksumElements) * element_bytes(run);
    auto checksum = static_cast<std::size_t>(extent(run).first_checksum +
                                             run.elements.begin / kChecksumElements);
    for (std::size_t at = 0; at < bytes.size(); at += block, ++checksum) {
      auto const hash = xxh3(bytes.subspan(at, std::min(block, bytes.size() - at)));
      if (hash == shard(run).checksums[checksum]) continue;
      std::int64_t const element =
          run.elements.begin + static_cast<std::int64_t>(at / element_bytes(run));
      fail(Fault::bad_input,
           fmt::format("'{}' is damaged: dataset '{}', elements from {} (file offset {}), has XXH3 "
                       "{} ({} was written)",
                       (directory_ / shard(run).file).string(),
                       extent_name(manifest_.schema, extent(run).unit, extent(run).kind), element,
                       offset_of(run) + at, hex(hash), hex(shard(run).checksums[checksum])));
    }
  }

  Manifest const& manifest_;
  std::filesystem::path const& directory_;
  std::span<BlockRun const> runs_;
  Engine& engine_;
  std::unique_ptr<std::byte, FreeDeleter> memory_;
  std::shared_ptr<File> file_;  // shared with the slots that read from it: the next shard is opened
                                // before they are done
  std::size_t file_shard_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace

void append_runs(Manifest const& manifest, std::size_t shard, std::size_t extent,
                 shard::Range wanted, std::vector<BlockRun>& runs) {
  auto const& place = manifest.shards[shard].extents[extent];
  if (wanted.size() == 0) return;
  auto const element = static_cast<std::int64_t>(size_of(manifest.schema.type(place.kind)));
  std::int64_t const step =
      static_cast<std::int64_t>(kSlotBytes) / (kChecksumElements * element) * kChecksumElements;
  std::int64_t begin = wanted.begin / kChecksumElements * kChecksumElements;
  std::int64_t const end = std::min(round_up(wanted.end, kChecksumElements), place.elements);
  for (; begin < end; begin += step)
    runs.push_back({shard, extent, {begin, std::min(begin + step, end)}});
}

void read_blocks(Manifest const& manifest, std::filesystem::path const& directory,
                 std::span<BlockRun const> runs, Engine& engine, BlockSink const& sink) {
  if (runs.empty()) return;
  BlockReader(manifest, directory, runs, engine).run(sink);
}

}  // namespace spillway::io
