#include "io/checkpoint/manifest.hpp"

#include <fmt/core.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "io/checkpoint/checksum.hpp"
#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::io {

using Json = nlohmann::ordered_json;

namespace {

/// The entry `key` of an object as a T; any lack or wrong type is bad input that names the key.
template <class T>
T entry(Json const& object, char const* key) {
  if (!object.is_object() || !object.contains(key))
    fail(Fault::bad_input, fmt::format("the manifest has no entry '{}'", key));
  try {
    return object.at(key).get<T>();
  } catch (Json::exception const& error) {
    fail(Fault::bad_input,
         fmt::format("entry '{}' of the manifest is of a wrong type ({})", key, error.what()));
  }
}

/// Runs `action` and turns an exception of the JSON library into an Error.
template <class Action>
auto with_json(char const* what, Action&& action) {
  try {
    return action();
  } catch (Json::exception const& error) {
    fail(Fault::bad_input, fmt::format("{} is not valid JSON ({})", what, error.what()));
  }
}

Json shard_json(ShardRecord const& shard) {
  Json offsets = Json::array();
  for (auto const& extent : shard.extents) offsets.push_back(extent.offset);
  return {{"file", shard.file},
          {"size", shard.size},
          {"metadata_xxh3", hex(shard.metadata_hash)},
          {"offsets", offsets}};
}

/// The extents' elements and kinds follow from the schema; only their offsets are stored.
ShardRecord shard_from_json(Json const& json, CheckpointSchema const& schema,
                            std::span<std::int64_t const> shard_elements) {
  ShardRecord shard;
  shard.file = entry<std::string>(json, "file");
  shard.size = entry<std::uint64_t>(json, "size");
  shard.metadata_hash = parse_hex(entry<std::string>(json, "metadata_xxh3"));
  auto const offsets = entry<std::vector<std::uint64_t>>(json, "offsets");
  auto const kinds = kinds_of(schema);
  if (offsets.size() != schema.units.size() * kinds.size())
    fail(Fault::bad_input,
         fmt::format("shard '{}' has {} datasets ({} units of {} kinds expected)", shard.file,
                     offsets.size(), schema.units.size(), kinds.size()));
  std::int64_t checksums = 0;
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    std::size_t const unit = i / kinds.size();
    shard.extents.push_back({UnitId{narrow<int>(unit)}, kinds[i % kinds.size()], offsets[i],
                             shard_elements[unit], checksums});
    checksums += blocks_of(shard_elements[unit]);
  }
  return shard;
}

std::int64_t checksum_count(ShardRecord const& shard) {
  if (shard.extents.empty()) return 0;
  auto const& last = shard.extents.back();
  return last.first_checksum + blocks_of(last.elements);
}

Json unit_json(SavedUnit const& unit, std::int64_t shard_elements) {
  Json tensors = Json::array();
  for (auto const& tensor : unit.layout.tensors())
    tensors.push_back({{"name", tensor.name},
                       {"shape", tensor.shape},
                       {"begin", tensor.range.begin},
                       {"end", tensor.range.end}});
  return {{"name", unit.name}, {"shard_elements", shard_elements}, {"tensors", tensors}};
}

SavedUnit unit_from_json(Json const& json) {
  std::vector<shard::FlatLayout::Tensor> tensors;
  std::vector<shard::Range> ranges;
  auto const listed = entry<Json>(json, "tensors");
  for (auto const& tensor : listed) {
    tensors.push_back(
        {entry<std::string>(tensor, "name"), entry<std::vector<std::int64_t>>(tensor, "shape")});
    ranges.push_back({entry<std::int64_t>(tensor, "begin"), entry<std::int64_t>(tensor, "end")});
  }
  SavedUnit unit{entry<std::string>(json, "name"), shard::FlatLayout(tensors)};
  for (std::size_t i = 0; i < ranges.size(); ++i)
    if (unit.layout.tensors()[i].range != ranges[i])
      fail(
          Fault::bad_input,
          fmt::format("tensor '{}' is saved at elements [{}, {}) of its unit (this program lays it "
                      "at [{}, {})). Was it written by another version?",
                      tensors[i].name, ranges[i].begin, ranges[i].end,
                      unit.layout.tensors()[i].range.begin, unit.layout.tensors()[i].range.end));
  return unit;
}

std::vector<std::int64_t> shard_elements_of(CheckpointSchema const& schema, int ranks) {
  std::vector<std::int64_t> elements;
  for (auto const& unit : schema.units) elements.push_back(unit.layout.shard_elements(ranks));
  return elements;
}

}  // namespace

Extent const& ShardRecord::extent(UnitId unit, SavedKind kind) const {
  for (auto const& candidate : extents)
    if (candidate.unit == unit && candidate.kind == kind) return candidate;
  fail(Fault::internal,
       fmt::format("shard '{}' has no {} of unit {}", file, name_of(kind), unit.get()));
}

std::vector<ByteRange> metadata_ranges(CheckpointSchema const& schema, ShardRecord const& shard) {
  std::vector<ByteRange> ranges;
  std::uint64_t at = 0;
  for (auto const& extent : shard.extents) {
    if (extent.elements == 0) continue;
    if (extent.offset > at) ranges.push_back({at, extent.offset});
    at = extent.offset +
         static_cast<std::uint64_t>(extent.elements) * size_of(schema.type(extent.kind));
  }
  if (shard.size > at) ranges.push_back({at, shard.size});
  return ranges;
}

std::vector<std::byte> pack_shard(ShardRecord const& shard) {
  std::string const text = shard_json(shard).dump();
  std::uint64_t const length = text.size();
  std::vector<std::byte> bytes(sizeof length + text.size() + 8 * shard.checksums.size());
  std::memcpy(bytes.data(), &length, sizeof length);
  std::memcpy(bytes.data() + sizeof length, text.data(), text.size());
  if (!shard.checksums.empty())
    std::memcpy(bytes.data() + sizeof length + text.size(), shard.checksums.data(),
                8 * shard.checksums.size());
  return bytes;
}

ShardRecord unpack_shard(std::span<std::byte const> bytes, CheckpointSchema const& schema,
                         int ranks) {
  std::uint64_t length = 0;
  if (bytes.size() >= sizeof length) std::memcpy(&length, bytes.data(), sizeof length);
  if (bytes.size() < sizeof length || length > bytes.size() - sizeof length)
    fail(Fault::bad_input, "a shard's part of the index is cut off");
  std::string const text(reinterpret_cast<char const*>(bytes.data()) + sizeof length, length);
  auto const json = with_json("a shard's part of the index", [&] { return Json::parse(text); });
  auto shard = shard_from_json(json, schema, shard_elements_of(schema, ranks));
  auto const rest = bytes.subspan(sizeof length + length);
  if (rest.size() != 8 * static_cast<std::size_t>(checksum_count(shard)))
    fail(Fault::bad_input, fmt::format("shard '{}' brings {} bytes of checksums ({} expected)",
                                       shard.file, rest.size(), 8 * checksum_count(shard)));
  shard.checksums.resize(rest.size() / 8);
  if (!rest.empty()) std::memcpy(shard.checksums.data(), rest.data(), rest.size());
  return shard;
}

std::string to_json(Manifest const& manifest) {
  return with_json("the configuration or state", [&] {
    Json units = Json::array();
    for (auto const& unit : manifest.schema.units)
      units.push_back(unit_json(unit, unit.layout.shard_elements(manifest.ranks())));
    Json shards = Json::array();
    for (auto const& shard : manifest.shards) shards.push_back(shard_json(shard));
    auto const& state = manifest.state;
    Json const json{{"format_version", kFormatVersion},
                    {"weight_type", name_of(manifest.schema.weight_type)},
                    {"state",
                     {{"step", state.step},
                      {"tokens", state.tokens},
                      {"next_position", state.next_position},
                      {"json", state.json}}},
                    {"config", manifest.schema.config_json},
                    {"units", units},
                    {"shards", shards}};
    return json.dump();
  });
}

std::vector<std::uint64_t> all_checksums(Manifest const& manifest) {
  std::vector<std::uint64_t> all;
  for (auto const& shard : manifest.shards)
    all.insert(all.end(), shard.checksums.begin(), shard.checksums.end());
  return all;
}

Manifest parse_manifest(std::string const& text, std::span<std::uint64_t const> checksums) {
  auto const json = with_json("the manifest", [&] { return Json::parse(text); });
  auto const version = entry<std::int64_t>(json, "format_version");
  if (version != kFormatVersion)
    fail(Fault::bad_input,
         fmt::format(
             "format_version is {} (this program reads {}). Was it written by a newer version?",
             version, kFormatVersion));
  Manifest manifest;
  auto& schema = manifest.schema;
  auto const type = entry<std::string>(json, "weight_type");
  if (type != name_of(DType::f32) && type != name_of(DType::bf16))
    fail(Fault::bad_input,
         fmt::format("entry 'weight_type' is '{}' (this program reads fp32 and bf16)", type));
  schema.weight_type = dtype_from_name(type);
  schema.config_json = entry<std::string>(json, "config");
  auto const state = entry<Json>(json, "state");
  manifest.state = {entry<std::int64_t>(state, "step"), entry<std::int64_t>(state, "tokens"),
                    entry<std::int64_t>(state, "next_position"), entry<std::string>(state, "json")};
  std::vector<std::int64_t> shard_elements;
  auto const units = entry<Json>(json, "units");
  for (auto const& unit : units) {
    schema.units.push_back(unit_from_json(unit));
    shard_elements.push_back(entry<std::int64_t>(unit, "shard_elements"));
  }
  auto const shards = entry<Json>(json, "shards");
  for (auto const& listed : shards) {
    auto shard = shard_from_json(listed, schema, shard_elements);
    auto const count = static_cast<std::size_t>(checksum_count(shard));
    if (count > checksums.size())
      fail(Fault::bad_input, fmt::format("checksums of shard '{}' are missing", shard.file));
    shard.checksums.assign(checksums.begin(),
                           checksums.begin() + static_cast<std::ptrdiff_t>(count));
    checksums = checksums.subspan(count);
    manifest.shards.push_back(std::move(shard));
  }
  if (!checksums.empty())
    fail(Fault::bad_input, fmt::format("{} checksums belong to no shard", checksums.size()));
  check_complete(manifest);
  return manifest;
}

namespace {

void check_extents(Manifest const& manifest, ShardRecord const& shard) {
  std::uint64_t end = 0;
  for (auto const& extent : shard.extents) {
    if (extent.elements == 0) continue;
    auto const name = extent_name(manifest.schema, extent.unit, extent.kind);
    if (extent.elements < 0 || extent.offset < end || extent.offset > shard.size)
      fail(Fault::bad_input,
           fmt::format("dataset '{}' of '{}' is out of place (offset {} in a file of {} bytes)",
                       name, shard.file, extent.offset, shard.size));
    auto const room = (shard.size - extent.offset) / size_of(manifest.schema.type(extent.kind));
    if (static_cast<std::uint64_t>(extent.elements) > room)
      fail(Fault::bad_input,
           fmt::format("dataset '{}' of '{}' has {} elements (the file ends after {})", name,
                       shard.file, extent.elements, room));
    end = extent.offset +
          static_cast<std::uint64_t>(extent.elements) * size_of(manifest.schema.type(extent.kind));
  }
}

}  // namespace

void check_complete(Manifest const& manifest) {
  if (manifest.shards.empty()) fail(Fault::bad_input, "the checkpoint has no shards");
  std::set<std::string> units;
  std::set<std::string> tensors;
  for (std::size_t i = 0; i < manifest.schema.units.size(); ++i) {
    auto const& unit = manifest.schema.units[i];
    if (!units.insert(unit.name).second)
      fail(Fault::bad_input, fmt::format("two units are named '{}'", unit.name));
    for (auto const& tensor : unit.layout.tensors())
      if (!tensors.insert(tensor.name).second)
        fail(Fault::bad_input, fmt::format("two tensors are named '{}'", tensor.name));
    auto const& first = manifest.shards.front().extent(UnitId{narrow<int>(i)}, SavedKind::weight);
    if (first.elements * manifest.ranks() < unit.layout.elements())
      fail(Fault::bad_input,
           fmt::format("the shards hold {} elements of unit '{}' ({} needed)",
                       first.elements * manifest.ranks(), unit.name, unit.layout.elements()));
  }
  for (int rank = 0; rank < manifest.ranks(); ++rank) {
    auto const& shard = manifest.shards[static_cast<std::size_t>(rank)];
    if (shard.file != shard_name(Rank{rank}, manifest.ranks()))
      fail(Fault::bad_input, fmt::format("shard {} is '{}' ('{}' expected)", rank, shard.file,
                                         shard_name(Rank{rank}, manifest.ranks())));
    check_extents(manifest, shard);
  }
}

}  // namespace spillway::io
