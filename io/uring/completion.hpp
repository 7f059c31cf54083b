// What a result of the kernel means for a request: done, go on, or failed. Pure, so that tests can
// try all of it.
#pragma once

#include <cstdint>
#include <string>

#include "io/engine.hpp"
#include "lib/core/error.hpp"

namespace spillway::io::detail {

/// Attempts in a row that move nothing before a request is given up. With the pause below this is
/// half a second of EAGAIN; a busy device that gives them recovers within milliseconds.
inline constexpr std::uint32_t attempts_max = 5000;
/// After this many of them each further one waits for `pause_us` first.
inline constexpr std::uint32_t attempts_without_pause = 16;
inline constexpr std::uint32_t pause_us = 100;

/// What was asked of the kernel.
struct Attempt {
  Direction direction = Direction::read;
  std::uint32_t alignment = 1;
  std::uint64_t length = 0;
  std::uint32_t fruitless = 0;  // attempts just before this one that moved nothing
};

enum class Next { done, again, failed };

inline constexpr int end_of_file = 0;  // `Completion::error` of a read behind the end

struct Completion {
  Next next = Next::done;
  std::uint64_t moved = 0;  // bytes to go on behind
  int error = 0;            // errno of a failure, or end_of_file
};

/// `result` is a byte count or a negative errno.
Completion judge(Attempt const& attempt, std::int64_t result);

/// Place of a failed request, for its error.
struct FailedRequest {
  Direction direction = Direction::read;
  std::string const& path;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  int fd = -1;
};

Error transfer_error(FailedRequest const& request, int error);

/// Fault::no_room for all that more space or a larger limit would cure, else Fault::io.
Fault fault_of(int error);

}  // namespace spillway::io::detail
