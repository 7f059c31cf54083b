#include "lib/shard/flat.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::shard {

Range intersect(Range a, Range b) {
  std::int64_t const begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

std::int64_t element_count(std::span<std::int64_t const> shape) {
  std::int64_t count = 1;
  for (std::int64_t extent : shape) count *= extent;
  return count;
}

FlatLayout::FlatLayout(std::span<Tensor const> tensors) {
  for (auto const& tensor : tensors) {
    std::int64_t const count = element_count(tensor.shape);
    tensors_.push_back({tensor.name, tensor.shape, {elements_, elements_ + count}});
    elements_ = round_up(elements_ + count, kTensorAlignment);
  }
}

Placed const& FlatLayout::find(std::string_view name) const {
  for (auto const& tensor : tensors_)
    if (tensor.name == name) return tensor;
  fail(Fault::internal, fmt::format("tensor '{}' is not in this unit", name));
}

std::int64_t FlatLayout::shard_elements(int ranks) const {
  return round_up(div_ceil<std::int64_t>(elements_, ranks), kShardQuantum);
}

Range FlatLayout::shard_range(Rank rank, int ranks) const {
  std::int64_t const part = shard_elements(ranks);
  return {rank.get() * part, (rank.get() + 1) * part};
}

}  // namespace spillway::shard
