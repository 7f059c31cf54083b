// Typed pointers into a gathered unit.
#pragma once

#include <cstdint>

#include "lib/model/decoder.hpp"

namespace spillway::model {

template <class T>
T const* weights_at(UnitView unit, std::int64_t offset) {
  return reinterpret_cast<T const*>(unit.weights) + offset;
}

inline float* gradient_at(UnitView unit, std::int64_t offset) { return unit.gradient + offset; }

}  // namespace spillway::model
