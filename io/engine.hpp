// Asynchronous reads and writes of direct files: what the ring and the thread pool of uring/
// implement.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lib/core/strong.hpp"

namespace spillway::io {

class File;  // io/file.hpp

enum class Direction { read, write };

namespace detail {
struct Transfer;  // shared between the ticket and the engine's thread
}

/// Token of one transfer. wait() returns when all bytes are moved or throws the Error (Fault::io
/// with path, offset, errno; Fault::no_room for ENOSPC, EDQUOT, EFBIG) and leaves the ticket empty.
/// The destructor waits and logs nothing. Move-only. File and memory have to outlive it.
class [[nodiscard]] Ticket {
 public:
  Ticket() = default;
  explicit Ticket(std::shared_ptr<detail::Transfer> transfer) : transfer_(std::move(transfer)) {}
  Ticket(Ticket&&) noexcept = default;
  Ticket& operator=(Ticket&& other) noexcept;
  Ticket(Ticket const&) = delete;
  Ticket& operator=(Ticket const&) = delete;
  ~Ticket();

  /// True when wait() would not block (also for an empty ticket).
  bool ready() const;
  void wait();
  explicit operator bool() const { return transfer_ != nullptr; }

 private:
  std::shared_ptr<detail::Transfer> transfer_;
};

struct EngineOptions {
  std::uint32_t depth = 32;                   // requests in flight
  std::uint64_t block_bytes = 1u << 20;       // a transfer is cut into requests of this size
  std::vector<std::span<std::byte>> buffers;  // memory worth registering with the kernel
};

struct EngineStats {
  std::uint64_t read_bytes = 0;  // completed
  std::uint64_t written_bytes = 0;
  std::uint64_t retries = 0;    // EINTR, EAGAIN and short transfers continued
  double oldest_request_s = 0;  // age of the oldest request still in flight, 0 if none
};

/// Thread-safe. Transfers may complete in any order; the caller orders overlapping ones by waiting.
/// Offsets, sizes and addresses must be multiples of file.alignment(). The destructor finishes all
/// transfers.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual Ticket read(File const& file, FileOffset offset, std::span<std::byte> into) = 0;
  virtual Ticket write(File const& file, FileOffset offset, std::span<std::byte const> from) = 0;
  virtual EngineStats stats() const = 0;
  /// "io_uring (depth 32, fixed buffers)" or "4 threads (io_uring refused: ... )".
  virtual std::string description() const = 0;
};

enum class EngineKind { automatic, uring, threads };

/// automatic: io_uring where it is permitted and passes its self-test in `probe_directory`, else
/// threads; the description says why. uring: the same or an Error. An empty directory means a
/// self-test in memory.
std::unique_ptr<Engine> make_engine(EngineKind kind, EngineOptions options,
                                    std::string const& probe_directory);

}  // namespace spillway::io
