// Learning rates and clipping against their formulas, worked out by hand.
#include <gtest/gtest.h>

#include <limits>

#include "lib/optim/schedule.hpp"

namespace spillway::optim {
namespace {

TEST(LearningRate, warm_up_is_linear_and_reaches_the_peak_at_its_last_step) {
  ScheduleOptions const o{.lr = 4e-3, .min_lr = 1e-4, .steps = 100, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(learning_rate(o, 1), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(o, 3), 3e-3);
  EXPECT_DOUBLE_EQ(learning_rate(o, 4), 4e-3);
}

TEST(LearningRate, cosine_is_half_way_in_the_middle_and_ends_at_the_minimum) {
  ScheduleOptions const o{.lr = 1e-3, .min_lr = 2e-4, .steps = 110, .warmup_steps = 10};
  EXPECT_NEAR(learning_rate(o, 60), 6e-4, 1e-18);
  EXPECT_NEAR(learning_rate(o, 35), 2e-4 + 4e-4 * (1 + 0.70710678118654752), 1e-15);
  EXPECT_NEAR(learning_rate(o, 110), 2e-4, 1e-18);
}

TEST(LearningRate, constant_stays_and_wsd_falls_in_a_straight_line_at_the_end) {
  EXPECT_DOUBLE_EQ(learning_rate({.kind = ScheduleKind::constant, .lr = 1e-3, .steps = 10}, 10),
                   1e-3);
  ScheduleOptions const o{
      .kind = ScheduleKind::wsd, .lr = 1e-3, .min_lr = 0, .steps = 100, .decay_steps = 10};
  EXPECT_DOUBLE_EQ(learning_rate(o, 90), 1e-3);
  EXPECT_NEAR(learning_rate(o, 95), 5e-4, 1e-18);
  EXPECT_NEAR(learning_rate(o, 100), 0, 1e-18);
}

TEST(ClipFactor, is_pytorchs_and_off_at_zero) {
  EXPECT_DOUBLE_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_factor(4.0, 1.0), 1.0 / 4.000001);
  EXPECT_DOUBLE_EQ(clip_factor(1e9, 0.0), 1.0);
}

}  // namespace
}  // namespace spillway::optim
