// Checked integer arithmetic: narrowing, exact and rounded-up division, rounding to multiples.
#pragma once

#include <concepts>
#include <cstdint>

#include "lib/core/error.hpp"

namespace spillway {

template <std::integral To, std::integral From>
constexpr To narrow(From value, Where where = Where::here()) {
  auto const result = static_cast<To>(value);
  bool const same = static_cast<From>(result) == value && ((result < To{}) == (value < From{}));
  if (!same) expect(false, "a value fits its narrower type", where);
  return result;
}

template <std::integral Int>
constexpr Int div_ceil(Int value, Int divisor) {
  return (value + divisor - 1) / divisor;
}

template <std::integral Int>
constexpr Int div_exact(Int value, Int divisor, Where where = Where::here()) {
  if (value % divisor != 0) expect(false, "a division is exact", where);
  return value / divisor;
}

template <std::integral Int>
constexpr Int round_up(Int value, Int multiple) {
  return div_ceil(value, multiple) * multiple;
}

}  // namespace spillway
