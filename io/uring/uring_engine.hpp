// Engine over io_uring: callers queue, one thread submits, reaps and completes.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "io/uring/dispatcher.hpp"
#include "io/uring/ring.hpp"

namespace spillway::io::detail {

class UringEngine final : public Engine {
 public:
  /// `hook` may be empty. The ring is shared, because the one that passed the self-test is used
  /// again: the kernel counts a closed ring against the memory-lock limit until some time later.
  UringEngine(std::shared_ptr<Ring> ring, std::uint64_t block_bytes, std::string description,
              ResultHook hook);
  ~UringEngine() override;

  Ticket read(File const& file, FileOffset offset, std::span<std::byte> into) override;
  Ticket write(File const& file, FileOffset offset, std::span<std::byte const> from) override;
  EngineStats stats() const override;
  std::string description() const override { return description_; }

 private:
  Ticket queue(std::shared_ptr<Transfer> transfer);
  void run();
  bool issue();
  bool wait_in_kernel();
  void complete(std::span<Ring::Result const> results);

  std::shared_ptr<Ring> const ring_;
  std::string const description_;
  ResultHook const hook_;

  std::uint32_t refusals_ = 0;  // the thread's: submissions in a row that the kernel refused

  mutable std::mutex mutex_;
  Dispatcher dispatcher_;    // guarded by mutex_
  bool stopping_ = false;    // guarded by mutex_
  bool wants_wake_ = false;  // guarded by mutex_: the thread sleeps and has room for more
  int broken_ = 0;           // guarded by mutex_: errno of a ring that takes nothing any more

  std::thread thread_;  // last: starts when all else is there
};

}  // namespace spillway::io::detail
