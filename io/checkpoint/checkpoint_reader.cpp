// A committed checkpoint: index first, then any range of any unit from whichever shards hold it.
#include <fmt/core.h>

#include <cstring>
#include <unordered_map>

#include "io/checkpoint/block_reader.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/checksum.hpp"
#include "io/checkpoint/durable.hpp"
#include "io/checkpoint/index.hpp"
#include "io/checkpoint/manifest.hpp"
#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::io {

struct CheckpointReader::Impl {
  std::filesystem::path directory;
  Manifest manifest;

  /// Gives the part of `flat` that the shards hold to `take`, in order, as (first element of the
  /// flat, bytes).
  template <class Take>
  void read_range(UnitId unit, SavedKind kind, shard::Range flat, Engine& engine,
                  Take&& take) const;
  void check_shard(ShardRecord const& shard) const;
};

template <class Take>
void CheckpointReader::Impl::read_range(UnitId unit, SavedKind kind, shard::Range flat,
                                        Engine& engine, Take&& take) const {
  auto const& schema = manifest.schema;
  SavedKind const stored = stored_as(schema, kind);
  auto const element = static_cast<std::int64_t>(size_of(schema.type(stored)));
  std::vector<BlockRun> runs;
  std::int64_t held = 0;  // elements of each shard
  for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
    auto const& extent = manifest.shards[i].extent(unit, stored);
    held = extent.elements;
    std::int64_t const first = static_cast<std::int64_t>(i) * held;
    auto const part = shard::intersect(flat, {first, first + held});
    auto const index = static_cast<std::size_t>(&extent - manifest.shards[i].extents.data());
    append_runs(manifest, i, index, {part.begin - first, part.end - first}, runs);
  }
  read_blocks(
      manifest, directory, runs, engine,
      [&](BlockRun const& run, std::span<std::byte const> bytes) {
        std::int64_t const first = static_cast<std::int64_t>(run.shard) * held + run.elements.begin;
        auto const part = shard::intersect(flat, {first, first + run.elements.size()});
        take(part.begin, bytes.subspan(static_cast<std::size_t>((part.begin - first) * element),
                                       static_cast<std::size_t>(part.size() * element)));
      });
}

void CheckpointReader::Impl::check_shard(ShardRecord const& shard) const {
  auto const path = directory / shard.file;
  if (!std::filesystem::is_regular_file(path))
    fail(Fault::bad_input, fmt::format("shard '{}' is missing", path.string()));
  std::error_code error;
  auto const size = std::filesystem::file_size(path, error);
  if (error)
    fail(Fault::io, fmt::format("cannot look at '{}' ({})", path.string(), error.message()));
  if (size != shard.size)
    fail(Fault::bad_input,
         fmt::format("shard '{}' has {} bytes ({} were written)", path.string(), size, shard.size));
}

CheckpointReader::CheckpointReader(std::filesystem::path directory)
    : impl_(std::make_unique<Impl>()) {
  impl_->directory = std::move(directory);
  auto const image = read_verified_index(impl_->directory);
  doing(fmt::format("reading '{}'", (impl_->directory / kIndexFile).string()),
        [&] { impl_->manifest = parse_index(image); });
  for (auto const& shard : impl_->manifest.shards) impl_->check_shard(shard);
}

CheckpointReader::~CheckpointReader() = default;
CheckpointReader::CheckpointReader(CheckpointReader&&) noexcept = default;

CheckpointSchema const& CheckpointReader::schema() const { return impl_->manifest.schema; }
TrainingState const& CheckpointReader::state() const { return impl_->manifest.state; }
int CheckpointReader::ranks() const { return impl_->manifest.ranks(); }
std::filesystem::path const& CheckpointReader::directory() const { return impl_->directory; }

namespace {

/// Zeros what belongs to no tensor: padding is never meaning, whatever the saving run had there.
void zero_padding(shard::FlatLayout const& layout, shard::Range flat, std::size_t element,
                  std::span<std::byte> out) {
  auto const zero = [&](shard::Range gap) {
    auto const part = shard::intersect(flat, gap);
    std::memset(out.data() + static_cast<std::size_t>(part.begin - flat.begin) * element, 0,
                static_cast<std::size_t>(part.size()) * element);
  };
  std::int64_t end = 0;
  for (auto const& tensor : layout.tensors()) {
    zero({end, tensor.range.begin});
    end = tensor.range.end;
  }
  zero({end, std::max(end, flat.end)});
}

}  // namespace

void CheckpointReader::read(UnitId unit, SavedKind kind, shard::Range flat,
                            std::span<std::byte> out, Engine& engine) const {
  std::size_t const element = size_of(schema().type(stored_as(schema(), kind)));
  expect(flat.begin >= 0 && flat.begin % shard::kShardQuantum == 0 &&
             flat.end % shard::kShardQuantum == 0,
         "a range read from a checkpoint has borders at multiples of the shard quantum");
  expect(out.size() == static_cast<std::size_t>(flat.size()) * element,
         "the memory for a range has its size");
  if (out.empty()) return;
  auto const& layout = schema().units.at(static_cast<std::size_t>(unit.get())).layout;
  auto const meaning = shard::intersect(flat, {0, layout.elements()});
  impl_->read_range(
      unit, kind, meaning, engine, [&](std::int64_t first, std::span<std::byte const> bytes) {
        std::memcpy(out.data() + static_cast<std::size_t>(first - flat.begin) * element,
                    bytes.data(), bytes.size());
      });
  zero_padding(layout, flat, element, out);
}

void CheckpointReader::read_tensor(SavedKind kind, std::string_view name, std::int64_t begin,
                                   std::span<float> out, Engine& engine) const {
  auto const& units = schema().units;
  for (std::size_t i = 0; i < units.size(); ++i) {
    for (auto const& tensor : units[i].layout.tensors()) {
      if (tensor.name != name) continue;
      std::int64_t const first = tensor.range.begin + begin;
      shard::Range const range{first, first + static_cast<std::int64_t>(out.size())};
      expect(begin >= 0 && range.end <= tensor.range.end,
             "elements read from a tensor are within it");
      bool const narrow_type = schema().type(stored_as(schema(), kind)) == DType::bf16;
      impl_->read_range(UnitId{narrow<int>(i)}, kind, range, engine,
                        [&](std::int64_t at, std::span<std::byte const> bytes) {
                          float* const to = out.data() + (at - first);
                          if (!narrow_type) {
                            std::memcpy(to, bytes.data(), bytes.size());
                            return;
                          }
                          // The borders of tensors and blocks are even bytes of page-aligned
                          // memory.
                          auto const* const from = reinterpret_cast<bf16 const*>(bytes.data());
                          for (std::size_t k = 0; k < bytes.size() / sizeof(bf16); ++k)
                            to[k] = static_cast<float>(from[k]);
                        });
      return;
    }
  }
  fail(Fault::bad_input, fmt::format("'{}' has no tensor '{}'", directory().string(), name));
}

void CheckpointReader::verify(Engine& engine) const {
  auto const& manifest = impl_->manifest;
  read_verified_index(impl_->directory);
  for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
    auto const& shard = manifest.shards[i];
    impl_->check_shard(shard);
    auto const path = impl_->directory / shard.file;
    if (hash_ranges(path, metadata_ranges(manifest.schema, shard)) != shard.metadata_hash)
      fail(Fault::bad_input,
           fmt::format("'{}' is damaged: its HDF5 structures, outside of the datasets, do not have "
                       "the hash that was written (XXH3 {})",
                       path.string(), hex(shard.metadata_hash)));
    std::vector<BlockRun> runs;
    for (std::size_t e = 0; e < shard.extents.size(); ++e)
      append_runs(manifest, i, e, {0, shard.extents[e].elements}, runs);
    read_blocks(manifest, impl_->directory, runs, engine,
                [](BlockRun const&, std::span<std::byte const>) {});
  }
}

}  // namespace spillway::io
