// The ring of slots that shards stream through: fixed at the start, back-pressure instead of
// allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "io/engine.hpp"

namespace spillway::offload {

/// Index of a slot that its holder may fill; given back with give_back() or drain().
using SlotId = int;

/// Thread-safe. A slot is free, held by one caller, or draining: its contents are being written
/// out.
class SlotPool {
 public:
  SlotPool(std::span<std::byte> memory, int slots);

  /// Takes a free slot, or waits for the one that has drained the longest.
  SlotId take();
  /// Like take(), but -1 where no slot is free or drained now.
  SlotId try_take();
  std::span<std::byte> bytes(SlotId slot) const;
  void give_back(SlotId slot);
  /// The slot becomes free when `tickets` are done. `tile`: whose bytes they carry.
  void drain(SlotId slot, int tile, std::vector<io::Ticket> tickets);
  /// Waits for every write of this tile, so that it may be read or written again.
  void settle(int tile);
  void settle_all();
  int slots() const { return static_cast<int>(entries_.size()); }

 private:
  enum class State : std::uint8_t { free, held, draining };
  struct Entry {
    State state = State::free;
    int tile = -1;
    std::uint64_t order = 0;  // of the drain
    std::vector<io::Ticket> tickets;
  };
  void finish(Entry& entry);  // waits; throws what the write threw, the slot is free in any case
  SlotId find_free();

  std::span<std::byte> memory_;
  std::size_t slot_bytes_;
  std::mutex mutex_;
  std::vector<Entry> entries_;
  std::uint64_t drains_ = 0;
};

}  // namespace spillway::offload
