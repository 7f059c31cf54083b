#include "io/uring/thread_engine.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include "io/file.hpp"
#include "io/uring/completion.hpp"
#include "io/uring/signals.hpp"

namespace spillway::io::detail {

namespace {

/// Threads mostly sleep in the kernel; with requests of a mebibyte more of them gain nothing on one
/// disk.
constexpr std::uint32_t threads_max = 8;

std::int64_t attempt(Request const& request) {
  auto const offset = static_cast<off_t>(request.offset);
  ssize_t const result = request.transfer->direction == Direction::read
                             ? ::pread(request.transfer->fd, request.data, request.length, offset)
                             : ::pwrite(request.transfer->fd, request.data, request.length, offset);
  return result < 0 ? -errno : result;
}

std::string describe(std::uint32_t threads, std::string const& reason) {
  std::string const count = fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
  return reason.empty() ? count : fmt::format("{} ({})", count, reason);
}

}  // namespace

ThreadEngine::ThreadEngine(EngineOptions const& options, std::string const& reason, ResultHook hook)
    : thread_count_(std::min(options.depth, threads_max)),
      description_(describe(thread_count_, reason)),
      hook_(std::move(hook)),
      dispatcher_(thread_count_, options.block_bytes) {
  SignalsBlocked const blocked;
  threads_.reserve(thread_count_);
  try {
    while (threads_.size() < thread_count_) threads_.emplace_back([this] { work(); });
  } catch (std::system_error const& error) {
    stop();
    fail(Fault::io, fmt::format("cannot start {} threads for disk transfers ({}). Raise ulimit -u?",
                                thread_count_, error.what()));
  }
}

ThreadEngine::~ThreadEngine() { stop(); }

void ThreadEngine::stop() noexcept {
  {
    std::lock_guard const lock(mutex_);
    stopping_ = true;
  }
  condition_.notify_all();
  for (auto& thread : threads_) thread.join();
}

Ticket ThreadEngine::read(File const& file, FileOffset offset, std::span<std::byte> into) {
  return queue(std::make_shared<Transfer>(Direction::read, file, offset, into));
}

Ticket ThreadEngine::write(File const& file, FileOffset offset, std::span<std::byte const> from) {
  std::span<std::byte> const memory(const_cast<std::byte*>(from.data()), from.size());
  return queue(std::make_shared<Transfer>(Direction::write, file, offset, memory));
}

Ticket ThreadEngine::queue(std::shared_ptr<Transfer> transfer) {
  Ticket ticket(transfer);
  {
    std::lock_guard const lock(mutex_);
    dispatcher_.push(std::move(transfer));
  }
  condition_.notify_all();
  return ticket;
}

EngineStats ThreadEngine::stats() const {
  std::lock_guard const lock(mutex_);
  return dispatcher_.stats();
}

void ThreadEngine::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    condition_.wait(lock, [this] { return stopping_ || dispatcher_.waiting(); });
    Request* const request = dispatcher_.next();
    if (request == nullptr)
      return;  // as there is a slot for each thread: stopping and nothing waits
    carry_out(*request, lock);
  }
}

void ThreadEngine::carry_out(Request& request, std::unique_lock<std::mutex>& lock) {
  for (bool again = true; again;) {
    lock.unlock();
    if (request.fruitless > attempts_without_pause)
      std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
    std::int64_t result = attempt(request);
    if (hook_) result = hook_(request, result);
    lock.lock();
    again = dispatcher_.complete(request, result);
  }
}

}  // namespace spillway::io::detail
