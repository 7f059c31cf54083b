// Hands out aligned pieces of a stream's scratch, and says what is missing where it is too small.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spillway::ops::detail {

inline constexpr std::size_t kScratchAlignment = 64;

/// Bytes that Scratch::take<T>(count) uses up.
template <class T>
constexpr std::size_t scratch_bytes(std::int64_t count) {
  return (static_cast<std::size_t>(count) * sizeof(T) + kScratchAlignment - 1) / kScratchAlignment *
         kScratchAlignment;
}

class Scratch {
 public:
  /// `needed` bytes in all; throws Fault::internal naming `operation` if `bytes` are fewer.
  Scratch(std::span<std::byte> bytes, std::size_t needed, std::string_view operation);

  /// The `index`th of equal parts of `part_bytes`.
  Scratch part(int index, std::size_t part_bytes) const {
    return Scratch(next_ + static_cast<std::size_t>(index) * part_bytes);
  }

  template <class T>
  T* take(std::int64_t count) {
    T* const start = reinterpret_cast<T*>(next_);
    next_ += scratch_bytes<T>(count);
    return start;
  }

 private:
  explicit Scratch(std::byte* start) : next_(start) {}

  std::byte* next_;
};

}  // namespace spillway::ops::detail
