// A checkpoint exists whole or not at all, wherever the process ends.
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "lib/core/error.hpp"
#include "tests/io/checkpoint/support.hpp"

namespace spillway::io::test {

namespace fs = std::filesystem;

namespace {

/// Passes on to a real engine and ends the process in the n-th write.
class KillingEngine : public Engine {
 public:
  KillingEngine(Engine& engine, int writes) : engine_(engine), writes_(writes) {}
  Ticket read(File const& file, FileOffset offset, std::span<std::byte> into) override {
    return engine_.read(file, offset, into);
  }
  Ticket write(File const& file, FileOffset offset, std::span<std::byte const> from) override {
    if (writes_-- == 0) ::raise(SIGKILL);
    return engine_.write(file, offset, from);
  }
  EngineStats stats() const override { return engine_.stats(); }
  std::string description() const override { return "kills its process"; }

 private:
  Engine& engine_;
  int writes_;
};

/// Two units suffice here; saving is what takes the time.
CheckpointSchema small_schema() {
  auto schema = awkward_schema(DType::f32);
  schema.units.erase(schema.units.begin() + 1);
  return schema;
}

/// Names of the points of a commit, in order.
std::vector<std::string> points_of_a_commit(fs::path const& checkpoints, std::int64_t step) {
  std::vector<std::string> points;
  auto const engine = test_engine();
  save(checkpoints, small_schema(), 2, step, *engine,
       [&](std::string_view point) { points.emplace_back(point); });
  return points;
}

/// What must hold whenever and wherever a save of a later step was ended.
void expect_sound(fs::path const& checkpoints, Engine& engine) {
  auto const found = list_checkpoints(checkpoints);
  ASSERT_FALSE(found.empty());
  for (auto const& path : found) {
    EXPECT_EQ(error_of([&] { CheckpointReader(path).verify(engine); }), "");
    for (auto const& file : fs::directory_iterator(path)) {
      if (file.path().extension() != ".h5") continue;
      EXPECT_EQ(run(fmt::format("h5dump -H {}", file.path().string())).status, 0) << file.path();
    }
  }
  CheckpointReader const latest(checkpoints / "latest");
  EXPECT_EQ(error_of([&] { latest.verify(engine); }), "");
  EXPECT_TRUE(fs::is_symlink(checkpoints / "latest"));
  EXPECT_TRUE(fs::read_symlink(checkpoints / "latest").is_relative());
}

}  // namespace

TEST(CommitTest, a_save_leaves_the_checkpoint_and_latest_and_nothing_else) {
  TempDir const dir(Place::memory);
  auto const engine = test_engine();
  auto const path =
      save(dir.path() / "run" / "checkpoints", awkward_schema(DType::bf16), 3, 12, *engine);
  std::vector<std::string> names;
  for (auto const& entry : fs::recursive_directory_iterator(dir.path() / "run"))
    names.push_back(entry.path().lexically_relative(dir.path()).string());
  std::sort(names.begin(), names.end());
  std::string const at = "run/checkpoints/step-000000012";
  EXPECT_EQ(names, (std::vector<std::string>{
                       "run/checkpoints", "run/checkpoints/latest", at, at + "/CHECKSUMS",
                       at + "/index.h5", at + "/shard-00000-of-00003.h5",
                       at + "/shard-00001-of-00003.h5", at + "/shard-00002-of-00003.h5"}));
  EXPECT_EQ(path.filename(), "step-000000012");
  EXPECT_EQ(fs::read_symlink(path.parent_path() / "latest"), "step-000000012");
}

TEST(CommitTest, the_points_come_in_the_order_that_keeps_names_behind_bytes) {
  TempDir const dir(Place::memory);
  std::vector<std::string> points{
      "index written", "index synced",  "checksums written", "checksums synced", "directory synced",
      "renamed",       "parent synced", "latest written",    "latest renamed",   "latest synced"};
  EXPECT_EQ(points_of_a_commit(dir.path(), 1), points);
  points[5] = "exchanged";
  EXPECT_EQ(points_of_a_commit(dir.path(), 1), points);
}

TEST(CommitTest, killed_at_any_point_of_the_commit_older_checkpoints_and_latest_are_valid) {
  TempDir const scratch(Place::memory);
  auto const engine = test_engine();
  auto const schema = small_schema();
  points_of_a_commit(scratch.path(), 1);
  for (std::int64_t step : {2, 1}) {  // a new step, and step 1 once more after a rollback
    for (auto const& point : points_of_a_commit(scratch.path(), step)) {
      SCOPED_TRACE(fmt::format("step {}, killed after '{}'", step, point));
      TempDir const dir(Place::memory);
      save(dir.path(), schema, 2, 1, *engine);
      int const status = status_of_child([&] {
        auto const own = test_engine();
        save(dir.path(), schema, 3, step, *own, [&](std::string_view passed) {
          if (passed == point) ::raise(SIGKILL);
        });
      });
      EXPECT_EQ(status, 128 + SIGKILL);
      expect_sound(dir.path(), *engine);
      bool const named = point == "renamed" || point == "exchanged" || point == "parent synced" ||
                         point.starts_with("latest");
      CheckpointReader const newest(list_checkpoints(dir.path()).back());
      EXPECT_EQ(newest.state().step, named ? step : 1);
      EXPECT_EQ(newest.ranks(), named ? 3 : 2);

      // The next start cleans up, and the save that was lost succeeds.
      clean_leftovers(dir.path());
      for (auto const& entry : fs::directory_iterator(dir.path()))
        EXPECT_EQ(entry.path().string().find(".tmp"), std::string::npos) << entry.path();
      expect_sound(dir.path(), *engine);
      save(dir.path(), schema, 3, step, *engine);
      expect_sound(dir.path(), *engine);
      EXPECT_EQ(CheckpointReader(dir.path() / "latest").state().step, step);
    }
  }
}

TEST(CommitTest, killed_in_any_write_of_a_shard_the_older_checkpoint_is_valid) {
  auto const engine = test_engine();
  auto const schema = small_schema();
  TempDir const dir(Place::memory);
  save(dir.path(), schema, 2, 1, *engine);
  for (int writes = 0; writes < 12; ++writes) {
    int const status = status_of_child([&] {
      auto const own = test_engine();
      KillingEngine killing(*own, writes);
      save(dir.path(), schema, 2, 2, killing);
    });
    EXPECT_EQ(status, 128 + SIGKILL);
    expect_sound(dir.path(), *engine);
    EXPECT_EQ(list_checkpoints(dir.path()).size(), 1u);
  }
  EXPECT_EQ(clean_leftovers(dir.path()), std::vector<std::string>{"step-000000002.tmp"});
}

TEST(CommitTest, leftovers_of_another_number_of_ranks_do_not_get_into_a_checkpoint) {
  TempDir const dir(Place::memory);
  auto const engine = test_engine();
  auto const schema = small_schema();
  write_shards(prepare_checkpoint(dir.path(), 3), schema, 4, *engine);
  auto const path = save(dir.path(), schema, 2, 3, *engine);
  int files = 0;
  for (auto const& entry : fs::directory_iterator(path)) files += entry.is_regular_file();
  EXPECT_EQ(files, 4);
  CheckpointReader(path).verify(*engine);
}

TEST(CommitTest, leftovers_are_named_and_removed_and_nothing_else_is) {
  TempDir const dir(Place::memory);
  auto const engine = test_engine();
  auto const schema = small_schema();
  save(dir.path(), schema, 1, 8, *engine);
  write_shards(prepare_checkpoint(dir.path(), 9), schema, 1, *engine);
  fs::create_symlink("step-000000009", dir.path() / "latest.tmp");
  fs::create_directory(dir.path() / "step-000000008.tmp-old");
  for (char const* name : {"notes.tmp", "step-9.tmp", "step-000000007.tmpx", "step-000000007.bak"})
    std::ofstream(dir.path() / name) << "mine";
  EXPECT_EQ(
      clean_leftovers(dir.path()),
      (std::vector<std::string>{"latest.tmp", "step-000000008.tmp-old", "step-000000009.tmp"}));
  for (char const* name :
       {"notes.tmp", "step-9.tmp", "step-000000007.tmpx", "step-000000007.bak", "step-000000008"})
    EXPECT_TRUE(fs::exists(dir.path() / name)) << name;
  EXPECT_EQ(clean_leftovers(dir.path()), std::vector<std::string>{});
  EXPECT_EQ(clean_leftovers(dir.path() / "not there"), std::vector<std::string>{});
}

TEST(CommitTest, a_checkpoint_set_aside_for_a_successor_that_never_came_gets_its_name_back) {
  TempDir const dir(Place::memory);
  auto const engine = test_engine();
  auto const path = save(dir.path(), small_schema(), 1, 8, *engine);
  fs::rename(path, path.string() + ".tmp-old");
  EXPECT_EQ(clean_leftovers(dir.path()), std::vector<std::string>{});
  CheckpointReader(path).verify(*engine);
}

TEST(CommitTest, file_systems_without_locks_reservation_and_exchange_do_as_well) {
  auto const outcome = run("LD_PRELOAD=" HUMBLE_LIBRARY " " HUMBLE_PROGRAM);
  EXPECT_EQ(outcome.status, 0) << outcome.output;
}

TEST(CommitTest, a_discarded_save_gives_its_space_back) {
  TempDir const dir(Place::memory);
  auto const engine = test_engine();
  write_shards(prepare_checkpoint(dir.path(), 9), small_schema(), 1, *engine);
  discard_checkpoint(dir.path(), 9);
  EXPECT_TRUE(fs::is_empty(dir.path()));
  discard_checkpoint(dir.path(), 9);
}

TEST(CommitTest, a_shard_that_changed_after_its_rank_finished_is_not_committed) {
  TempDir const dir(Place::memory);
  auto const engine = test_engine();
  auto const schema = small_schema();
  auto const directory = prepare_checkpoint(dir.path(), 9);
  auto const parts = write_shards(directory, schema, 2, *engine);
  fs::resize_file(directory / "shard-00001-of-00002.h5", 4096);
  auto const error = error_of([&] { commit_checkpoint(dir.path(), schema, state_at(9), parts); });
  EXPECT_NE(error.find("shard-00001-of-00002.h5"), std::string::npos) << error;
  EXPECT_TRUE(list_checkpoints(dir.path()).empty());
}

}  // namespace spillway::io::test
