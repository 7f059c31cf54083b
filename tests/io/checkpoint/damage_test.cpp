// Whatever happens to the files of a checkpoint, it is noticed and the file is named.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "io/checkpoint/manifest.hpp"
#include "lib/core/error.hpp"
#include "tests/io/checkpoint/support.hpp"

namespace spillway::io::test {

namespace fs = std::filesystem;

namespace {

std::string verification_error(fs::path const& checkpoint, Engine& engine) {
  return error_of([&] { CheckpointReader(checkpoint).verify(engine); });
}

class DamageTest : public testing::Test {
 protected:
  DamageTest()
      : engine(test_engine()), path(save(dir.path(), awkward_schema(DType::bf16), 2, 5, *engine)) {}

  void expect_named(std::string const& file) {
    auto const error = verification_error(path, *engine);
    EXPECT_NE(error.find(file), std::string::npos)
        << "damaged: " << file << ", reported: '" << error << "'";
  }

  TempDir dir{Place::memory};
  std::unique_ptr<Engine> engine;
  fs::path path;
};

}  // namespace

TEST_F(DamageTest, an_undamaged_checkpoint_verifies) {
  EXPECT_EQ(verification_error(path, *engine), "");
}

TEST_F(DamageTest, a_flipped_bit_anywhere_is_noticed_and_its_file_named) {
  std::mt19937_64 random(20240607);
  for (char const* file : {"index.h5", "shard-00000-of-00002.h5", "shard-00001-of-00002.h5"}) {
    auto const size = fs::file_size(path / file);
    std::vector<std::uint64_t> positions{0, 1, size - 1};
    for (int i = 0; i < 60; ++i) positions.push_back(random() % size);
    for (int i = 0; i < 60; ++i)
      positions.push_back(random() % 16384);  // where the HDF5 structures are
    for (std::uint64_t position : positions) {
      int const bit = static_cast<int>(random() % 8);
      flip_bit(path / file, position, bit);
      SCOPED_TRACE(fmt::format("bit {} of byte {}", bit, position));
      expect_named(file);
      flip_bit(path / file, position, bit);
    }
  }
  EXPECT_EQ(verification_error(path, *engine), "");
}

TEST_F(DamageTest, a_flipped_bit_in_any_byte_of_the_checksums_names_them) {
  for (std::uint64_t position = 0; position < fs::file_size(path / "CHECKSUMS"); ++position) {
    flip_bit(path / "CHECKSUMS", position, static_cast<int>(position % 8));
    SCOPED_TRACE(position);
    expect_named("CHECKSUMS' is damaged");
    flip_bit(path / "CHECKSUMS", position, static_cast<int>(position % 8));
  }
}

TEST_F(DamageTest, the_error_names_dataset_and_offset) {
  auto const marker = run(
      fmt::format("/usr/bin/python3 -c \"import h5py; "
                  "print(h5py.File('{}/shard-00001-of-00002.h5')['block.0/m'].id.get_offset())\"",
                  path.string()));
  auto const offset = static_cast<std::uint64_t>(std::stoull(marker.output));
  EXPECT_EQ(offset % 4096, 0u);
  flip_bit(path / "shard-00001-of-00002.h5", offset + 300'000,
           1);  // second block, of 65536 elements of 4 bytes
  auto const error = verification_error(path, *engine);
  EXPECT_NE(error.find("'/block.0/m', elements from 65536"), std::string::npos) << error;
  EXPECT_NE(error.find(fmt::format("file offset {}", offset + 262'144)), std::string::npos)
      << error;

  // Reading the damaged part fails, reading others does not.
  CheckpointReader const reader(path);
  std::vector<std::byte> out(4096 * 4);
  std::int64_t const shard = awkward_schema(DType::bf16).units[1].layout.shard_elements(2);
  EXPECT_EQ(error_of([&] {
              reader.read(UnitId{1}, SavedKind::m, {shard, shard + 4096}, out, *engine);
            }),
            "");
  EXPECT_NE(error_of([&] {
              reader.read(UnitId{1}, SavedKind::m, {shard + 65536, shard + 69632}, out, *engine);
            }),
            "");
}

TEST_F(DamageTest, a_shard_cut_by_one_byte_or_by_half_is_refused_at_once) {
  auto const file = path / "shard-00000-of-00002.h5";
  auto const size = fs::file_size(file);
  for (auto cut : {size - 1, size / 2, std::uintmax_t{0}, size + 1}) {
    fs::resize_file(file, cut);
    auto const error = error_of([&] { CheckpointReader{path}; });
    EXPECT_NE(error.find(fmt::format("shard-00000-of-00002.h5' has {} bytes ({} were written)", cut,
                                     size)),
              std::string::npos)
        << error;
  }
}

TEST_F(DamageTest, a_missing_or_cut_index_is_named) {
  auto const whole = fs::file_size(path / "index.h5");
  for (auto cut : {whole - 1, whole / 2, std::uintmax_t{0}}) {
    fs::resize_file(path / "index.h5", cut);
    expect_named("index.h5' is damaged");
  }
  fs::remove(path / "index.h5");
  expect_named("has no index.h5");
}

TEST_F(DamageTest, missing_checksums_are_named) {
  fs::remove(path / "CHECKSUMS");
  expect_named("has no CHECKSUMS");
}

TEST_F(DamageTest, a_shard_of_another_step_does_not_pass) {
  auto schema = awkward_schema(DType::bf16);
  schema.units[0].name = "embeddinG";  // same sizes, same names of files
  auto const other = save(dir.path(), schema, 2, 6, *engine);
  fs::copy_file(other / "shard-00001-of-00002.h5", path / "shard-00001-of-00002.h5",
                fs::copy_options::overwrite_existing);
  expect_named("shard-00001-of-00002.h5' is damaged");
}

TEST_F(DamageTest, a_directory_where_a_file_should_be_is_an_error) {
  fs::remove(path / "shard-00000-of-00002.h5");
  fs::create_directory(path / "shard-00000-of-00002.h5");
  expect_named("shard-00000-of-00002.h5");
}

TEST(ManifestTest, every_byte_is_in_a_dataset_or_in_the_metadata) {
  auto const schema = awkward_schema(DType::f32);
  ShardRecord shard{"a.h5", 100'000, 0, {}, {}};
  shard.extents = {{UnitId{0}, SavedKind::weight, 4096, 4096, 0},
                   {UnitId{0}, SavedKind::m, 20'480, 4096, 1},  // right behind the first
                   {UnitId{0}, SavedKind::v, 0, 0, 2},          // empty, nowhere
                   {UnitId{1}, SavedKind::weight, 40'960, 8192, 2}};
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (auto const& range : metadata_ranges(schema, shard))
    ranges.emplace_back(range.begin, range.end);
  EXPECT_EQ(ranges, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{
                        {0, 4096}, {36'864, 40'960}, {73'728, 100'000}}));
}

TEST(ManifestTest, any_missing_entry_is_named) {
  Manifest manifest{awkward_schema(DType::f32), state_at(3), {}};
  ShardRecord shard{shard_name(Rank{0}, 1), 1u << 30, 5, {}, {}};
  std::int64_t checksums = 0;
  for (int unit = 0; unit < 3; ++unit)
    for (SavedKind kind : kinds_of(manifest.schema)) {
      auto const elements =
          manifest.schema.units[static_cast<std::size_t>(unit)].layout.shard_elements(1);
      shard.extents.push_back(
          {UnitId{unit}, kind, (shard.extents.size() + 1) << 24, elements, checksums});
      checksums += blocks_of(elements);
    }
  shard.checksums.resize(static_cast<std::size_t>(checksums), 1);
  manifest.shards.push_back(shard);
  auto const json = nlohmann::json::parse(to_json(manifest));
  auto const error_without = [&](std::string const& pointer) {
    auto cut = json;
    nlohmann::json::json_pointer const place(pointer);
    cut[place.parent_pointer()].erase(place.back());
    return error_of([&] { parse_manifest(cut.dump(), all_checksums(manifest)); });
  };
  EXPECT_EQ(error_of([&] { parse_manifest(json.dump(), all_checksums(manifest)); }), "");
  for (std::string const entry :
       {"/format_version", "/weight_type", "/config", "/state", "/state/step", "/state/tokens",
        "/state/next_position", "/state/json", "/units", "/units/0/name", "/units/1/shard_elements",
        "/units/1/tensors", "/units/1/tensors/0/shape", "/units/1/tensors/2/end", "/shards",
        "/shards/0/file", "/shards/0/size", "/shards/0/metadata_xxh3", "/shards/0/offsets"}) {
    auto const name = entry.substr(entry.rfind('/') + 1);
    EXPECT_NE(error_without(entry).find(fmt::format("no entry '{}'", name)), std::string::npos)
        << error_without(entry);
  }
  auto newer = json;
  newer["format_version"] = 2;
  EXPECT_NE(error_of([&] {
              parse_manifest(newer.dump(), all_checksums(manifest));
            }).find("format_version is 2"),
            std::string::npos);
  EXPECT_NE(error_of([&] { parse_manifest("{", {}); }).find("not valid JSON"), std::string::npos);
  auto fewer = all_checksums(manifest);
  fewer.pop_back();
  EXPECT_NE(error_of([&] { parse_manifest(json.dump(), fewer); }).find("checksums"),
            std::string::npos);
}

}  // namespace spillway::io::test
