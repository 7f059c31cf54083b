// A file for direct transfers: no page cache where the file system permits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "lib/core/strong.hpp"
#include "lib/core/unique_handle.hpp"

namespace spillway::io {

enum class Access { read, write_new, read_write };

/// Opened with O_DIRECT where that works (alignment by statx DIOALIGN, else probed), else buffered,
/// in which case drop_cache() keeps the page cache small. All errors carry path and errno.
class File {
 public:
  /// write_new: creates, fails if it exists. read_write: opens or creates.
  File(std::filesystem::path path, Access access);

  int fd() const noexcept { return fd_.get(); }
  std::string const& path() const noexcept { return path_; }
  /// Power of two that offsets, sizes and addresses must be multiples of; 1 when buffered.
  std::uint32_t alignment() const noexcept { return alignment_; }
  bool direct() const noexcept { return direct_; }

  std::uint64_t size() const;
  /// Reserves space now: fallocate, or zeros written once where that is refused. Throws
  /// Fault::no_room with needed and free bytes.
  void reserve(std::uint64_t bytes);
  /// Removes the name; the space lives until the handle closes.
  void unlink();
  void sync() const;        // fsync, checked
  void drop_cache() const;  // POSIX_FADV_DONTNEED; only of use when buffered

 private:
  std::string path_;
  Fd fd_;
  std::uint32_t alignment_ = 1;
  bool direct_ = false;
};

/// fsync of a directory, so that names in it are durable.
void sync_directory(std::filesystem::path const& directory);

/// Free bytes for this user in the file system of `directory`.
std::uint64_t free_bytes(std::filesystem::path const& directory);

}  // namespace spillway::io
