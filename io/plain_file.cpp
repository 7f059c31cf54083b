#include "io/plain_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "lib/core/error.hpp"

namespace spillway::io {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kDirtyWindow = 16u
                                       << 20;  // bytes written before the kernel is told to write

[[noreturn]] void fail_errno(std::string_view what, std::string const& path, int code) {
  bool const full = code == ENOSPC || code == EDQUOT;
  fail(full ? Fault::no_room : Fault::io,
       fmt::format("{} {}: {}.{}", what, path, errno_text(code), full ? " Free space there?" : ""));
}

void sync_parent(std::filesystem::path const& path) {
  std::filesystem::path const parent = path.has_parent_path() ? path.parent_path() : ".";
  Fd const directory(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) fail_errno("cannot open the directory", parent.string(), errno);
  // Some network file systems refuse to sync a directory; their renames are durable by themselves.
  if (::fsync(directory.get()) != 0 && errno != EINVAL && errno != ENOTSUP)
    fail_errno("cannot sync the directory", parent.string(), errno);
}

}  // namespace

PlainReader::PlainReader(std::filesystem::path path) : path_(path.string()) {
  fd_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd_) fail(Fault::bad_input, fmt::format("cannot open {}: {}", path_, errno_text(errno)));
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) fail_errno("cannot stat", path_, errno);
  if (!S_ISREG(status.st_mode))
    fail(Fault::bad_input, fmt::format("{} is no regular file{}", path_,
                                       S_ISDIR(status.st_mode) ? " (it is a directory)" : ""));
  size_ = static_cast<std::uint64_t>(status.st_size);
  identity_ = {status.st_dev, status.st_ino};
}

void PlainReader::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    ssize_t const got = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      fail_errno(fmt::format("cannot read {} bytes at offset {} of", out.size(), offset), path_,
                 errno);
    if (got == 0)
      fail(Fault::io,
           fmt::format("{} ends at byte {} ({} bytes more were there when it was opened). "
                       "Is another program changing it?",
                       path_, offset, out.size()));
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

void PlainReader::drop_cache(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  std::uint64_t const begin =
      offset / kPage * kPage;  // the kernel keeps pages that are covered in part
  std::uint64_t const end = bytes == 0 ? begin : (offset + bytes + kPage - 1) / kPage * kPage;
  // Advice: a file system that does not take it only keeps more in memory than it must.
  static_cast<void>(::posix_fadvise(fd_.get(), static_cast<off_t>(begin),
                                    static_cast<off_t>(end - begin), POSIX_FADV_DONTNEED));
}

PlainWriter::PlainWriter(std::filesystem::path path)
    : path_(std::move(path)), temporary_(path_.string() + ".tmp") {
  fd_.reset(::open(temporary_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd_) {
    int const code = errno;
    std::string const name = std::exchange(temporary_, {}).string();
    fail_errno("cannot create", name, code);
  }
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    fail(Fault::bad_input,
         fmt::format("{} is being written by another process. Another output path?",
                     std::exchange(temporary_, {}).string()));
  if (::ftruncate(fd_.get(), 0) != 0) fail_errno("cannot truncate", temporary_.string(), errno);
}

PlainWriter::PlainWriter(PlainWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::move(other.fd_)),
      end_(other.end_),
      pushed_(other.pushed_) {}

PlainWriter::~PlainWriter() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void PlainWriter::append(std::span<std::byte const> bytes) {
  write_at(end_, bytes);
  end_ += bytes.size();
  if (end_ - pushed_ >= kDirtyWindow) push_out();
}

void PlainWriter::overwrite(std::uint64_t offset, std::span<std::byte const> bytes) {
  expect(offset + bytes.size() <= end_, "only bytes that were appended are overwritten");
  write_at(offset, bytes);
}

void PlainWriter::write_at(std::uint64_t offset, std::span<std::byte const> bytes) {
  while (!bytes.empty()) {
    ssize_t const put = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0)
      fail_errno(fmt::format("cannot write {} bytes at offset {} of", bytes.size(), offset),
                 temporary_.string(), errno);
    offset += static_cast<std::uint64_t>(put);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

// Keeps at most two windows dirty or cached: waits for the one before, starts this one.
void PlainWriter::push_out() {
  auto const done = static_cast<off_t>(pushed_);
  auto const size = static_cast<off_t>(end_ - pushed_);
  off_t const before = std::min<off_t>(done, kDirtyWindow);
  unsigned const wait =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  // A write error is reported once, so what these calls return would be lost for the fsync after
  // them.
  bool failed = before > 0 && ::sync_file_range(fd_.get(), done - before, before, wait) != 0;
  failed = failed || ::sync_file_range(fd_.get(), done, size, SYNC_FILE_RANGE_WRITE) != 0;
  if (failed && (errno == EIO || errno == ENOSPC || errno == EDQUOT))
    fail_errno("cannot write back", temporary_.string(), errno);
  static_cast<void>(::posix_fadvise(fd_.get(), 0, done, POSIX_FADV_DONTNEED));
  pushed_ = end_;
}

void PlainWriter::sync() {
  if (::fsync(fd_.get()) != 0) fail_errno("cannot sync", temporary_.string(), errno);
  static_cast<void>(::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED));
}

void PlainWriter::commit() {
  sync();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail_errno(fmt::format("cannot rename {} to", temporary_.string()), path_.string(), errno);
  temporary_.clear();
  sync_parent(path_);
}

}  // namespace spillway::io
