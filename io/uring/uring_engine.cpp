#include "io/uring/uring_engine.hpp"

#include <cerrno>
#include <chrono>

#include "io/file.hpp"
#include "io/uring/completion.hpp"
#include "io/uring/signals.hpp"

namespace spillway::io::detail {

namespace {

void pause() { std::this_thread::sleep_for(std::chrono::microseconds(pause_us)); }

}  // namespace

UringEngine::UringEngine(std::shared_ptr<Ring> ring, std::uint64_t block_bytes,
                         std::string description, ResultHook hook)
    : ring_(std::move(ring)),
      description_(std::move(description)),
      hook_(std::move(hook)),
      dispatcher_(ring_->depth(), block_bytes) {
  SignalsBlocked const blocked;
  thread_ = std::thread([this] { run(); });
}

UringEngine::~UringEngine() {
  {
    std::lock_guard const lock(mutex_);
    stopping_ = true;
  }
  ring_->wake();
  thread_.join();
}

Ticket UringEngine::read(File const& file, FileOffset offset, std::span<std::byte> into) {
  return queue(std::make_shared<Transfer>(Direction::read, file, offset, into));
}

Ticket UringEngine::write(File const& file, FileOffset offset, std::span<std::byte const> from) {
  std::span<std::byte> const memory(const_cast<std::byte*>(from.data()), from.size());
  return queue(std::make_shared<Transfer>(Direction::write, file, offset, memory));
}

Ticket UringEngine::queue(std::shared_ptr<Transfer> transfer) {
  Ticket ticket(transfer);
  bool wake = false;
  {
    std::lock_guard const lock(mutex_);
    dispatcher_.push(std::move(transfer));
    if (broken_ != 0) dispatcher_.fail_all(broken_);
    wake = std::exchange(wants_wake_, false);
  }
  if (wake) ring_->wake();
  return ticket;
}

EngineStats UringEngine::stats() const {
  std::lock_guard const lock(mutex_);
  return dispatcher_.stats();
}

void UringEngine::run() {
  while (issue()) {
    if (!wait_in_kernel()) return;
    complete(ring_->reap());
  }
}

/// Prepares requests until the depth is reached; false when there is nothing more to do for ever.
bool UringEngine::issue() {
  std::lock_guard const lock(mutex_);
  while (Request const* request = dispatcher_.next()) ring_->prepare(*request);
  wants_wake_ = dispatcher_.has_room();
  return !stopping_ || !dispatcher_.idle();
}

/// Submits and sleeps. The kernel may be short of memory for a while, then completions still have
/// to be reaped. If it stays so, or says anything else, all transfers fail with what it said, as
/// nothing can be moved any more.
bool UringEngine::wait_in_kernel() {
  int const error = ring_->submit_and_wait();
  if (error == 0 || error == EINTR || error == EBUSY) {
    refusals_ = 0;
    return true;
  }
  bool const may_pass = error == EAGAIN || error == ENOMEM;
  if (may_pass && ++refusals_ < attempts_max) {
    pause();
    return true;
  }
  std::lock_guard const lock(mutex_);
  broken_ = error;
  dispatcher_.fail_all(error);
  return false;
}

void UringEngine::complete(std::span<Ring::Result const> results) {
  bool must_pause = false;
  for (auto const& [slot, raw_result] : results) {
    // The slot is this thread's until complete(); the lock is for its statistics and the waiting
    // lines.
    Request& request = dispatcher_.at(slot);
    std::int64_t const result = hook_ ? hook_(request, raw_result) : raw_result;
    std::lock_guard const lock(mutex_);
    if (!dispatcher_.complete(request, result)) continue;
    ring_->prepare(request);
    must_pause = must_pause || request.fruitless > attempts_without_pause;
  }
  if (must_pause) pause();
}

}  // namespace spillway::io::detail
