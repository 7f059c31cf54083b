// Engine over pread and pwrite in a few threads, for where io_uring is refused.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "io/uring/dispatcher.hpp"

namespace spillway::io::detail {

class ThreadEngine final : public Engine {
 public:
  /// `reason` stands in the description, `hook` may be empty; both as in make_thread_engine().
  ThreadEngine(EngineOptions const& options, std::string const& reason, ResultHook hook);
  ~ThreadEngine() override;

  Ticket read(File const& file, FileOffset offset, std::span<std::byte> into) override;
  Ticket write(File const& file, FileOffset offset, std::span<std::byte const> from) override;
  EngineStats stats() const override;
  std::string description() const override { return description_; }

 private:
  Ticket queue(std::shared_ptr<Transfer> transfer);
  void work();
  void carry_out(Request& request, std::unique_lock<std::mutex>& lock);
  void stop() noexcept;

  std::uint32_t const thread_count_;
  std::string const description_;
  ResultHook const hook_;

  mutable std::mutex mutex_;
  std::condition_variable condition_;
  Dispatcher dispatcher_;  // guarded by mutex_
  bool stopping_ = false;  // guarded by mutex_

  std::vector<std::thread> threads_;  // last: start when all else is there
};

}  // namespace spillway::io::detail
