#include "io/file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "io/uring/alignment.hpp"
#include "io/uring/completion.hpp"
#include "io/uring/scratch.hpp"
#include "io/uring/signals.hpp"
#include "lib/core/bytes.hpp"
#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::io {

namespace {

[[noreturn]] void fail_with_errno(std::string_view what, std::string const& path, int error,
                                  std::string_view suggestion, Where where = Where::here()) {
  fail(detail::fault_of(error),
       fmt::format("cannot {} {} ({}). {}", what, path, errno_text(error), suggestion), where);
}

int flags_of(Access access) {
  switch (access) {
    case Access::read: return O_RDONLY;
    case Access::write_new: return O_RDWR | O_CREAT | O_EXCL;
    case Access::read_write: return O_RDWR | O_CREAT;
  }
  expect(false, "an access mode has its open flags");
  return O_RDONLY;
}

struct stat status_of(int fd, std::string const& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) fail_with_errno("examine", path, errno, "Is the disk healthy?");
  return status;
}

std::uint64_t free_bytes_of(int fd) {
  struct statvfs status {};
  if (::fstatvfs(fd, &status) != 0) return 0;
  return static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
}

[[noreturn]] void fail_to_reserve(std::string const& path, std::uint64_t needed, std::uint64_t free,
                                  int error) {
  char const* suggestion = error == EFBIG    ? "Raise the file size limit (ulimit -f)?"
                           : error == EDQUOT ? "Raise the quota or choose another directory?"
                                             : "Free space there or choose another directory?";
  fail(detail::fault_of(error),
       fmt::format("cannot reserve space for {} ({}: needed {} ({} bytes), free {} ({} bytes)). {}",
                   path, errno_text(error), format_bytes(needed), needed, format_bytes(free), free,
                   suggestion));
}

/// Zeros from `begin` to `end`, written once. 0 or an errno.
int write_zeros(int fd, std::uint64_t begin, std::uint64_t end) {
  constexpr std::uint64_t piece_bytes = 1 << 20;
  auto const zeros = detail::aligned_memory(piece_bytes, 64 << 10);
  while (begin < end) {
    ssize_t const written =
        ::pwrite(fd, zeros.get(), std::min(piece_bytes, end - begin), static_cast<off_t>(begin));
    if (written < 0 && errno != EINTR) return errno;
    if (written == 0) return ENOSPC;
    if (written > 0) begin += static_cast<std::uint64_t>(written);
  }
  return 0;
}

/// Space for `bytes` of a file that has `old_size`. 0 or an errno.
int allocate(int fd, std::uint64_t old_size, std::uint64_t bytes, std::uint64_t alignment) {
  int error = EINTR;
  while (error == EINTR) error = ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  if (error != EOPNOTSUPP && error != ENOSYS) return error;
  if (bytes <= old_size) return 0;
  // What is in the last, partly filled block survives: zeros begin behind it and end with whole
  // blocks.
  error = write_zeros(fd, round_up(old_size, alignment), round_up(bytes, alignment));
  if (error == 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) error = errno;
  return error;
}

}  // namespace

File::File(std::filesystem::path path, Access access)
    : path_(path.string()), fd_(::open(path_.c_str(), flags_of(access) | O_CLOEXEC, 0644)) {
  if (!fd_)
    fail_with_errno("open", path_, errno,
                    errno == EEXIST ? "Remove it or choose another name?" : "Is the path right?");
  if (!S_ISREG(status_of(fd_.get(), path_).st_mode))
    fail(Fault::io,
         fmt::format("cannot transfer to or from {} (not a regular file). Is the path right?",
                     path_));
  // Not at open(): a file system that refuses O_DIRECT there may have created the file already.
  std::uint32_t const alignment = detail::turn_direct(fd_.get(), access != Access::read);
  direct_ = alignment != 0;
  alignment_ = direct_ ? alignment : 1;
}

std::uint64_t File::size() const {
  return static_cast<std::uint64_t>(status_of(fd_.get(), path_).st_size);
}

void File::reserve(std::uint64_t bytes) {
  struct stat const before = status_of(fd_.get(), path_);
  auto const old_size = static_cast<std::uint64_t>(before.st_size);
  std::uint64_t const allocated = static_cast<std::uint64_t>(before.st_blocks) * 512;
  std::uint64_t const needed = bytes - std::min(bytes, allocated);
  if (needed == 0 && bytes <= old_size) return;
  // Asked first, so that a reservation that cannot succeed does not fill the disk of others for a
  // moment.
  std::uint64_t const free = free_bytes_of(fd_.get());
  if (needed > free) fail_to_reserve(path_, needed, free, ENOSPC);

  detail::FileSizeSignalBlocked const blocked;
  int const error = allocate(fd_.get(), old_size, bytes, alignment_);
  if (error == 0) return;
  // A failed reservation holds on to nothing.
  if (::ftruncate(fd_.get(), before.st_size) != 0)
    fail_with_errno("give back the space of", path_, errno, "Is the disk healthy?");
  fail_to_reserve(path_, needed, free, error);
}

void File::unlink() {
  if (::unlink(path_.c_str()) != 0)
    fail_with_errno("remove", path_, errno, "Did someone else remove it?");
}

void File::sync() const {
  if (::fsync(fd_.get()) != 0) fail_with_errno("sync", path_, errno, "Is the disk healthy?");
}

void File::drop_cache() const {
  if (!direct_ && ::fdatasync(fd_.get()) != 0)  // only clean pages can go
    fail_with_errno("sync", path_, errno, "Is the disk healthy?");
  int const error = ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (error != 0) fail_with_errno("drop the page cache of", path_, error, "Is the disk healthy?");
}

void sync_directory(std::filesystem::path const& directory) {
  Fd const fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) fail_with_errno("open directory", directory.string(), errno, "Is the path right?");
  // EINVAL: a file system that keeps its names durable by other means.
  if (::fsync(fd.get()) != 0 && errno != EINVAL)
    fail_with_errno("sync directory", directory.string(), errno, "Is the disk healthy?");
}

std::uint64_t free_bytes(std::filesystem::path const& directory) {
  struct statvfs status {};
  if (::statvfs(directory.c_str(), &status) != 0)
    fail_with_errno("ask for the free space of", directory.string(), errno, "Is the path right?");
  return static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
}

}  // namespace spillway::io
