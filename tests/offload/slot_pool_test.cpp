// The ring gives back-pressure instead of memory.
#include "offload/slot_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

namespace spillway::offload {
namespace {

TEST(SlotPool, gives_each_slot_to_one_holder_and_its_own_bytes) {
  std::vector<std::byte> memory(4 * 64);
  SlotPool pool(memory, 4);
  std::set<std::byte*> starts;
  for (int i = 0; i < 4; ++i) starts.insert(pool.bytes(pool.take()).data());
  EXPECT_EQ(starts.size(), 4u);
  EXPECT_EQ(pool.bytes(0).size(), 64u);
  EXPECT_EQ(pool.try_take(), -1);
}

TEST(SlotPool, a_drained_slot_is_free_again_and_settling_forgets_its_tile) {
  std::vector<std::byte> memory(128);
  SlotPool pool(memory, 2);
  SlotId const first = pool.take();
  SlotId const second = pool.take();
  pool.drain(first, 7, {});
  EXPECT_EQ(pool.try_take(), first);
  pool.drain(second, 8, {});
  pool.settle(8);
  EXPECT_EQ(pool.take(), second);
}

TEST(SlotPool, a_caller_without_slot_waits_until_another_thread_gives_one_back) {
  std::vector<std::byte> memory(64);
  SlotPool pool(memory, 1);
  SlotId const held = pool.take();
  std::atomic<bool> given{false};
  std::thread other([&] {
    given = true;
    pool.give_back(held);
  });
  SlotId const got = pool.take();
  EXPECT_TRUE(given);
  EXPECT_EQ(got, held);
  other.join();
}

}  // namespace
}  // namespace spillway::offload
