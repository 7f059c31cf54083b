// Collectives between the ranks of a run. self/, threads/ and mpi/ implement it; nccl/ will.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/core/strong.hpp"
#include "lib/device/stream.hpp"

namespace spillway::comm {

/// All ranks call the same collectives in the same order, from one thread. Sums run in rank order,
/// so their bits depend on the number of ranks only. Failures throw Fault::peer.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual Rank rank() const = 0;
  virtual int size() const = 0;
  /// Number of ranks on this host, and this rank's place among them.
  virtual int local_size() const = 0;
  virtual int local_rank() const = 0;

  virtual void barrier() = 0;
  virtual void broadcast(std::span<std::byte> data, Rank root) = 0;
  /// In place: whole.size() = size() * part, this rank's part is already at rank() * part.
  virtual void all_gather(std::span<std::byte> whole, device::Stream&) = 0;
  /// own[i] = sum over ranks r = 0, 1, ... of their whole[rank() * own.size() + i], in fp32 and in
  /// that order. `own` may be this rank's part of `whole` itself; the rest of `whole` is then
  /// undefined.
  virtual void reduce_scatter(std::span<float> whole, std::span<float> own, device::Stream&) = 0;
  /// Every rank's values, concatenated in rank order: result.size() = size() * mine.size().
  virtual std::vector<double> all_gather_values(std::span<double const> mine) = 0;
  /// Byte strings of any length: at `root` one per rank, elsewhere empty.
  virtual std::vector<std::vector<std::byte>> gather(std::span<std::byte const> mine,
                                                     Rank root) = 0;

  /// Bytes that this rank has sent to others so far.
  virtual std::uint64_t sent_bytes() const = 0;
  /// Ends the whole job at once; does not return. For use after an error on one rank.
  [[noreturn]] virtual void abort(int exit_code) = 0;
};

/// One rank alone: every collective is a no-op.
std::unique_ptr<Communicator> make_self_communicator();

/// Whether ranks of one host exchange bulk data through a memory segment of their own or through
/// MPI.
enum class NodeMemory { use, avoid };

struct MpiOptions {
  /// Buffers for bulk data, claimed once: counts in full against this rank's memory.
  std::size_t staging_bytes = std::size_t{2} << 20;  // more was not faster, up to 8 ranks
  /// Used where all ranks are on one host; where it cannot be had, MPI takes its place.
  NodeMemory node_memory = NodeMemory::use;
};

/// MPI_COMM_WORLD, while an MpiRuntime (lib/comm/mpi/mpi_runtime.hpp) is alive.
std::unique_ptr<Communicator> make_mpi_communicator(MpiOptions options = {});

/// `ranks` communicators that share memory, for tests: use each from its own thread.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks);

}  // namespace spillway::comm
