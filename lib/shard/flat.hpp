// Flats and shards: who owns which element range. Pure arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/core/strong.hpp"

namespace spillway::shard {

/// Tensors start at multiples of this many elements (64 bytes of bf16).
inline constexpr std::int64_t kTensorAlignment = 32;
/// Shards are multiples of this many elements, so that one byte an element still fills 4 KiB
/// blocks.
inline constexpr std::int64_t kShardQuantum = 4096;

/// A half-open range of elements.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t size() const { return end > begin ? end - begin : 0; }
  bool operator==(Range const&) const = default;
};

/// Common part; empty (begin == end) if there is none.
Range intersect(Range a, Range b);

/// A tensor's place in its flat.
struct Placed {
  std::string name;  // Hugging Face name
  std::vector<std::int64_t> shape;
  Range range;  // elements within the flat, padding excluded
  bool operator==(Placed const&) const = default;
};

/// Tensors of one unit laid end to end. The order and offsets do not depend on the number of ranks.
class FlatLayout {
 public:
  struct Tensor {
    std::string name;
    std::vector<std::int64_t> shape;
  };
  explicit FlatLayout(std::span<Tensor const> tensors);

  std::vector<Placed> const& tensors() const { return tensors_; }
  /// Place of a tensor by name; throws Fault::internal if it is not here.
  Placed const& find(std::string_view name) const;
  /// Elements with tensor padding, before the padding that makes shards equal.
  std::int64_t elements() const { return elements_; }
  /// Elements of one rank's shard among `ranks`: equal for all, a multiple of kShardQuantum.
  std::int64_t shard_elements(int ranks) const;
  /// Range of the padded flat that `rank` of `ranks` owns.
  Range shard_range(Rank rank, int ranks) const;

 private:
  std::vector<Placed> tensors_;
  std::int64_t elements_ = 0;
};

std::int64_t element_count(std::span<std::int64_t const> shape);

}  // namespace spillway::shard
