#include "io/uring/dispatcher.hpp"

#include <algorithm>

#include "io/uring/completion.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::io::detail {

namespace {

Direction other(Direction direction) {
  return direction == Direction::read ? Direction::write : Direction::read;
}

FailedRequest place_of(Request const& request) {
  Transfer const& transfer = *request.transfer;
  return {transfer.direction, transfer.path, request.offset, request.length, transfer.fd};
}

}  // namespace

Dispatcher::Dispatcher(std::uint32_t depth, std::uint64_t block_bytes)
    : block_bytes_(block_bytes), slots_(depth) {
  free_.reserve(depth);
  for (std::uint32_t slot = depth; slot-- > 0;) {
    slots_[slot].slot = slot;
    free_.push_back(slot);
  }
}

void Dispatcher::push(std::shared_ptr<Transfer> transfer) {
  if (transfer->memory.empty()) {
    transfer->finish();
    return;
  }
  Line& waiting = line(transfer->direction);
  waiting.push_back(std::move(transfer));
}

Request* Dispatcher::next() {
  if (free_.empty() || !waiting()) return nullptr;
  if (line(turn_).empty()) turn_ = other(turn_);
  Line& waiting = line(turn_);
  turn_ = other(turn_);

  Request& request = slots_[free_.back()];
  free_.pop_back();
  request.transfer = waiting.front();
  Transfer& transfer = *request.transfer;
  std::uint64_t const block =
      std::max<std::uint64_t>(block_bytes_ - block_bytes_ % transfer.alignment, transfer.alignment);
  request.data = transfer.memory.data() + transfer.issued;
  request.offset = transfer.offset + transfer.issued;
  request.length = narrow<std::uint32_t>(std::min(block, transfer.memory.size() - transfer.issued));
  request.fruitless = 0;
  request.started = std::chrono::steady_clock::now();
  transfer.issued += request.length;
  ++transfer.unfinished;
  if (transfer.issued == transfer.memory.size()) waiting.pop_front();
  return &request;
}

bool Dispatcher::complete(Request& request, std::int64_t result) {
  Transfer& transfer = *request.transfer;
  Completion const completion =
      judge({transfer.direction, transfer.alignment, request.length, request.fruitless}, result);
  (transfer.direction == Direction::read ? stats_.read_bytes : stats_.written_bytes) +=
      completion.moved;
  if (completion.next == Next::again) {
    ++stats_.retries;
    request.fruitless = completion.moved > 0 ? 0 : request.fruitless + 1;
    request.data += completion.moved;
    request.offset += completion.moved;
    request.length -= static_cast<std::uint32_t>(completion.moved);
    return true;
  }
  if (completion.next == Next::failed)
    give_up(transfer, transfer_error(place_of(request), completion.error));
  release(request);
  return false;
}

void Dispatcher::give_up(Transfer& transfer, Error error) {
  if (transfer.error) return;
  transfer.error = std::move(error);
  Line& waiting = line(transfer.direction);
  auto const here = std::find_if(waiting.begin(), waiting.end(),
                                 [&](auto const& other) { return other.get() == &transfer; });
  if (here != waiting.end()) waiting.erase(here);
}

void Dispatcher::release(Request& request) {
  auto const transfer = std::move(request.transfer);
  free_.push_back(request.slot);
  bool const all_issued = transfer->issued == transfer->memory.size() || transfer->error;
  if (--transfer->unfinished == 0 && all_issued) transfer->finish();
}

void Dispatcher::fail_all(int error) {
  for (Request& request : slots_) {
    if (!request.transfer) continue;
    give_up(*request.transfer, transfer_error(place_of(request), error));
    release(request);
  }
  for (Line& waiting : waiting_) {
    for (auto const& transfer : waiting) {
      transfer->error = transfer_error({transfer->direction, transfer->path, transfer->offset,
                                        transfer->memory.size(), transfer->fd},
                                       error);
      transfer->finish();
    }
    waiting.clear();
  }
}

EngineStats Dispatcher::stats() const {
  EngineStats stats = stats_;
  auto const now = std::chrono::steady_clock::now();
  for (Request const& request : slots_) {
    if (!request.transfer) continue;
    double const age = std::chrono::duration<double>(now - request.started).count();
    stats.oldest_request_s = std::max(stats.oldest_request_s, age);
  }
  return stats;
}

}  // namespace spillway::io::detail
