#include "io/uring/alignment.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "io/uring/scratch.hpp"

namespace spillway::io::detail {

namespace {

constexpr std::uint32_t probed_alignment_min = 512;
constexpr std::uint32_t probed_alignment_max = 64 << 10;

// struct statx of Linux 6.1; the C library's headers may be older than the kernel that runs.
struct StatxWithDirectAlignment {
  std::uint32_t mask = 0;
  std::byte between[148] = {};
  std::uint32_t memory_alignment = 0;
  std::uint32_t offset_alignment = 0;
  std::byte behind[96] = {};
};
static_assert(offsetof(StatxWithDirectAlignment, memory_alignment) == 152);
static_assert(sizeof(StatxWithDirectAlignment) == 256);
constexpr unsigned statx_direct_alignment = 0x2000;

bool set_direct(int fd, bool on) {
  int const flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, on ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

/// Files in memory take O_DIRECT (tmpfs since Linux 6.6) but live in the page cache.
bool is_in_memory(int fd) {
  struct statfs status {};
  return ::fstatfs(fd, &status) == 0 &&
         (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC);
}

/// What the kernel says, 0 for "no direct transfers"; nothing where it says nothing.
std::optional<std::uint32_t> stated_alignment(int fd) {
  StatxWithDirectAlignment status;
  long const code = ::syscall(SYS_statx, fd, "", AT_EMPTY_PATH, statx_direct_alignment, &status);
  if (code != 0 || (status.mask & statx_direct_alignment) == 0) return std::nullopt;
  if (status.offset_alignment == 0) return 0;
  return std::bit_ceil(std::max(status.memory_alignment, status.offset_alignment));
}

/// Transfers one block of each size, at an address that is a multiple of this size and of no
/// greater one. An empty file is written to and emptied again, as reads from it succeed with any
/// alignment.
std::uint32_t probed_alignment(int fd, bool writable) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return 0;
  auto const memory = aligned_memory(2 * probed_alignment_max, 2 * probed_alignment_max);
  bool const writes = writable && status.st_size == 0;
  std::uint32_t const alignment = least_working_alignment([&](std::uint32_t size) {
    std::byte* const data = memory.get() + size;
    if (writes) return ::pwrite(fd, data, size, 0) == static_cast<ssize_t>(size);
    off_t const offset = status.st_size >= 2 * static_cast<off_t>(size) ? size : 0;
    return ::pread(fd, data, size, offset) >= 0;
  });
  if (writes && ::ftruncate(fd, 0) != 0) return 0;
  return alignment;
}

}  // namespace

std::uint32_t least_working_alignment(std::function<bool(std::uint32_t)> const& transfer) {
  for (std::uint32_t size = probed_alignment_min; size <= probed_alignment_max; size *= 2)
    if (transfer(size)) return size;
  return 0;
}

std::uint32_t turn_direct(int fd, bool writable) {
  if (is_in_memory(fd) || !set_direct(fd, true)) return 0;
  auto const stated = stated_alignment(fd);
  std::uint32_t const alignment = stated ? *stated : probed_alignment(fd, writable);
  if (alignment == 0) set_direct(fd, false);
  return alignment;
}

}  // namespace spillway::io::detail
