// Which checkpoints are found, resumed from and removed.
#include <gtest/gtest.h>

#include <fstream>

#include "lib/core/error.hpp"
#include "tests/io/checkpoint/support.hpp"

namespace spillway::io::test {

namespace fs = std::filesystem;
using Paths = std::vector<fs::path>;

TEST(RetentionTest, names_and_steps_correspond) {
  EXPECT_EQ(checkpoint_name(123), "step-000000123");
  EXPECT_EQ(checkpoint_name(12'345'678'901), "step-12345678901");
  for (std::int64_t step : {std::int64_t{0}, std::int64_t{123}, std::int64_t{999'999'999},
                            std::int64_t{12'345'678'901}})
    EXPECT_EQ(checkpoint_step(checkpoint_name(step)), step);
  for (char const* name :
       {"", "step-", "step-123", "step-000000123.tmp", "step-00000012x", "step--00000012",
        "step-0000000123", "123", "latest", "xstep-000000123", "step-99999999999999999999"})
    EXPECT_EQ(checkpoint_step(name), -1) << name;
}

TEST(RetentionTest, an_empty_directory_of_a_final_name_is_passed_over_with_its_reason) {
  TempDir const dir(Place::memory);
  auto const engine = test_engine();
  auto const schema = awkward_schema(DType::f32);
  save(dir.path(), schema, 1, 5, *engine);
  save(dir.path(), schema, 2, 7, *engine);
  fs::create_directory(dir.path() / "step-000000999");
  fs::create_directory(dir.path() / "step-000000998.tmp");
  std::ofstream(dir.path() / "step-000001000") << "a file";
  auto const cut = dir.path() / "step-000000007" / "shard-00001-of-00002.h5";
  fs::resize_file(cut, fs::file_size(cut) - 1);
  EXPECT_EQ(list_checkpoints(dir.path()),
            (Paths{dir.path() / "step-000000005", dir.path() / "step-000000007",
                   dir.path() / "step-000000999"}));
  std::vector<std::string> skipped;
  auto const reader = open_newest(dir.path(), skipped);
  ASSERT_NE(reader, nullptr);
  EXPECT_EQ(reader->state().step, 5);
  ASSERT_EQ(skipped.size(), 2u);
  EXPECT_NE(skipped[0].find("step-000000999' has no index.h5"), std::string::npos) << skipped[0];
  EXPECT_NE(skipped[1].find("shard-00001-of-00002.h5"), std::string::npos) << skipped[1];
}

TEST(RetentionTest, nothing_to_resume_from_is_no_error) {
  TempDir const dir(Place::memory);
  std::vector<std::string> skipped;
  EXPECT_EQ(open_newest(dir.path(), skipped), nullptr);
  EXPECT_EQ(open_newest(dir.path() / "not there", skipped), nullptr);
  EXPECT_TRUE(skipped.empty());
}

TEST(RetentionTest, the_newest_stay_and_the_one_resumed_from_always) {
  Paths const own{"c/step-000000030", "c/step-000000010", "c/step-000000040", "c/step-000000020"};
  EXPECT_EQ(superseded(own, 2, {}), (Paths{"c/step-000000010", "c/step-000000020"}));
  EXPECT_EQ(superseded(own, 2, Paths{"c/step-000000010/"}), (Paths{"c/step-000000020"}));
  EXPECT_EQ(superseded(own, 4, {}), Paths{});
  EXPECT_EQ(superseded(own, 9, {}), Paths{});
  EXPECT_EQ(superseded({}, 1, {}), Paths{});
}

TEST(RetentionTest, keeping_none_keeps_all) {
  EXPECT_EQ(superseded(Paths{"c/step-000000030", "c/step-000000010"}, 0, {}), Paths{});
}

TEST(RetentionTest, by_number_and_not_by_spelling) {
  // as text, step-1000000000 comes before step-999999999
  EXPECT_EQ(superseded(Paths{"c/step-1000000000", "c/step-999999999"}, 1, {}),
            (Paths{"c/step-999999999"}));
}

TEST(RetentionTest, a_protected_checkpoint_is_known_through_a_link) {
  TempDir const dir(Place::memory);
  fs::create_directory(dir.path() / "step-000000001");
  fs::create_directory(dir.path() / "step-000000002");
  fs::create_symlink("step-000000001", dir.path() / "latest");
  Paths const own{dir.path() / "step-000000001", dir.path() / "step-000000002"};
  EXPECT_EQ(superseded(own, 1, Paths{dir.path() / "latest"}), Paths{});
}

TEST(RetentionTest, a_removed_checkpoint_is_gone_and_others_are_not) {
  TempDir const dir(Place::memory);
  auto const engine = test_engine();
  auto const schema = awkward_schema(DType::f32);
  auto const first = save(dir.path(), schema, 1, 1, *engine);
  auto const second = save(dir.path(), schema, 1, 2, *engine);
  fs::create_directory(dir.path() / "step-000000001.tmp");  // a removal that was cut short
  remove_checkpoint(first);
  EXPECT_EQ(list_checkpoints(dir.path()), Paths{second});
  EXPECT_FALSE(fs::exists(dir.path() / "step-000000001.tmp"));
  CheckpointReader(second).verify(*engine);
  EXPECT_NE(error_of([&] { remove_checkpoint(dir.path()); }), "");
  EXPECT_TRUE(fs::exists(second));
}

}  // namespace spillway::io::test
