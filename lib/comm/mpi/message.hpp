// Exchange by MPI messages, polled with backoff so that waiting ranks leave the processor to
// others. Shows MPI's types: for the sources of this folder only.
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace spillway::comm::detail {

void wait(MPI_Request& request);
void wait(std::span<MPI_Request> requests);

void broadcast(std::span<std::byte> data, int root);
/// Equal byte counts on all ranks, written to `result` in rank order; for a few values.
void all_gather_small(std::span<std::byte const> mine, void* result);
/// True on all ranks if `mine` is true on all of them.
bool all_agree(bool mine);
/// Byte strings of any length, at `root` one per rank and elsewhere none.
std::vector<std::vector<std::byte>> gather(std::span<std::byte const> mine, int rank, int size,
                                           int root);

/// The bulk collectives by messages between pairs of ranks.
class MessageExchange {
 public:
  /// Two halves of staging, each with room for a block from each other rank. Throws Fault::usage if
  /// that leaves less than a cache line for a block.
  MessageExchange(int rank, int size, std::size_t staging_bytes);

  /// A ring: in each step every rank passes on to the right the part it has got last.
  void all_gather(std::span<std::byte> whole);
  void reduce_scatter(std::span<float> whole, std::span<float> own);

 private:
  struct Block {
    std::size_t offset;
    std::size_t size;
    std::size_t half;
  };
  float* staged(Block const& block, int peer) const;
  void post(std::span<float> whole, std::size_t part, Block const& block);

  int rank_;
  int size_;
  std::size_t block_floats_;
  std::unique_ptr<float[]> staging_;
  std::array<std::vector<MPI_Request>, 2> requests_;  // of each half: first receives, then sends
  std::vector<float const*> terms_;
};

}  // namespace spillway::comm::detail
