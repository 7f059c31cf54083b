// Names, sizes and comparison of what checkpoints hold.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/manifest.hpp"
#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::io {

std::string_view name_of(SavedKind kind) {
  switch (kind) {
    case SavedKind::weight: return "weight";
    case SavedKind::master: return "master";
    case SavedKind::m: return "m";
    case SavedKind::v: return "v";
  }
  fail(Fault::internal, fmt::format("unknown saved kind {}", static_cast<int>(kind)));
}

std::vector<SavedKind> kinds_of(CheckpointSchema const& schema) {
  std::vector<SavedKind> kinds;
  for (SavedKind kind : {SavedKind::weight, SavedKind::master, SavedKind::m, SavedKind::v})
    if (schema.has(kind)) kinds.push_back(kind);
  return kinds;
}

SavedKind stored_as(CheckpointSchema const& schema, SavedKind kind) {
  return schema.has(kind) ? kind : SavedKind::weight;
}

std::string shard_name(Rank rank, int ranks) {
  return fmt::format("shard-{:05}-of-{:05}.h5", rank.get(), ranks);
}

std::string extent_name(CheckpointSchema const& schema, UnitId unit, SavedKind kind) {
  return fmt::format("/{}/{}", schema.units.at(static_cast<std::size_t>(unit.get())).name,
                     name_of(kind));
}

std::int64_t blocks_of(std::int64_t elements) { return div_ceil(elements, kChecksumElements); }

// Measured with HDF5 1.10: a group and its links take under 2 KiB, a dataset under 1 KiB, both plus
// alignment; a virtual dataset in the index takes under 1 KiB, a box of it under 200 bytes, and a
// shard adds at most one tensor border, of up to 5 boxes, to each unit and kind.
std::uint64_t shard_bytes_max(CheckpointSchema const& schema, int ranks) {
  std::uint64_t bytes = 64 << 10;
  for (auto const& unit : schema.units) {
    auto const elements = static_cast<std::uint64_t>(unit.layout.shard_elements(ranks));
    for (SavedKind kind : kinds_of(schema)) bytes += elements * size_of(schema.type(kind)) + 6144;
    bytes += 4096;
  }
  return bytes;
}

namespace {

std::uint64_t index_bytes_max(CheckpointSchema const& schema, int ranks) {
  auto const shards = static_cast<std::uint64_t>(ranks);
  std::uint64_t bytes = (256 << 10) + 2 * schema.config_json.size();
  std::uint64_t const kinds = kinds_of(schema).size();
  for (auto const& unit : schema.units) {
    auto const blocks = static_cast<std::uint64_t>(blocks_of(unit.layout.shard_elements(ranks)));
    bytes += shards * (kinds * (blocks * sizeof(std::uint64_t) + 32) + 4 * 5 * 200);
    for (auto const& tensor : unit.layout.tensors()) bytes += 4 * (2048 + 4 * tensor.name.size());
  }
  return bytes;
}

}  // namespace

std::uint64_t shard_file_bytes(CheckpointSchema const& schema, int ranks) {
  return shard_bytes_max(schema, ranks) +
         div_ceil(index_bytes_max(schema, ranks), static_cast<std::uint64_t>(ranks));
}

namespace {

void check_unit(SavedUnit const& saved, SavedUnit const& expected, std::string const& where) {
  auto const& have = saved.layout.tensors();
  auto const& want = expected.layout.tensors();
  for (std::size_t i = 0; i < std::min(have.size(), want.size()); ++i) {
    if (have[i].name != want[i].name)
      fail(Fault::bad_input,
           fmt::format("{}: tensor {} of unit '{}' is '{}' (the model expects '{}'). Is it a "
                       "checkpoint of another model?",
                       where, i, saved.name, have[i].name, want[i].name));
    if (have[i].shape != want[i].shape)
      fail(Fault::bad_input, fmt::format("{}: tensor '{}' has shape [{}] (the model expects [{}])",
                                         where, have[i].name, fmt::join(have[i].shape, ", "),
                                         fmt::join(want[i].shape, ", ")));
  }
  if (have.size() < want.size())
    fail(Fault::bad_input,
         fmt::format("{}: unit '{}' lacks tensor '{}'", where, saved.name, want[have.size()].name));
  if (have.size() > want.size())
    fail(Fault::bad_input,
         fmt::format("{}: unit '{}' has tensor '{}' (the model has none of that name)", where,
                     saved.name, have[want.size()].name));
}

}  // namespace

void CheckpointReader::check_model(CheckpointSchema const& expected) const {
  auto const& saved = schema();
  auto const where = directory().string();
  if (saved.weight_type != expected.weight_type)
    fail(Fault::bad_input, fmt::format("{}: weights are {} (the run uses {}). Set model.dtype={}?",
                                       where, name_of(saved.weight_type),
                                       name_of(expected.weight_type), name_of(saved.weight_type)));
  for (std::size_t i = 0; i < std::min(saved.units.size(), expected.units.size()); ++i) {
    if (saved.units[i].name != expected.units[i].name)
      fail(Fault::bad_input, fmt::format("{}: unit {} is '{}' (the model expects '{}')", where, i,
                                         saved.units[i].name, expected.units[i].name));
    check_unit(saved.units[i], expected.units[i], where);
  }
  if (saved.units.size() != expected.units.size()) {
    bool const lacks = saved.units.size() < expected.units.size();
    auto const& other = lacks ? expected.units : saved.units;
    fail(Fault::bad_input,
         fmt::format("{}: {} unit '{}' ({} units are saved, the model has {})", where,
                     lacks ? "lacks" : "has",
                     other[std::min(saved.units.size(), expected.units.size())].name,
                     saved.units.size(), expected.units.size()));
  }
}

}  // namespace spillway::io
