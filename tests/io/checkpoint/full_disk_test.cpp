// A disk, quota or file size limit that ends a save harms nothing that is there.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

#include "lib/core/error.hpp"
#include "tests/io/checkpoint/support.hpp"

namespace spillway::io::test {

namespace fs = std::filesystem;

namespace {

constexpr int kRefused = 40;  // exit code of a child whose save was refused for want of room

/// A save in a process that may not write files beyond `limit` bytes; trying to would end it by
/// signal.
int save_with_file_limit(fs::path const& checkpoints, rlim_t limit) {
  return status_of_child([&] {
    auto const engine = test_engine();
    rlimit const limits{limit, limit};
    ::setrlimit(RLIMIT_FSIZE, &limits);
    try {
      save(checkpoints, awkward_schema(DType::f32), 2, 2, *engine);
    } catch (Error const& error) {
      if (error.fault() != Fault::no_room) throw;
      ::exit(kRefused);  // with HDF5's own clean-up at exit
    }
    ::exit(0);
  });
}

}  // namespace

TEST(FullDiskTest, a_file_size_limit_in_any_write_is_no_room_and_harms_nothing) {
  TempDir const dir(Place::memory);
  auto const engine = test_engine();
  auto const path = save(dir.path(), awkward_schema(DType::f32), 2, 1, *engine);
  auto const largest = fs::file_size(path / "shard-00000-of-00002.h5");
  auto const index = fs::file_size(path / "index.h5");
  ASSERT_LT(index, largest);
  std::vector<rlim_t> limits{largest - 1, largest - 4096, largest / 2, index - 1};
  for (rlim_t limit = 0; limit < 16'384; limit += 512) limits.push_back(limit);
  for (rlim_t limit : limits) {
    SCOPED_TRACE(limit);
    EXPECT_EQ(save_with_file_limit(dir.path(), limit), kRefused);
    EXPECT_EQ(list_checkpoints(dir.path()), std::vector<fs::path>{path});
    EXPECT_EQ(error_of([&] { CheckpointReader(dir.path() / "latest").verify(*engine); }), "");
    discard_checkpoint(dir.path(), 2);
  }
  EXPECT_EQ(save_with_file_limit(dir.path(), shard_file_bytes(awkward_schema(DType::f32), 2)), 0);
  EXPECT_EQ(CheckpointReader(dir.path() / "latest").state().step, 2);
}

TEST(FullDiskTest, an_index_that_does_not_fit_is_no_room) {
  TempDir const dir(Place::memory);
  auto const engine = test_engine();
  auto const schema = awkward_schema(DType::f32);
  auto const parts = write_shards(prepare_checkpoint(dir.path(), 2), schema, 2, *engine);
  for (rlim_t limit : {0, 4096, 20'000}) {
    int const status = status_of_child([&] {
      rlimit const limits{limit, limit};
      ::setrlimit(RLIMIT_FSIZE, &limits);
      try {
        commit_checkpoint(dir.path(), schema, state_at(2), parts);
      } catch (Error const& error) {
        if (error.fault() != Fault::no_room) throw;
        ::exit(kRefused);
      }
    });
    EXPECT_EQ(status, kRefused);
    EXPECT_TRUE(list_checkpoints(dir.path()).empty());
  }
  commit_checkpoint(dir.path(), schema, state_at(2), parts);
  CheckpointReader(dir.path() / "latest").verify(*engine);
}

// A small tmpfs in a mount namespace of the child's own; where even that is forbidden, a file size
// limit stands in.
TEST(FullDiskTest, a_full_file_system_refuses_the_save_and_takes_the_next_once_there_is_room) {
  TempDir const dir(Place::memory);
  int const status = status_of_child([&] {
    bool const mounted = ::unshare(CLONE_NEWNS) == 0 &&
                         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         ::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=12m") == 0;
    if (!mounted) {
      rlimit const limits{1 << 20, RLIM_INFINITY};
      ::setrlimit(RLIMIT_FSIZE, &limits);
      ::signal(SIGXFSZ, SIG_IGN);
    }
    auto const engine = test_engine();
    auto const schema = awkward_schema(DType::f32);
    if (mounted) save(dir.path(), schema, 2, 1, *engine);
    std::string const ballast = (dir.path() / "ballast").string();
    // With every amount of free space that ends somewhere else: in HDF5's writes, in the
    // reservation, in the index.
    for (int kib : {0, 1, 4, 8, 16, 1000, 2000, 3000}) {
      if (mounted) {
        run(fmt::format("dd if=/dev/zero of={0} bs=1K; truncate -s -{1}K {0}", ballast, kib));
      }
      bool refused = false;
      try {
        save(dir.path(), schema, 2, 2, *engine);
      } catch (Error const& error) {
        refused = error.fault() == Fault::no_room;
        if (!refused) throw;
      }
      if (!refused) throw std::runtime_error(fmt::format("a save fitted in {} KiB", kib));
      discard_checkpoint(dir.path(), 2);
      if (mounted) CheckpointReader(dir.path() / "latest").verify(*engine);
    }
    if (!mounted) {
      rlimit const limits{RLIM_INFINITY, RLIM_INFINITY};
      ::setrlimit(RLIMIT_FSIZE, &limits);
    }
    fs::remove(ballast);
    CheckpointReader(save(dir.path(), schema, 2, 2, *engine)).verify(*engine);
    if (mounted && list_checkpoints(dir.path()).size() != 2)
      throw std::runtime_error("the older one is gone");
  });
  EXPECT_EQ(status, 0);
}

TEST(FullDiskTest, the_refusal_says_how_much_is_needed) {
  TempDir const dir(Place::memory);
  auto const engine = test_engine();
  auto schema = awkward_schema(DType::f32);
  // 4 PB: more than any file system has. HDF5 only lays the file out, so that this costs nothing.
  schema.units[0].layout = shard::FlatLayout(std::vector<shard::FlatLayout::Tensor>{
      {"model.embed_tokens.weight", {1 << 20, 1 << 20, 300}}});
  auto const directory = prepare_checkpoint(dir.path(), 1);
  auto const error = error_of([&] { ShardWriter(directory, schema, Rank{0}, 1, *engine); });
  EXPECT_NE(error.find("no room for '"), std::string::npos) << error;
  EXPECT_NE(error.find("shard-00000-of-00001.h5"), std::string::npos) << error;
  EXPECT_NE(error.find("3600 TiB needed"), std::string::npos)
      << error;  // 3 kinds of 300 * 2^40 elements of 4 bytes: 3600 TiB
  EXPECT_TRUE(fs::is_empty(directory));
}

}  // namespace spillway::io::test
