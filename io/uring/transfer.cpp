#include "io/uring/transfer.hpp"

#include <fmt/core.h>

#include "io/file.hpp"

namespace spillway::io {

namespace detail {

namespace {

void expect_aligned(std::uint64_t value, std::string_view what, File const& file) {
  if (value % file.alignment() == 0) return;
  fail(Fault::internal,
       fmt::format(
           "{} {} of a transfer with {} is not a multiple of {} (the file's alignment for direct "
           "transfers). Please report it.",
           what, value, file.path(), file.alignment()));
}

}  // namespace

Transfer::Transfer(Direction direction_, File const& file, FileOffset offset_,
                   std::span<std::byte> memory_)
    : direction(direction_),
      fd(file.fd()),
      alignment(file.alignment()),
      offset(offset_.get()),
      memory(memory_),
      path(file.path()) {
  expect_aligned(offset, "offset", file);
  expect_aligned(memory.size(), "size", file);
  expect_aligned(reinterpret_cast<std::uintptr_t>(memory.data()), "address", file);
}

void Transfer::finish() {
  std::lock_guard const lock(mutex_);
  finished_ = true;
  condition_.notify_all();
}

bool Transfer::finished() const {
  std::lock_guard const lock(mutex_);
  return finished_;
}

void Transfer::wait_until_finished() {
  std::unique_lock lock(mutex_);
  condition_.wait(lock, [this] { return finished_; });
}

}  // namespace detail

Ticket& Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  if (transfer_) transfer_->wait_until_finished();
  transfer_ = std::move(other.transfer_);
  return *this;
}

Ticket::~Ticket() {
  if (transfer_) transfer_->wait_until_finished();
}

bool Ticket::ready() const { return !transfer_ || transfer_->finished(); }

void Ticket::wait() {
  auto const transfer = std::move(transfer_);
  if (!transfer) return;
  transfer->wait_until_finished();
  if (transfer->error) throw *transfer->error;
}

}  // namespace spillway::io
