#include "io/checkpoint/index.hpp"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <chrono>
#include <cstring>

#include "io/checkpoint/boxes.hpp"
#include "io/checkpoint/checksum.hpp"
#include "io/checkpoint/durable.hpp"
#include "io/hdf5/hdf5_file.hpp"
#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::io {

namespace {

constexpr char kManifest[] = "/spillway/manifest";
constexpr char kBlockChecksums[] = "/spillway/checksums";
constexpr char kManifestHash[] = "manifest_xxh3";

std::span<std::byte const> bytes_of(std::string const& text) {
  return std::as_bytes(std::span(text));
}

/// Where each piece of a tensor lies in the shards, as boxes of its shape.
std::vector<VirtualBox> virtual_boxes(Manifest const& manifest, UnitId unit, SavedKind kind,
                                      shard::Placed const& tensor,
                                      std::span<std::int64_t const> shape) {
  std::vector<VirtualBox> boxes;
  for (int rank = 0; rank < manifest.ranks(); ++rank) {
    auto const& shard = manifest.shards[static_cast<std::size_t>(rank)];
    auto const& extent = shard.extent(unit, kind);
    shard::Range const held{rank * extent.elements, (rank + 1) * extent.elements};
    auto const part = shard::intersect(tensor.range, held);
    for (auto& box :
         boxes_of(shape, {part.begin - tensor.range.begin, part.end - tensor.range.begin}))
      boxes.push_back(
          {std::move(box.start), std::move(box.extent), shard.file,
           extent_name(manifest.schema, unit, kind), static_cast<std::uint64_t>(extent.elements),
           static_cast<std::uint64_t>(tensor.range.begin + box.elements.begin - held.begin)});
  }
  return boxes;
}

void add_tensors(Hdf5File& file, Manifest const& manifest, SavedKind kind,
                 std::string const& group) {
  auto const& schema = manifest.schema;
  SavedKind const stored = stored_as(schema, kind);
  for (std::size_t i = 0; i < schema.units.size(); ++i) {
    for (auto const& tensor : schema.units[i].layout.tensors()) {
      auto shape = tensor.shape;
      if (shape.empty()) shape.push_back(1);  // HDF5 has no virtual scalars
      std::vector<std::uint64_t> const extents(shape.begin(), shape.end());
      file.create_virtual(group + tensor.name, schema.type(stored), extents,
                          virtual_boxes(manifest, UnitId{narrow<int>(i)}, stored, tensor, shape));
    }
  }
}

void add_attributes(Hdf5File& file, Manifest const& manifest, std::string const& json) {
  auto const now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  file.set_attribute("format_version", kFormatVersion);
  file.set_attribute("program", std::string_view("spillway " SPILLWAY_VERSION));
  file.set_attribute("created",
                     std::string_view(fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))));
  file.set_attribute("step", manifest.state.step);
  file.set_attribute("tokens", manifest.state.tokens);
  file.set_attribute("next_position", manifest.state.next_position);
  file.set_attribute("ranks", std::int64_t{manifest.ranks()});
  file.set_attribute("weight_type", name_of(manifest.schema.weight_type));
  file.set_attribute(kManifestHash, std::string_view(hex(xxh3(bytes_of(json)))));
}

}  // namespace

std::vector<std::byte> build_index(Manifest const& manifest) {
  auto const json = to_json(manifest);
  Hdf5Session const session;
  auto file = Hdf5File::create_in_memory();
  add_attributes(file, manifest, json);
  file.write_text("/config_json", manifest.schema.config_json);
  file.write_text("/state_json", manifest.state.json);
  file.write(kManifest, bytes_of(json));
  file.write(kBlockChecksums, all_checksums(manifest));
  add_tensors(file, manifest, SavedKind::weight, "/model/");
  add_tensors(file, manifest, SavedKind::master, "/optimizer/master/");
  add_tensors(file, manifest, SavedKind::m, "/optimizer/m/");
  add_tensors(file, manifest, SavedKind::v, "/optimizer/v/");
  auto image = file.image();
  file.close();
  return image;
}

Manifest parse_index(std::span<std::byte const> image) {
  std::string json;
  std::vector<std::uint64_t> checksums;
  try {
    Hdf5Session const session;
    auto const file = Hdf5File::open_image(image);
    auto const bytes = file.read_bytes(kManifest);
    json.assign(reinterpret_cast<char const*>(bytes.data()), bytes.size());
    if (file.text_attribute(kManifestHash) != hex(xxh3(bytes)))
      fail(Fault::bad_input, fmt::format("dataset '{}' does not match its hash", kManifest));
    checksums = file.read_u64(kBlockChecksums);
  } catch (Error const& error) {
    fail(Fault::bad_input,
         fmt::format("not a readable index of a checkpoint ({})", error.problem()));
  }
  return parse_manifest(json, checksums);
}

std::string checksums_text(std::span<std::byte const> index) {
  return fmt::format("XXH3 ({0}) = {1}\nXXH128 ({0}) = {2}\n", kIndexFile, hex(xxh3(index)),
                     xxh128_hex(index));
}

std::vector<std::byte> read_verified_index(std::filesystem::path const& directory) {
  for (char const* name : {kIndexFile, kChecksumsFile})
    if (!std::filesystem::is_regular_file(directory / name))
      fail(Fault::bad_input,
           fmt::format("'{}' has no {} (it is not a whole checkpoint)", directory.string(), name));
  auto index = read_file(directory / kIndexFile);
  auto const raw = read_file(directory / kChecksumsFile);
  std::string const text(reinterpret_cast<char const*>(raw.data()), raw.size());
  if (text == checksums_text(index)) return index;
  bool const index_good =
      text.find(hex(xxh3(index))) != text.npos || text.find(xxh128_hex(index)) != text.npos;
  auto const damaged = (directory / (index_good ? kChecksumsFile : kIndexFile)).string();
  if (index_good)
    fail(Fault::bad_input,
         fmt::format("'{}' is damaged (it does not read as it was written)", damaged));
  fail(Fault::bad_input, fmt::format("'{}' is damaged (its XXH3 is {}, {} has another)", damaged,
                                     hex(xxh3(index)), kChecksumsFile));
}

}  // namespace spillway::io
