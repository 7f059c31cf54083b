// Cuts a long range into pieces of bounded length, for calls that count in 32 bits and for staging.
#pragma once

#include <cstdint>

namespace spillway::comm {

struct Chunk {
  std::uint64_t offset;
  std::uint64_t size;
};

/// The chunks of [0, total), each of `most` elements but the last, in order. `most` is at least 1.
class Chunks {
 public:
  constexpr Chunks(std::uint64_t total, std::uint64_t most) : total_(total), most_(most) {}

  constexpr std::uint64_t count() const { return total_ / most_ + (total_ % most_ != 0 ? 1 : 0); }
  constexpr Chunk operator[](std::uint64_t index) const {
    std::uint64_t const offset = index * most_;
    std::uint64_t const left = total_ - offset;
    return {offset, left < most_ ? left : most_};
  }

 private:
  std::uint64_t total_;
  std::uint64_t most_;
};

/// The largest message given to MPI: its counts are ints, and one GiB of bytes is far from their
/// end.
inline constexpr std::uint64_t message_bytes_max = std::uint64_t{1} << 30;

}  // namespace spillway::comm
