// A run of consecutive elements of an n-dimensional array as boxes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/shard/flat.hpp"

namespace spillway::io {

struct Box {
  std::vector<std::uint64_t> start;
  std::vector<std::uint64_t> extent;
  shard::Range elements;  // of the array in C order; a box is a run of them
};

/// Boxes that together hold exactly the elements of `run`, in order: at most 2n-1 for n dimensions.
std::vector<Box> boxes_of(std::span<std::int64_t const> shape, shard::Range run);

}  // namespace spillway::io
