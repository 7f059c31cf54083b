#include "lib/core/log.hpp"

#include <gtest/gtest.h>

namespace spillway {
namespace {

/// What the action writes to stderr.
template <class Action>
std::string written(Action action) {
  testing::internal::CaptureStderr();
  action();
  return testing::internal::GetCapturedStderr();
}

TEST(LogTest, the_run_speaks_through_rank_zero_only) {
  EXPECT_EQ(written([] { Log(Rank{0}).root("step {}", 3); }), "spillway: step 3\n");
  EXPECT_EQ(written([] { Log(Rank{1}).root("step {}", 3); }), "");
}

TEST(LogTest, a_rank_speaks_with_its_number) {
  EXPECT_EQ(written([] { Log(Rank{3}).local(Level::warning, "slow disk"); }),
            "spillway: [r3] warning: slow disk\n");
}

TEST(LogTest, what_is_below_the_least_level_is_silent) {
  EXPECT_EQ(written([] { Log(Rank{0}).root(Level::debug, "x"); }), "");
  EXPECT_EQ(written([] { Log(Rank{0}, Level::debug).root(Level::debug, "x"); }),
            "spillway: debug: x\n");
  EXPECT_EQ(written([] { Log(Rank{0}, Level::error).local(Level::warning, "x"); }), "");
  EXPECT_EQ(written([] { Log(Rank{0}, Level::error).root(Level::error, "x"); }),
            "spillway: error: x\n");
}

}  // namespace
}  // namespace spillway
