// One rank's shard file: laid out and closed by HDF5, then filled by direct writes at its datasets'
// offsets.
#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <optional>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/checksum.hpp"
#include "io/checkpoint/durable.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/file.hpp"
#include "io/hdf5/hdf5_file.hpp"
#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"
#include "lib/core/unique_handle.hpp"

namespace spillway::io {

namespace {

constexpr std::uint32_t kAlignment =
    4096;  // of datasets (Hdf5File::create_in) and of callers' memory

/// A file in memory; of the shard that HDF5 lays out there only its own structures take space, the
/// rest is a hole.
Fd memory_file() {
  int const fd = ::memfd_create("spillway shard", MFD_CLOEXEC);
  if (fd < 0) fail(Fault::io, fmt::format("memfd_create failed ({})", errno_text(errno)));
  return Fd(fd);
}

struct Layout {
  ShardRecord shard;
  std::vector<std::byte> metadata;  // what HDF5 wrote outside of the datasets
};

/// Creates the HDF5 file with all datasets allocated and none written, and says where they are. Not
/// on the disk: after a write that failed there, HDF5 1.10 cannot be closed any more and crashes at
/// exit.
Layout lay_out(std::filesystem::path const& path, CheckpointSchema const& schema, int ranks) {
  check_file_limit(path, shard_bytes_max(schema, ranks));  // memory files obey it too
  Fd const memory = memory_file();
  auto const place = fmt::format("/proc/self/fd/{}", memory.get());
  Layout layout;
  auto& shard = layout.shard;
  shard.file = path.filename().string();
  std::int64_t checksums = 0;
  {
    Hdf5Session const session;
    auto file = Hdf5File::create_in(memory.get());
    for (std::size_t i = 0; i < schema.units.size(); ++i) {
      UnitId const unit{narrow<int>(i)};
      std::int64_t const elements = schema.units[i].layout.shard_elements(ranks);
      for (SavedKind kind : kinds_of(schema)) {
        auto const offset = file.create_extent(extent_name(schema, unit, kind), schema.type(kind),
                                               static_cast<std::uint64_t>(elements));
        expect(offset % kAlignment == 0, "HDF5 aligns the datasets of a shard");
        shard.extents.push_back({unit, kind, offset, elements, checksums});
        checksums += blocks_of(elements);
      }
    }
    file.close();
  }
  shard.size = std::filesystem::file_size(place);
  layout.metadata = read_ranges(memory.get(), place, metadata_ranges(schema, shard));
  shard.metadata_hash = xxh3(layout.metadata);
  return layout;
}

}  // namespace

struct ShardWriter::Impl {
  Impl(std::filesystem::path path_in, CheckpointSchema const& schema_in, Engine& engine_in)
      : path(std::move(path_in)), schema(schema_in), engine(engine_in) {}

  ~Impl() {
    if (finished) return;
    file.reset();
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }

  void open(int ranks) {
    std::filesystem::remove(path);  // of a save that was killed
    file.emplace(path, Access::write_new);
    if (file->alignment() > kAlignment)
      fail(Fault::io, fmt::format("'{}' needs direct writes in multiples of {} bytes (checkpoints "
                                  "use {}). Choose a directory on "
                                  "another file system?",
                                  path.string(), file->alignment(), kAlignment));
    auto layout = lay_out(path, schema, ranks);
    record = std::move(layout.shard);
    take_space(file->fd(), path, record.size);
    // Through the page cache and out of it again before the first direct write; in blocks of their
    // own.
    write_ranges(path, metadata_ranges(schema, record), layout.metadata);
    auto const& last = record.extents.back();
    auto const blocks = last.first_checksum + blocks_of(last.elements);
    record.checksums.resize(static_cast<std::size_t>(blocks));
    written.assign(record.checksums.size(), 0);
  }

  /// Names the first element that was never written.
  void check_all_written() const {
    for (auto const& extent : record.extents) {
      auto const first = written.begin() + extent.first_checksum;
      auto const last = first + blocks_of(extent.elements);
      auto const missing = std::find(first, last, 0);
      if (missing != last)
        fail(Fault::internal,
             fmt::format("dataset '{}' of '{}' was not written at element {} (of {})",
                         extent_name(schema, extent.unit, extent.kind), path.string(),
                         (missing - first) * kChecksumElements, extent.elements));
    }
  }

  std::filesystem::path path;
  CheckpointSchema schema;
  Engine& engine;
  ShardRecord record;
  std::optional<File> file;
  std::mutex mutex;                   // guards checksums and written
  std::vector<std::uint8_t> written;  // by checksum block
  bool finished = false;
};

ShardWriter::ShardWriter(std::filesystem::path const& directory, CheckpointSchema const& schema,
                         Rank rank, int ranks, Engine& engine) {
  expect(rank.get() >= 0 && rank.get() < ranks, "a rank is one of the ranks");
  expect(!schema.units.empty(), "a checkpoint has units");
  impl_ = std::make_unique<Impl>(directory / shard_name(rank, ranks), schema, engine);
  doing(fmt::format("creating '{}'", impl_->path.string()), [&] { impl_->open(ranks); });
}

ShardWriter::~ShardWriter() = default;

Ticket ShardWriter::write(UnitId unit, SavedKind kind, std::int64_t begin,
                          std::span<std::byte const> data) {
  auto& impl = *impl_;
  auto const& extent = impl.record.extent(unit, kind);
  std::size_t const element = size_of(impl.schema.type(kind));
  auto const count = static_cast<std::int64_t>(div_exact(data.size(), element));
  bool const whole = count % kChecksumElements == 0 || begin + count == extent.elements;
  expect(begin >= 0 && begin % kChecksumElements == 0,
         "a piece of a shard begins at a checksum block");
  expect(begin + count <= extent.elements && whole,
         "a piece of a shard ends at a checksum block or with it");
  expect(reinterpret_cast<std::uintptr_t>(data.data()) % kAlignment == 0,
         "a piece of a shard is aligned in memory");
  std::vector<std::uint64_t> hashes;
  std::size_t const block = static_cast<std::size_t>(kChecksumElements) * element;
  for (std::size_t at = 0; at < data.size(); at += block)
    hashes.push_back(xxh3(data.subspan(at, std::min(block, data.size() - at))));
  {
    std::lock_guard const lock(impl.mutex);
    auto const first = extent.first_checksum + begin / kChecksumElements;
    std::copy(hashes.begin(), hashes.end(), impl.record.checksums.begin() + first);
    std::fill_n(impl.written.begin() + first, hashes.size(), std::uint8_t{1});
  }
  if (data.empty()) return {};
  FileOffset const offset{extent.offset + static_cast<std::uint64_t>(begin) * element};
  return impl.engine.write(*impl.file, offset, data);
}

std::vector<std::byte> ShardWriter::finish() {
  auto& impl = *impl_;
  impl.check_all_written();
  impl.file->sync();
  if (impl.file->size() != impl.record.size)
    fail(Fault::io, fmt::format("'{}' has {} bytes ({} expected)", impl.path.string(),
                                impl.file->size(), impl.record.size));
  if (!impl.file->direct()) impl.file->drop_cache();
  impl.finished = true;
  impl.file.reset();
  return pack_shard(impl.record);
}

}  // namespace spillway::io
