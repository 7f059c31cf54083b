// Operands of bf16 products as tiles of 16 x 16 pairs, the form that AMX and AVX512_BF16 multiply.
// A pair is two elements that follow each other in k. A left tile has rows of A and its pairs run
// along a row; a right tile has a row for each pair, and columns of B run along it.
#pragma once

#include <cstdint>

#include "lib/core/dtype.hpp"

namespace spillway::ops::detail {

inline constexpr std::int64_t kPairTileRows = 16;
inline constexpr std::int64_t kPairTileK = 32;
inline constexpr std::int64_t kPairTileElements = 512;  // 1 KiB
/// Two tiles side by side are a strip (of rows) or a panel (of columns).
inline constexpr std::int64_t kStripRows = 2 * kPairTileRows;

/// Part of a matrix as it is stored. `lines` are rows of A or columns of B; they are
/// contiguous in k unless `k_major`, where the elements of one k lie beside each other.
template <class T>
struct PackSourceOf {
  T const* data;
  std::int64_t stride;
  bool k_major;
  T const* at(std::int64_t line, std::int64_t k) const {
    return data + (k_major ? k * stride + line : line * stride + k);
  }
};
using PackSource = PackSourceOf<bf16>;

/// Lines and steps of k that a call packs. What a tile has beyond them is filled with zeros.
struct PackRange {
  std::int64_t line, lines, k, steps;
};

/// Elements that packed lines take.
constexpr std::int64_t packed_elements(std::int64_t lines, std::int64_t steps) {
  return (lines + kStripRows - 1) / kStripRows * kStripRows *
         ((steps + kPairTileK - 1) / kPairTileK * kPairTileK);
}

/// Rounds `rows` rows of 32 sums, plus a bias that may be null; strides in elements. Needs
/// AVX512_BF16; subnormal numbers become 0.
struct RoundedBlock {
  float const* sums;
  std::int64_t sums_stride;
  float const* bias;
  bf16* result;
  std::int64_t result_stride, rows;
};
void round_block(RoundedBlock const& block);

/// 16 x 16 elements of 4 bytes with rows and columns exchanged, to a tile of whole rows of 64
/// bytes. Needs AVX-512.
void transpose_words(float const* from, std::int64_t stride, float* tile);

/// Strip after strip; in a strip, for each 32 of k, the tiles of its two halves. Needs AVX-512 BW.
void pack_left(PackSource const& source, PackRange const& range, bf16* strips);
/// The same for panels of columns.
void pack_right(PackSource const& source, PackRange const& range, bf16* panels);

/// Where the three bf16 parts of fp32 numbers go, `part` elements apart; `room` has
/// split_room(steps) elements.
struct PackedParts {
  bf16* first;
  std::int64_t part;
  bf16* room;
};
constexpr std::int64_t split_room(std::int64_t steps) {
  return 3 * packed_elements(kStripRows, steps);
}
void pack_left(PackSourceOf<float> const& source, PackRange const& range,
               PackedParts const& strips);
void pack_right(PackSourceOf<float> const& source, PackRange const& range,
                PackedParts const& panels);

}  // namespace spillway::ops::detail
