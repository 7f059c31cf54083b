// Cuts typed arrays out of one block of bytes, or only counts what they would take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::model {

/// Arrays start at multiples of 64 bytes from the block's start. The same calls give the same
/// places, so a size is found by carving from nothing. `rewind` gives back everything after a mark;
/// `peak` is the most that was in use.
class Carver {
 public:
  Carver() = default;  // counts only: arrays are null
  explicit Carver(std::span<std::byte> block) : block_(block), counts_only_(false) {}

  template <class Element>
  Element* take(std::int64_t count) {
    std::size_t const begin = used_;
    used_ = round_up(begin + static_cast<std::size_t>(count) * sizeof(Element), kAlignment);
    if (used_ > peak_) peak_ = used_;
    if (counts_only_) return nullptr;
    expect(used_ <= block_.size(), "a workspace is large enough");
    return reinterpret_cast<Element*>(block_.data() + begin);
  }
  bool has_room(std::size_t bytes) const {
    return !counts_only_ && round_up(used_, kAlignment) + bytes <= block_.size();
  }
  std::size_t mark() const { return used_; }
  void rewind(std::size_t mark) { used_ = mark; }
  std::size_t peak() const { return peak_; }

 private:
  static constexpr std::size_t kAlignment = 64;
  std::span<std::byte> block_;
  bool counts_only_ = true;
  std::size_t used_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace spillway::model
