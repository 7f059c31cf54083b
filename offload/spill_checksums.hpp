// XXH3 of what was spilled, kept in memory and compared when it comes back.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace spillway::offload {

/// Parts of a tile that are written and read together: the weight alone, the rest of what an update
/// writes, the gradient.
enum class SpillPart : std::uint8_t { hi, rest, grad };

/// One tile's parts are set and checked by one thread at a time; different tiles by different
/// threads.
class SpillChecksums {
 public:
  SpillChecksums(bool enabled, std::size_t tiles) : sums_(enabled ? tiles : 0) {}

  void set(int tile, SpillPart part, std::span<std::byte const> bytes);
  /// Throws Fault::io naming file and offset if the bytes are not those that were set.
  void check(int tile, SpillPart part, std::span<std::byte const> bytes, std::string const& file,
             std::uint64_t offset) const;
  static std::size_t memory_bytes(bool enabled, std::size_t tiles) {
    return enabled ? tiles * sizeof(Entry) : 0;
  }

 private:
  struct Entry {
    std::array<std::uint64_t, 3> sums{};
  };
  std::vector<Entry> sums_;
};

}  // namespace spillway::offload
