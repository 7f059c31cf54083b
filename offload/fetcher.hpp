// The thread that reads ahead, updates and writes back: read(k+1) | AdamW(k) | write(k-1) over the
// tiles of a pass.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "lib/train/state_store.hpp"

namespace spillway::offload {

/// One tile of one fetch, in the order of the pass.
struct WorkItem {
  int fetch = 0;
  std::size_t tile = 0;  // of the fetch's unit
};

/// What a tile's life consists of; the store implements it. All are called on the fetcher's thread.
class TileWork {
 public:
  virtual ~TileWork() = default;
  /// Starts the reads of an item. False: no slot is free now, try later (never when `must`).
  virtual bool issue(WorkItem const& item, bool must) = 0;
  /// Waits for the reads, computes, starts the writes.
  virtual void complete(WorkItem const& item) = 0;
};

/// Runs the items of one pass after another. Windows give the order: a fetch starts when the
/// earlier ones that overlap it are released.
class Fetcher {
 public:
  explicit Fetcher(TileWork& work);
  ~Fetcher();
  Fetcher(Fetcher const&) = delete;
  Fetcher& operator=(Fetcher const&) = delete;

  void begin(std::span<train::Fetch const> fetches, std::vector<WorkItem> items);
  /// Blocks until all items of the fetch are complete; rethrows what went wrong on the thread.
  void wait(int fetch);
  void release(int fetch);
  /// Blocks until the pass is over.
  void end();

 private:
  void run(std::stop_token stop);
  void run_pass(std::stop_token stop);
  bool startable(int fetch);             // all earlier overlapping fetches are released
  bool update_pending(int fetch) const;  // of the same unit, by an earlier fetch
  void wait_startable(int fetch, std::stop_token stop);
  bool needs_window(WorkItem const& item) const;
  void finish_item(int fetch);

  TileWork& work_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<train::Fetch> fetches_;
  std::vector<WorkItem> items_;
  std::vector<int> remaining_;  // items of each fetch that are not complete
  std::vector<bool> released_;
  std::exception_ptr failure_;
  bool active_ = false;
  std::jthread thread_;  // last: stops before the rest is destroyed
};

}  // namespace spillway::offload
