// Cuts transfers into requests, chooses whose turn it is and accounts for results; engines only
// carry them out.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "io/engine.hpp"
#include "io/uring/transfer.hpp"

namespace spillway::io::detail {

/// A block of a transfer in flight; what remains of it after a short transfer.
struct Request {
  std::shared_ptr<Transfer> transfer;  // null: a free slot
  std::byte* data = nullptr;
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  std::uint32_t fruitless = 0;  // attempts in a row that moved nothing
  std::chrono::steady_clock::time_point started;
  std::uint32_t slot = 0;
};

/// Sees each result before it is judged and may change it: where tests put faults and delays.
/// Called without locks, from any thread of the engine.
using ResultHook = std::function<std::int64_t(Request const&, std::int64_t result)>;

/// Not thread-safe: the engine's lock guards it. Order: first in, first out within reads and within
/// writes, as callers queue in the order of need; reads and writes take turns, so that the read the
/// next layer waits for is never behind gigabytes of write-back, and the write-back that frees its
/// memory never starves.
class Dispatcher {
 public:
  Dispatcher(std::uint32_t depth, std::uint64_t block_bytes);

  void push(std::shared_ptr<Transfer> transfer);
  /// The next request, taking one of `depth` slots; null when nothing waits or no slot is free. It
  /// stays valid and untouched until complete().
  Request* next();
  /// True: carry out what now remains of it. False: its slot is free.
  bool complete(Request& request, std::int64_t result);
  /// Ends all that waits or is in flight with this errno.
  void fail_all(int error);

  bool waiting() const { return !waiting_[0].empty() || !waiting_[1].empty(); }
  bool idle() const { return !waiting() && free_.size() == slots_.size(); }
  bool has_room() const { return !free_.empty(); }
  Request& at(std::uint64_t slot) { return slots_.at(slot); }
  EngineStats stats() const;

 private:
  using Line = std::deque<std::shared_ptr<Transfer>>;
  Line& line(Direction direction) { return waiting_[direction == Direction::read ? 0 : 1]; }
  void release(Request& request);
  void give_up(Transfer& transfer, Error error);

  std::uint64_t block_bytes_;
  std::array<Line, 2> waiting_;
  Direction turn_ = Direction::read;
  std::vector<Request> slots_;
  std::vector<std::uint32_t> free_;
  EngineStats stats_;
};

}  // namespace spillway::io::detail
