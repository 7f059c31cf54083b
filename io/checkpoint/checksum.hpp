// XXH3 of bytes, whole or piece by piece.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace spillway::io {

std::uint64_t xxh3(std::span<std::byte const> bytes);

/// The 16 hexadecimal digits that xxhsum prints.
std::string hex(std::uint64_t hash);
/// The opposite of hex; throws Fault::bad_input.
std::uint64_t parse_hex(std::string const& digits);

/// The 32 digits of XXH128.
std::string xxh128_hex(std::span<std::byte const> bytes);

/// XXH3 of bytes that come in pieces.
class Xxh3Stream {
 public:
  Xxh3Stream();
  ~Xxh3Stream();
  void update(std::span<std::byte const> bytes);
  std::uint64_t digest() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::io
