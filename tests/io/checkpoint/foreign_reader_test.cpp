// Programs that know nothing of ours read the checkpoints: h5py, h5dump, xxhsum.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <fstream>

#include "lib/core/error.hpp"
#include "tests/io/checkpoint/support.hpp"

namespace spillway::io::test {

namespace fs = std::filesystem;

namespace {

void expect_success(std::string const& command) {
  auto const outcome = run(command);
  EXPECT_EQ(outcome.status, 0) << command << "\n" << outcome.output;
}

std::string h5py(fs::path const& checkpoint, std::string const& arguments) {
  return fmt::format("cd / && /usr/bin/python3 {} {}/index.h5 {}", H5PY_CHECK, checkpoint.string(),
                     arguments);
}

}  // namespace

TEST(ForeignReaderTest, h5py_reads_every_tensor_whole_from_fp32_shards) {
  TempDir const dir;
  auto const engine = test_engine();
  for (int ranks : {1, 3, 4}) {
    auto const path = save(dir.path(), awkward_schema(DType::f32), ranks, ranks, *engine);
    expect_success(h5py(path, fmt::format("fp32 {} {}", ranks, ranks)));
  }
}

TEST(ForeignReaderTest, h5py_reads_bf16_as_float32) {
  TempDir const dir;
  auto const engine = test_engine();
  for (int ranks : {1, 2, 4}) {
    auto const path = save(dir.path(), awkward_schema(DType::bf16), ranks, 11, *engine);
    expect_success(h5py(path, fmt::format("bf16 {} 11", ranks)));
  }
}

TEST(ForeignReaderTest, a_directory_that_was_moved_reads_on) {
  TempDir const dir;
  auto const engine = test_engine();
  auto const schema = awkward_schema(DType::bf16);
  auto const path = save(dir.path(), schema, 2, 5, *engine);
  auto const elsewhere = dir.path() / "elsewhere";
  fs::create_directory(elsewhere);
  fs::rename(path, elsewhere / "kept");
  expect_success(h5py(elsewhere / "kept", "bf16 2 5"));
  CheckpointReader(elsewhere / "kept").verify(*engine);
}

TEST(ForeignReaderTest, a_missing_shard_is_nan_to_h5py_and_an_error_to_us) {
  TempDir const dir;
  auto const engine = test_engine();
  auto const path = save(dir.path(), awkward_schema(DType::bf16), 3, 5, *engine);
  CheckpointReader const reader(path);
  fs::remove(path / "shard-00001-of-00003.h5");
  // 265189 + 1001 + 509 elements, each tensor padded to 32: 266752 in 3 shards of 90112
  expect_success(h5py(path, "hole 90112:180224"));
  for (auto const& error :
       {error_of([&] { CheckpointReader{path}; }), error_of([&] { reader.verify(*engine); })})
    EXPECT_NE(error.find("shard-00001-of-00003.h5"), std::string::npos) << error;
  try {
    CheckpointReader{path};
  } catch (Error const& error) {
    EXPECT_EQ(error.fault(), Fault::bad_input);
  }
}

TEST(ForeignReaderTest, h5dump_reads_every_file) {
  TempDir const dir;
  auto const engine = test_engine();
  auto const path = save(dir.path(), awkward_schema(DType::bf16), 2, 5, *engine);
  for (char const* file : {"index.h5", "shard-00000-of-00002.h5", "shard-00001-of-00002.h5"})
    expect_success(fmt::format("h5dump -H {}/{}", path.string(), file));
  auto const outcome =
      run(fmt::format("h5dump -d /model/model.norm.weight {}/index.h5", path.string()));
  auto const schema = awkward_schema(DType::bf16);
  std::string values;
  for (int i = 0; i < 13; ++i)
    values += fmt::format("{}{:g}", i == 0 ? "(0): " : ", ",
                          value_of(schema, SavedKind::weight, "model.norm.weight", i));
  EXPECT_NE(outcome.output.find(values), std::string::npos) << outcome.output << values;
}

TEST(ForeignReaderTest, xxhsum_confirms_the_index) {
  TempDir const dir;
  auto const engine = test_engine();
  auto const path = save(dir.path(), awkward_schema(DType::f32), 1, 5, *engine);
  std::string const command = fmt::format("cd {} && xxhsum --strict -c CHECKSUMS", path.string());
  expect_success(command);
  flip_bit(path / "index.h5", 100, 3);
  EXPECT_NE(run(command).status, 0);
}

TEST(ForeignReaderTest, equal_state_gives_equal_shard_files) {
  TempDir const dir;
  auto const engine = test_engine();
  auto const schema = awkward_schema(DType::bf16);
  auto const first = save(dir.path(), schema, 2, 1, *engine);
  auto const second = save(dir.path(), schema, 2, 2, *engine);
  for (char const* file : {"shard-00000-of-00002.h5", "shard-00001-of-00002.h5"})
    expect_success(fmt::format("cmp {}/{} {}/{}", first.string(), file, second.string(), file));
}

}  // namespace spillway::io::test
