// The shared segment and the two collectives that run through it.
#include "lib/comm/mpi/node_window.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "lib/comm/backoff.hpp"
#include "lib/comm/chunks.hpp"
#include "lib/comm/rank_order_sum.hpp"
#include "lib/core/error.hpp"

namespace spillway::comm::detail {
namespace {

constexpr std::size_t slots = 4;  // see NodeWindow: fewer would be overwritten while they are read
constexpr std::size_t line_bytes = 64;
constexpr std::size_t segment_bytes_min =
    1024;  // of one contribution: below, waiting outweighs copying

std::size_t counters_bytes(int ranks) { return static_cast<std::size_t>(ranks) * line_bytes; }

std::size_t slot_bytes_for(int ranks, std::size_t bytes) {
  if (bytes <= counters_bytes(ranks)) return 0;
  std::size_t const outbox = (bytes - counters_bytes(ranks)) / static_cast<std::size_t>(ranks);
  return outbox / slots / line_bytes * line_bytes;
}

std::size_t contribution_bytes(int ranks, std::size_t slot_bytes) {
  return slot_bytes / static_cast<std::size_t>(ranks - 1) / line_bytes * line_bytes;
}

}  // namespace

SharedSegment::SharedSegment(std::string const& name, std::size_t bytes, Open how) : bytes_(bytes) {
  int const flags = O_RDWR | O_CLOEXEC | (how == Open::create ? O_CREAT | O_EXCL : 0);
  Fd const file(::shm_open(name.c_str(), flags, 0600));
  if (!file) {
    fail(Fault::io, fmt::format("cannot open shared memory {} ({})", name, errno_text(errno)));
  }
  if (how == Open::create) {
    // Reserved now: a full /dev/shm is an error here and not a bus error in the middle of a step.
    int const code = ::posix_fallocate(file.get(), 0, static_cast<off_t>(bytes));
    if (code != 0) {
      remove_name(name);
      fail(Fault::no_room, fmt::format("cannot reserve {} bytes of shared memory ({}). Is /dev/shm "
                                       "too small?",
                                       bytes, errno_text(code)));
    }
  }
  void* const address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (address == MAP_FAILED) {
    int const code = errno;
    if (how == Open::create) remove_name(name);
    fail(Fault::no_room,
         fmt::format("cannot map {} bytes of shared memory ({})", bytes, errno_text(code)));
  }
  data_ = static_cast<std::byte*>(address);
}

SharedSegment::~SharedSegment() { ::munmap(data_, bytes_); }

void SharedSegment::remove_name(std::string const& name) { ::shm_unlink(name.c_str()); }

bool NodeWindow::fits(int ranks, std::size_t bytes) {
  return ranks > 1 && contribution_bytes(ranks, slot_bytes_for(ranks, bytes)) >= segment_bytes_min;
}

NodeWindow::NodeWindow(std::unique_ptr<SharedSegment> segment, std::size_t bytes, int ranks,
                       int rank)
    : segment_(std::move(segment)),
      ranks_(ranks),
      rank_(rank),
      slot_bytes_(slot_bytes_for(ranks, bytes)),
      // All bytes zero is the start of every counter, so that the first use needs no agreement.
      counters_(reinterpret_cast<Counter*>(segment_->data())),
      outboxes_(segment_->data() + counters_bytes(ranks)),
      terms_(static_cast<std::size_t>(ranks)) {
  static_assert(sizeof(Counter) == line_bytes);
}

std::byte* NodeWindow::slot(int rank, std::uint64_t sequence) const {
  std::size_t const index = static_cast<std::size_t>(rank) * slots + sequence % slots;
  return outboxes_ + index * slot_bytes_;
}

void NodeWindow::wait_until_published(int peer, std::uint64_t sequence) {
  Backoff backoff;
  while (counters_[peer].published.load(std::memory_order_acquire) <= sequence) backoff.pause();
}

template <class Publish, class Consume>
void NodeWindow::pipeline(std::uint64_t blocks, Publish const& publish, Consume const& consume) {
  auto const put = [&](std::uint64_t block) {
    publish(block, slot(rank_, sequence_ + block));
    counters_[rank_].published.store(sequence_ + block + 1, std::memory_order_release);
  };
  for (std::uint64_t block = 0; block < blocks; ++block) {
    if (block == 0) put(0);
    if (block + 1 < blocks) put(block + 1);
    consume(block, sequence_ + block);
  }
  sequence_ += blocks;
}

void NodeWindow::all_gather(std::span<std::byte> whole) {
  std::size_t const part = whole.size() / static_cast<std::size_t>(ranks_);
  Chunks const chunks(part, slot_bytes_);
  auto const at = [&](int rank, Chunk chunk) {
    return whole.data() + static_cast<std::size_t>(rank) * part + chunk.offset;
  };
  auto const publish = [&](std::uint64_t block, std::byte* slot_begin) {
    std::memcpy(slot_begin, at(rank_, chunks[block]), chunks[block].size);
  };
  auto const consume = [&](std::uint64_t block, std::uint64_t sequence) {
    for (int step = 1; step < ranks_; ++step) {
      int const peer = (rank_ + step) % ranks_;
      wait_until_published(peer, sequence);
      std::memcpy(at(peer, chunks[block]), slot(peer, sequence), chunks[block].size);
    }
  };
  pipeline(chunks.count(), publish, consume);
}

void NodeWindow::reduce_scatter(std::span<float> whole, std::span<float> own) {
  std::size_t const contribution = contribution_bytes(ranks_, slot_bytes_);
  Chunks const chunks(own.size(), contribution / sizeof(float));
  // In a rank's slot lie its contributions to all others, in rank order without itself.
  auto const place = [&](std::byte* slot_begin, int from, int to) {
    return slot_begin + static_cast<std::size_t>(to - (to > from ? 1 : 0)) * contribution;
  };
  auto const publish = [&](std::uint64_t block, std::byte* slot_begin) {
    for (int peer = 0; peer < ranks_; ++peer) {
      if (peer == rank_) continue;
      std::memcpy(place(slot_begin, rank_, peer),
                  whole.data() + static_cast<std::size_t>(peer) * own.size() + chunks[block].offset,
                  chunks[block].size * sizeof(float));
    }
  };
  auto const consume = [&](std::uint64_t block, std::uint64_t sequence) {
    Chunk const chunk = chunks[block];
    for (int peer = 0; peer < ranks_; ++peer) {
      auto& term = terms_[static_cast<std::size_t>(peer)];
      if (peer == rank_) {
        term = whole.data() + static_cast<std::size_t>(rank_) * own.size() + chunk.offset;
      } else {
        wait_until_published(peer, sequence);
        term = reinterpret_cast<float const*>(place(slot(peer, sequence), peer, rank_));
      }
    }
    sum_in_rank_order(terms_, own.subspan(chunk.offset, chunk.size));
  };
  pipeline(chunks.count(), publish, consume);
}

}  // namespace spillway::comm::detail
