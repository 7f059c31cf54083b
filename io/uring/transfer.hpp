// One transfer of a caller: what the ticket waits for and the engine's threads cut into requests.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "io/engine.hpp"
#include "lib/core/error.hpp"

namespace spillway::io::detail {

struct Transfer {
  /// Throws Fault::internal when offset, size or address break the file's alignment. `data` of a
  /// write is only read from.
  Transfer(Direction direction, File const& file, FileOffset offset, std::span<std::byte> memory);

  Direction const direction;
  int const fd;
  std::uint32_t const alignment;
  std::uint64_t const offset;
  std::span<std::byte> const memory;
  std::string const path;  // a copy, because a File may be moved while its transfers run

  // The engine's, guarded by its lock; `error` is the ticket's to read once done.
  std::uint64_t issued = 0;      // bytes cut off into requests
  std::uint32_t unfinished = 0;  // requests that are in flight
  std::optional<Error> error;

  /// The last thing the engine does with it.
  void finish();
  bool finished() const;
  void wait_until_finished();

 private:
  mutable std::mutex mutex_;
  std::condition_variable condition_;
  bool finished_ = false;
};

}  // namespace spillway::io::detail
