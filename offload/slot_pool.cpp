#include "offload/slot_pool.hpp"

#include <algorithm>
#include <thread>

#include "lib/core/error.hpp"

namespace spillway::offload {

SlotPool::SlotPool(std::span<std::byte> memory, int slots)
    : memory_(memory),
      slot_bytes_(memory.size() / static_cast<std::size_t>(slots)),
      entries_(static_cast<std::size_t>(slots)) {}

std::span<std::byte> SlotPool::bytes(SlotId slot) const {
  return memory_.subspan(static_cast<std::size_t>(slot) * slot_bytes_, slot_bytes_);
}

void SlotPool::finish(Entry& entry) {
  auto tickets = std::move(entry.tickets);
  entry = {};
  for (auto& ticket : tickets) ticket.wait();
}

SlotId SlotPool::find_free() {
  for (auto& entry : entries_) {
    bool const drained = entry.state == State::draining &&
                         std::all_of(entry.tickets.begin(), entry.tickets.end(),
                                     [](io::Ticket const& ticket) { return ticket.ready(); });
    if (drained) finish(entry);
    if (entry.state == State::free) {
      entry.state = State::held;
      return static_cast<SlotId>(&entry - entries_.data());
    }
  }
  return -1;
}

SlotId SlotPool::try_take() {
  std::lock_guard const lock(mutex_);
  return find_free();
}

SlotId SlotPool::take() {
  for (;;) {
    {
      std::lock_guard const lock(mutex_);
      if (SlotId const slot = find_free(); slot >= 0) return slot;
      // Waiting with the lock held is safe: completions come from the I/O engine, which never takes
      // it.
      Entry* oldest = nullptr;
      for (auto& entry : entries_)
        if (entry.state == State::draining && (!oldest || entry.order < oldest->order))
          oldest = &entry;
      if (oldest) {
        finish(*oldest);
        continue;
      }
    }
    // All slots are held by the other thread, which gives one back as soon as its transfer is done.
    std::this_thread::yield();
  }
}

void SlotPool::give_back(SlotId slot) {
  std::lock_guard const lock(mutex_);
  entries_[static_cast<std::size_t>(slot)] = {};
}

void SlotPool::drain(SlotId slot, int tile, std::vector<io::Ticket> tickets) {
  std::lock_guard const lock(mutex_);
  Entry& entry = entries_[static_cast<std::size_t>(slot)];
  entry.state = State::draining;
  entry.tile = tile;
  entry.order = ++drains_;
  entry.tickets = std::move(tickets);
}

void SlotPool::settle(int tile) {
  std::lock_guard const lock(mutex_);
  for (auto& entry : entries_)
    if (entry.state == State::draining && entry.tile == tile) finish(entry);
}

void SlotPool::settle_all() {
  std::lock_guard const lock(mutex_);
  for (auto& entry : entries_)
    if (entry.state == State::draining) finish(entry);
}

}  // namespace spillway::offload
