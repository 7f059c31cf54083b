// Small files and names, written and read with every result checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "io/checkpoint/manifest.hpp"

namespace spillway::io {

/// Creates or replaces a file; not yet durable.
void write_file(std::filesystem::path const& path, std::span<std::byte const> bytes);
void sync_file(std::filesystem::path const& path);
std::vector<std::byte> read_file(std::filesystem::path const& path);

/// Bytes of the given ranges of an open file, one after another.
std::vector<std::byte> read_ranges(int fd, std::filesystem::path const& path,
                                   std::span<ByteRange const> ranges);
/// Puts `bytes` into the given ranges of an existing file, one after another; durable on return.
void write_ranges(std::filesystem::path const& path, std::span<ByteRange const> ranges,
                  std::span<std::byte const> bytes);

/// Hash of the given ranges of a file, one after another; leaves nothing in the page cache.
std::uint64_t hash_ranges(std::filesystem::path const& path, std::span<ByteRange const> ranges);

/// Gives an open file `bytes` bytes and takes their blocks now. Where the file system cannot
/// promise that, looks at its free space instead. Throws Fault::no_room with needed and free bytes.
void take_space(int fd, std::filesystem::path const& path, std::uint64_t bytes);

/// Throws Fault::no_room if this process may not write a file of so many bytes (ulimit -f), which
/// would end it by signal.
void check_file_limit(std::filesystem::path const& path, std::uint64_t bytes);

void rename_entry(std::filesystem::path const& from, std::filesystem::path const& to);
/// Lets two directories swap names in one instant; false where the file system cannot.
bool exchange_entries(std::filesystem::path const& one, std::filesystem::path const& other);
void remove_tree(std::filesystem::path const& path);

}  // namespace spillway::io
