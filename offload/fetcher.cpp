#include "offload/fetcher.hpp"

#include <algorithm>

namespace spillway::offload {
namespace {

bool overlap(train::WindowRange a, train::WindowRange b) {
  return a.bytes > 0 && b.bytes > 0 && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}

/// Ends a pass early when the program does.
struct Stopped {};

}  // namespace

Fetcher::Fetcher(TileWork& work)
    : work_(work), thread_([this](std::stop_token stop) { run(stop); }) {}

Fetcher::~Fetcher() {
  thread_.request_stop();
  changed_.notify_all();
}

void Fetcher::begin(std::span<train::Fetch const> fetches, std::vector<WorkItem> items) {
  std::lock_guard const lock(mutex_);
  fetches_.assign(fetches.begin(), fetches.end());
  items_ = std::move(items);
  remaining_.assign(fetches.size(), 0);
  released_.assign(fetches.size(), false);
  for (auto const& item : items_) remaining_[static_cast<std::size_t>(item.fetch)] += 1;
  active_ = !items_.empty();
  changed_.notify_all();
}

void Fetcher::wait(int fetch) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || remaining_[static_cast<std::size_t>(fetch)] == 0; });
  if (failure_) std::rethrow_exception(failure_);
}

void Fetcher::release(int fetch) {
  std::lock_guard const lock(mutex_);
  released_[static_cast<std::size_t>(fetch)] = true;
  changed_.notify_all();
}

void Fetcher::end() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return failure_ || !active_; });
  if (failure_) std::rethrow_exception(failure_);
}

void Fetcher::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [&] { return active_ && !failure_; })) return;
    }
    try {
      run_pass(stop);
    } catch (Stopped const&) {
      return;
    } catch (...) {
      std::lock_guard const lock(mutex_);
      failure_ = std::current_exception();
    }
    std::lock_guard const lock(mutex_);
    active_ = false;
    changed_.notify_all();
  }
}

bool Fetcher::startable(int fetch) {
  for (int earlier = 0; earlier < fetch; ++earlier)
    if (!released_[static_cast<std::size_t>(earlier)] &&
        overlap(fetches_[static_cast<std::size_t>(earlier)].window,
                fetches_[static_cast<std::size_t>(fetch)].window))
      return false;
  return true;
}

void Fetcher::wait_startable(int fetch, std::stop_token stop) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait(lock, stop, [&] { return startable(fetch); })) throw Stopped{};
}

// Weights that an earlier fetch of the pass still has to update must not be read yet: the disk has
// the old ones.
bool Fetcher::update_pending(int fetch) const {
  UnitId const unit = fetches_[static_cast<std::size_t>(fetch)].unit;
  for (std::size_t earlier = 0; earlier < static_cast<std::size_t>(fetch); ++earlier)
    if (fetches_[earlier].unit == unit && fetches_[earlier].use == train::Use::update &&
        remaining_[earlier] > 0)
      return true;
  return false;
}

// Weights are read straight into the window; an update needs it only when it completes.
bool Fetcher::needs_window(WorkItem const& item) const {
  return fetches_[static_cast<std::size_t>(item.fetch)].use == train::Use::weights;
}

void Fetcher::finish_item(int fetch) {
  std::lock_guard const lock(mutex_);
  if (--remaining_[static_cast<std::size_t>(fetch)] == 0) changed_.notify_all();
}

void Fetcher::run_pass(std::stop_token stop) {
  std::size_t issued = 0;
  for (std::size_t done = 0; done < items_.size(); ++done) {
    while (issued < items_.size()) {
      WorkItem const& next = items_[issued];
      bool const must = issued == done;
      if (must) {
        wait_startable(next.fetch, stop);
      } else if (needs_window(next)) {
        std::lock_guard const lock(mutex_);
        if (!startable(next.fetch) || update_pending(next.fetch)) break;
      }
      if (!work_.issue(next, must)) break;
      ++issued;
    }
    WorkItem const& item = items_[done];
    wait_startable(item.fetch, stop);
    work_.complete(item);
    finish_item(item.fetch);
  }
}

}  // namespace spillway::offload
