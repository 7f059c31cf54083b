// MPI messages between pairs of ranks, and the small collectives.
#include "lib/comm/mpi/message.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>

#include "lib/comm/backoff.hpp"
#include "lib/comm/chunks.hpp"
#include "lib/comm/mpi/mpi_check.hpp"
#include "lib/comm/rank_order_sum.hpp"
#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::comm::detail {
namespace {

enum Tag : int { ring_tag = 1, reduce_tag, gather_tag };

// Small enough that completions, which end a backoff, come often.
constexpr std::size_t ring_chunk_bytes = std::size_t{4} << 20;

MPI_Request send(std::span<std::byte const> data, int to, Tag tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(
      MPI_Isend(data.data(), narrow<int>(data.size()), MPI_BYTE, to, tag, MPI_COMM_WORLD, &request),
      "MPI_Isend");
  return request;
}

MPI_Request receive(std::span<std::byte> data, int from, Tag tag) {
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Irecv(data.data(), narrow<int>(data.size()), MPI_BYTE, from, tag, MPI_COMM_WORLD,
                  &request),
        "MPI_Irecv");
  return request;
}

}  // namespace

void wait(MPI_Request& request) { wait({&request, 1}); }

void wait(std::span<MPI_Request> requests) {
  Backoff backoff;
  for (MPI_Request& request : requests) {
    for (int done = 0;;) {
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done != 0) break;
      backoff.pause();
    }
  }
}

void broadcast(std::span<std::byte> data, int root) {
  Chunks const chunks(data.size(), message_bytes_max);
  for (std::uint64_t i = 0; i < chunks.count(); ++i) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibcast(data.data() + chunks[i].offset, narrow<int>(chunks[i].size), MPI_BYTE, root,
                     MPI_COMM_WORLD, &request),
          "MPI_Ibcast");
    wait(request);
  }
}

void all_gather_small(std::span<std::byte const> mine, void* result) {
  int const count = narrow<int>(mine.size());
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallgather(mine.data(), count, MPI_BYTE, result, count, MPI_BYTE, MPI_COMM_WORLD,
                       &request),
        "MPI_Iallgather");
  wait(request);
}

bool all_agree(bool mine) {
  int const vote = mine ? 1 : 0;
  int result = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Iallreduce(&vote, &result, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD, &request),
        "MPI_Iallreduce");
  wait(request);
  return result == 1;
}

std::vector<std::vector<std::byte>> gather(std::span<std::byte const> mine, int rank, int size,
                                           int root) {
  std::uint64_t const length = mine.size();
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(size));
  all_gather_small(std::as_bytes(std::span(&length, 1)), lengths.data());
  std::vector<MPI_Request> requests;
  std::vector<std::vector<std::byte>> result;
  if (rank != root) {
    Chunks const chunks(length, message_bytes_max);
    for (std::uint64_t i = 0; i < chunks.count(); ++i)
      requests.push_back(send(mine.subspan(chunks[i].offset, chunks[i].size), root, gather_tag));
  } else {
    for (std::uint64_t const bytes : lengths) result.emplace_back(bytes);
    result[static_cast<std::size_t>(rank)].assign(mine.begin(), mine.end());
    for (int peer = 0; peer < size; ++peer) {
      std::span const theirs(result[static_cast<std::size_t>(peer)]);
      Chunks const chunks(peer == rank ? 0 : theirs.size(), message_bytes_max);
      for (std::uint64_t i = 0; i < chunks.count(); ++i)
        requests.push_back(
            receive(theirs.subspan(chunks[i].offset, chunks[i].size), peer, gather_tag));
    }
  }
  wait(requests);
  return result;
}

MessageExchange::MessageExchange(int rank, int size, std::size_t staging_bytes)
    : rank_(rank), size_(size), terms_(static_cast<std::size_t>(size)) {
  std::size_t const places = 2 * static_cast<std::size_t>(size - 1);
  block_floats_ = std::min(staging_bytes / places, std::size_t{message_bytes_max}) / 64 * 16;
  if (block_floats_ == 0) {
    fail(Fault::usage,
         fmt::format("{} bytes of staging are too few for {} ranks (each needs room for "
                     "2 x {} cache lines of 64 bytes)",
                     staging_bytes, size, size - 1));
  }
  staging_ = std::make_unique<float[]>(places * block_floats_);
  for (auto& requests : requests_) requests.resize(places, MPI_REQUEST_NULL);
}

void MessageExchange::all_gather(std::span<std::byte> whole) {
  auto const ranks = static_cast<std::size_t>(size_);
  std::size_t const part = whole.size() / ranks;
  int const right = (rank_ + 1) % size_;
  int const left = (rank_ + size_ - 1) % size_;
  Chunks const chunks(part, ring_chunk_bytes);
  for (int step = 0; step + 1 < size_; ++step) {
    std::size_t const mine = static_cast<std::size_t>((rank_ + size_ - step) % size_) * part;
    std::size_t const theirs = static_cast<std::size_t>((left + size_ - step) % size_) * part;
    for (std::uint64_t i = 0; i < chunks.count(); ++i) {
      std::array requests{
          receive(whole.subspan(theirs + chunks[i].offset, chunks[i].size), left, ring_tag),
          send(whole.subspan(mine + chunks[i].offset, chunks[i].size), right, ring_tag)};
      wait(requests);
    }
  }
}

float* MessageExchange::staged(Block const& block, int peer) const {
  std::size_t const place = static_cast<std::size_t>(peer - (peer > rank_ ? 1 : 0));
  return staging_.get() +
         (block.half * static_cast<std::size_t>(size_ - 1) + place) * block_floats_;
}

void MessageExchange::post(std::span<float> whole, std::size_t part, Block const& block) {
  std::size_t next = 0;
  auto& requests = requests_[block.half];
  for (int step = 1; step < size_; ++step) {
    int const from = (rank_ + size_ - step) % size_;
    requests[next++] = receive(std::as_writable_bytes(std::span(staged(block, from), block.size)),
                               from, reduce_tag);
  }
  for (int step = 1; step < size_; ++step) {
    int const to = (rank_ + step) % size_;
    requests[next++] = send(std::as_bytes(whole.subspan(
                                static_cast<std::size_t>(to) * part + block.offset, block.size)),
                            to, reduce_tag);
  }
}

void MessageExchange::reduce_scatter(std::span<float> whole, std::span<float> own) {
  Chunks const chunks(own.size(), block_floats_);
  auto const block_at = [&](std::uint64_t i) {
    return Block{chunks[i].offset, chunks[i].size, static_cast<std::size_t>(i % 2)};
  };
  for (std::uint64_t i = 0; i < chunks.count(); ++i) {
    if (i == 0) post(whole, own.size(), block_at(0));
    if (i + 1 < chunks.count()) post(whole, own.size(), block_at(i + 1));
    Block const block = block_at(i);
    wait(requests_[block.half]);
    for (int peer = 0; peer < size_; ++peer) {
      terms_[static_cast<std::size_t>(peer)] =
          peer == rank_ ? whole.data() + static_cast<std::size_t>(rank_) * own.size() + block.offset
                        : staged(block, peer);
    }
    sum_in_rank_order(terms_, own.subspan(block.offset, block.size));
  }
}

}  // namespace spillway::comm::detail
