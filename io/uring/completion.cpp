#include "io/uring/completion.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <cerrno>

namespace spillway::io::detail {

namespace {

Completion again_or_give_up(Attempt const& attempt, int error) {
  if (attempt.fruitless + 1 >= attempts_max) return {Next::failed, 0, error};
  return {Next::again, 0, 0};
}

std::string_view suggestion(int error) {
  switch (error) {
    case ENOSPC: return "Free space there or choose another directory?";
    case EDQUOT: return "Raise the quota or choose another directory?";
    case EFBIG: return "Raise the file size limit (ulimit -f)?";
    case EIO: return "Is the disk healthy?";
    default: return "Is the file still what was opened?";
  }
}

}  // namespace

Completion judge(Attempt const& attempt, std::int64_t result) {
  if (result == -EAGAIN || result == -EINTR || result == -EWOULDBLOCK)
    return again_or_give_up(attempt, static_cast<int>(-result));
  if (result < 0) return {Next::failed, 0, static_cast<int>(-result)};

  auto const moved = static_cast<std::uint64_t>(result);
  if (moved > attempt.length) return {Next::failed, 0, EIO};
  if (moved == attempt.length) return {Next::done, moved, 0};

  // A direct transfer can only go on at a multiple of the alignment: what is behind the last one
  // moves twice.
  std::uint64_t const whole = moved - moved % attempt.alignment;
  if (whole > 0) return {Next::again, whole, 0};
  // Less than one block: a read gets this only at the end of the file.
  if (attempt.direction == Direction::read) return {Next::failed, 0, end_of_file};
  return again_or_give_up(attempt, EIO);
}

Fault fault_of(int error) {
  return error == ENOSPC || error == EDQUOT || error == EFBIG ? Fault::no_room : Fault::io;
}

Error transfer_error(FailedRequest const& request, int error) {
  std::string const what = fmt::format("cannot {} {} bytes at offset {} of {}",
                                       request.direction == Direction::read ? "read" : "write",
                                       request.length, request.offset, request.path);
  if (error != end_of_file)
    return Error(fault_of(error),
                 fmt::format("{} ({}). {}", what, errno_text(error), suggestion(error)));
  struct stat status {};
  std::string const end = ::fstat(request.fd, &status) == 0
                              ? fmt::format("end of file: it has {} bytes", status.st_size)
                              : std::string("end of file");
  return Error(Fault::io, fmt::format("{} ({}). Is the file complete?", what, end));
}

}  // namespace spillway::io::detail
