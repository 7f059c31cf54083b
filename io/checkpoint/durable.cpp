#include "io/checkpoint/durable.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "io/checkpoint/checksum.hpp"
#include "io/file.hpp"
#include "lib/core/bytes.hpp"
#include "lib/core/error.hpp"
#include "lib/core/unique_handle.hpp"

namespace spillway::io {

namespace {

[[noreturn]] void fail_errno(std::string_view action, std::filesystem::path const& path, int code,
                             Where where = Where::here()) {
  bool const full = code == ENOSPC || code == EDQUOT || code == EFBIG;
  fail(full ? Fault::no_room : Fault::io,
       fmt::format("cannot {} '{}' ({})", action, path.string(), errno_text(code)), where);
}

Fd open_file(std::filesystem::path const& path, int flags) {
  int fd = -1;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) fail_errno("open", path, errno);
  return Fd(fd);
}

/// Fills `out` from `offset`; a file that ends before is bad input.
void read_at(int fd, std::filesystem::path const& path, std::uint64_t offset,
             std::span<std::byte> out) {
  while (!out.empty()) {
    ssize_t const got = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno("read", path, errno);
    if (got == 0)
      fail(Fault::bad_input,
           fmt::format("'{}' is cut off (it ends at byte {})", path.string(), offset));
    out = out.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

void write_at(int fd, std::filesystem::path const& path, std::uint64_t offset,
              std::span<std::byte const> bytes) {
  while (!bytes.empty()) {
    ssize_t const put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_errno("write", path, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
}

}  // namespace

void write_file(std::filesystem::path const& path, std::span<std::byte const> bytes) {
  check_file_limit(path, bytes.size());
  Fd fd = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
  write_at(fd.get(), path, 0, bytes);
  // NFS reports some failed writes only here.
  if (::close(fd.release()) != 0) fail_errno("close", path, errno);
}

void sync_file(std::filesystem::path const& path) {
  Fd const fd = open_file(path, O_RDONLY);
  if (::fsync(fd.get()) != 0) fail_errno("sync", path, errno);
}

std::vector<std::byte> read_file(std::filesystem::path const& path) {
  Fd const fd = open_file(path, O_RDONLY);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) fail_errno("look at", path, errno);
  if (!S_ISREG(status.st_mode))
    fail(Fault::bad_input, fmt::format("'{}' is not a regular file", path.string()));
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  read_at(fd.get(), path, 0, bytes);
  return bytes;
}

std::vector<std::byte> read_ranges(int fd, std::filesystem::path const& path,
                                   std::span<ByteRange const> ranges) {
  std::vector<std::byte> bytes;
  for (ByteRange range : ranges) {
    auto const at = bytes.size();
    bytes.resize(at + static_cast<std::size_t>(range.end - range.begin));
    read_at(fd, path, range.begin, std::span(bytes).subspan(at));
  }
  return bytes;
}

void write_ranges(std::filesystem::path const& path, std::span<ByteRange const> ranges,
                  std::span<std::byte const> bytes) {
  Fd const fd = open_file(path, O_WRONLY);
  for (ByteRange range : ranges) {
    auto const size = static_cast<std::size_t>(range.end - range.begin);
    write_at(fd.get(), path, range.begin, bytes.first(size));
    bytes = bytes.subspan(size);
  }
  if (::fsync(fd.get()) != 0) fail_errno("sync", path, errno);
}

std::uint64_t hash_ranges(std::filesystem::path const& path, std::span<ByteRange const> ranges) {
  Fd const fd = open_file(path, O_RDONLY);
  // No read-ahead: the bytes between the ranges are the bulk of the file.
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_RANDOM);
  std::vector<std::byte> buffer(256 << 10);
  Xxh3Stream hash;
  for (ByteRange range : ranges) {
    while (range.begin < range.end) {
      auto const piece = std::span(buffer).first(static_cast<std::size_t>(
          std::min<std::uint64_t>(buffer.size(), range.end - range.begin)));
      read_at(fd.get(), path, range.begin, piece);
      hash.update(piece);
      range.begin += piece.size();
    }
  }
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  return hash.digest();
}

void take_space(int fd, std::filesystem::path const& path, std::uint64_t bytes) {
  check_file_limit(path, bytes);
  // Looked at first, so that a save that cannot fit does not fill the disk of others for a moment.
  auto const free = free_bytes(path.parent_path());
  int code = bytes > free ? ENOSPC : 0;
  if (code == 0) {
    do code = ::fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
    while (code == EINTR);
  }
  if (code == 0) return;
  if (code == EOPNOTSUPP || code == ENOSYS) {  // the writes will take it; not twice by zeros before
    if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) fail_errno("extend", path, errno);
    return;
  }
  if (code != ENOSPC && code != EDQUOT && code != EFBIG)
    fail_errno("reserve space for", path, code);
  fail(Fault::no_room,
       fmt::format(
           "no room for '{}' ({}; {} needed, {} free). Free space, or keep fewer checkpoints?",
           path.string(), errno_text(code), format_bytes(bytes), format_bytes(free)));
}

void check_file_limit(std::filesystem::path const& path, std::uint64_t bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0)
    fail_errno("ask the file size limit for", path, errno);
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes) return;
  fail(Fault::no_room,
       fmt::format("no room for '{}' (the file size limit of this process is {}, {} needed). Raise "
                   "it with ulimit -f?",
                   path.string(), format_bytes(limit.rlim_cur), format_bytes(bytes)));
}

void rename_entry(std::filesystem::path const& from, std::filesystem::path const& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    fail_errno(fmt::format("rename '{}' to", from.string()), to, errno);
}

bool exchange_entries(std::filesystem::path const& one, std::filesystem::path const& other) {
  if (::renameat2(AT_FDCWD, one.c_str(), AT_FDCWD, other.c_str(), RENAME_EXCHANGE) == 0)
    return true;
  if (errno == EINVAL || errno == ENOSYS) return false;
  fail_errno(fmt::format("exchange '{}' with", one.string()), other, errno);
}

void remove_tree(std::filesystem::path const& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) fail_errno("remove", path, error.value());
}

}  // namespace spillway::io
