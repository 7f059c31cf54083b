// Strong integers for values that must not be swapped in a call.
#pragma once

#include <compare>
#include <cstdint>

namespace spillway {

/// An integer of its own type: no implicit conversion in or out, ordered, hashable by get().
template <class Tag, class Rep>
class Strong {
 public:
  using rep = Rep;
  constexpr Strong() = default;
  constexpr explicit Strong(Rep value) : value_(value) {}
  constexpr Rep get() const { return value_; }
  constexpr auto operator<=>(Strong const&) const = default;

 private:
  Rep value_{};
};

using Rank = Strong<struct RankTag, int>;
using UnitId = Strong<struct UnitTag, int>;                      // index into ModelSpec::units
using Step = Strong<struct StepTag, std::int64_t>;               // optimizer step, the first is 1
using FileOffset = Strong<struct FileOffsetTag, std::uint64_t>;  // bytes from the start of a file

}  // namespace spillway
