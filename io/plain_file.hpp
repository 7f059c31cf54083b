// Files of odd sizes and offsets: read and written through the page cache without filling it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "lib/core/unique_handle.hpp"

namespace spillway::io {

/// A regular file opened for reading at any offset, from any number of threads.
class PlainReader {
 public:
  /// Throws Fault::bad_input with path and reason for what cannot be opened or is no regular file.
  explicit PlainReader(std::filesystem::path path);

  std::string const& path() const noexcept { return path_; }
  std::uint64_t size() const noexcept { return size_; }
  /// Device and inode: the same file under two names has one identity.
  std::pair<std::uint64_t, std::uint64_t> identity() const noexcept { return identity_; }

  /// All of `out` or an Error with path and offset; a file that became shorter is an error.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  /// Takes a range, widened to whole pages, out of the page cache; bytes 0 means to the end.
  void drop_cache(std::uint64_t offset = 0, std::uint64_t bytes = 0) const noexcept;

 private:
  std::string path_;
  Fd fd_;
  std::uint64_t size_ = 0;
  std::pair<std::uint64_t, std::uint64_t> identity_;
};

/// Writes `path`.tmp from its start and gives it its name in commit(); without that nothing of it
/// stays.
class PlainWriter {
 public:
  /// Throws Fault::bad_input if another process is writing the same file.
  explicit PlainWriter(std::filesystem::path path);
  ~PlainWriter();
  PlainWriter(PlainWriter&& other) noexcept;
  PlainWriter& operator=(PlainWriter&&) = delete;

  std::filesystem::path const& path() const noexcept { return path_; }
  std::filesystem::path const& written_path() const noexcept { return temporary_; }
  std::uint64_t bytes() const noexcept { return end_; }

  void append(std::span<std::byte const> bytes);
  /// For headers that are known last; within what was appended.
  void overwrite(std::uint64_t offset, std::span<std::byte const> bytes);
  /// All bytes durable, still under the temporary name.
  void sync();
  /// sync, rename, sync of the directory.
  void commit();

 private:
  void write_at(std::uint64_t offset, std::span<std::byte const> bytes);
  void push_out();

  std::filesystem::path path_;
  std::filesystem::path temporary_;  // empty once committed or moved from
  Fd fd_;
  std::uint64_t end_ = 0;
  std::uint64_t pushed_ = 0;  // bytes before it are on their way to the disk
};

}  // namespace spillway::io
