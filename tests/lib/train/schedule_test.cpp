// The order of a step and the places of its units in the window.
#include "lib/train/schedule.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace spillway::train {
namespace {

ScheduleShape shape_of(int blocks, bool tied, int waves) {
  ScheduleShape shape{.blocks = blocks, .tied_head = tied, .waves = waves};
  for (int unit = 0; unit < shape.units(); ++unit)
    shape.gathered_bytes.push_back(4096u * static_cast<std::size_t>(1 + unit % 3));
  return shape;
}

TEST(Schedule, each_block_is_fetched_twice_a_step_and_updated_once) {
  Schedule const schedule = train_schedule(shape_of(5, true, 1), true);
  std::map<int, int> weights, updates;
  for (Fetch const& fetch : schedule.fetches)
    (fetch.use == Use::update ? updates : weights)[fetch.unit.get()] += 1;
  for (int unit = 0; unit < 7; ++unit) EXPECT_EQ(updates[unit], 1) << unit;
  for (int block = 1; block <= 5; ++block) EXPECT_EQ(weights[block], 1) << block;
  EXPECT_EQ(weights[0], 1);  // the tied head's weight
  EXPECT_EQ(weights[6], 0);  // head: forward and backward in one visit
}

TEST(Schedule, backward_goes_through_the_blocks_in_reverse_and_ends_at_the_embedding) {
  Schedule const schedule = train_schedule(shape_of(3, false, 1), false);
  std::vector<std::pair<OpKind, int>> order;
  for (Op const& op : schedule.ops) order.emplace_back(op.kind, op.unit.get());
  EXPECT_EQ(order, (std::vector<std::pair<OpKind, int>>{{OpKind::embed, 0},
                                                        {OpKind::block, 1},
                                                        {OpKind::block, 2},
                                                        {OpKind::block, 3},
                                                        {OpKind::head, 4},
                                                        {OpKind::block_backward, 3},
                                                        {OpKind::block_backward, 2},
                                                        {OpKind::block_backward, 1},
                                                        {OpKind::embed_backward, 0}}));
}

TEST(Schedule, a_second_wave_updates_nothing_again) {
  Schedule const schedule = train_schedule(shape_of(2, true, 3), true);
  int updates = 0;
  for (Fetch const& fetch : schedule.fetches) updates += fetch.use == Use::update ? 1 : 0;
  EXPECT_EQ(updates, 4);
  EXPECT_EQ(schedule.ops.back().wave, 2);
}

TEST(Schedule, units_that_are_alive_together_never_share_window_bytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    ScheduleShape shape = shape_of(static_cast<int>(random() % 6), random() % 2 == 0,
                                   1 + static_cast<int>(random() % 3));
    for (auto& bytes : shape.gathered_bytes) bytes = random() % 5 == 0 ? 0 : random() % 50000;
    Schedule const schedule = train_schedule(shape, random() % 2 == 0);
    std::map<int, int> op_of;  // a fetch is alive in its operation and the one before
    for (int at = 0; at < static_cast<int>(schedule.ops.size()); ++at)
      for (int fetch : {schedule.ops[static_cast<std::size_t>(at)].fetch,
                        schedule.ops[static_cast<std::size_t>(at)].fetch_embedding})
        if (fetch >= 0) op_of[fetch] = at;
    for (auto const& [a, op_a] : op_of)
      for (auto const& [b, op_b] : op_of) {
        if (a >= b || op_b - op_a > 1) continue;
        auto const& first = schedule.fetches[static_cast<std::size_t>(a)].window;
        auto const& second = schedule.fetches[static_cast<std::size_t>(b)].window;
        if (first.bytes == 0 || second.bytes == 0) continue;
        EXPECT_TRUE(first.offset + first.bytes <= second.offset ||
                    second.offset + second.bytes <= first.offset);
        EXPECT_LE(second.offset + second.bytes, schedule.window_bytes);
        EXPECT_EQ(second.offset % 4096, 0u);
      }
  }
}

TEST(Schedule, a_flush_visits_every_unit_once_without_window) {
  Schedule const schedule = flush_schedule(shape_of(4, true, 1), Use::update);
  EXPECT_EQ(schedule.fetches.size(), 6u);
  EXPECT_EQ(schedule.window_bytes, 0u);
  for (Fetch const& fetch : schedule.fetches) EXPECT_EQ(fetch.use, Use::update);
}

}  // namespace
}  // namespace spillway::train
