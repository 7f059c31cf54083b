// Packing with AVX-512. Four cases: pairs are read as they lie (lines contiguous in k) or made from
// two neighbouring k; then they stay in their rows or are transposed, 16 x 16 at a time.
#include "lib/ops/detail/tile_pack.hpp"

#include <immintrin.h>

#include <algorithm>

#include "lib/core/numeric.hpp"
#include "lib/ops/detail/isa.hpp"

namespace spillway::ops::detail {
namespace {

// The bits of the first `count` of 32 elements or 16 pairs.
std::uint32_t first_bits(std::int64_t count) {
  return count >= 32 ? ~std::uint32_t{0} : (std::uint32_t{1} << count) - 1;
}

// 16 lines of up to 32 k, contiguous in k, to a left tile.
[[gnu::target("avx512f,avx512bw")]] void copy_tile(bf16 const* from, std::int64_t stride,
                                                   std::int64_t lines, std::int64_t steps,
                                                   bf16* tile) {
  __mmask32 const mask = first_bits(steps);
  for (std::int64_t line = 0; line < kPairTileRows; ++line) {
    __m512i const row = line < lines ? _mm512_maskz_loadu_epi16(mask, from + line * stride)
                                     : _mm512_setzero_si512();
    _mm512_store_si512(tile + line * kPairTileK, row);
  }
}

// Four vectors of four lanes: the 4 x 4 pairs of each lane transposed, to rows of the tile.
[[gnu::target("avx512f"), gnu::always_inline]] inline void store_lanes(__m512i const (&z)[4],
                                                                       bf16* rows) {
  __m512i const low01 = _mm512_unpacklo_epi32(z[0], z[1]);
  __m512i const low23 = _mm512_unpacklo_epi32(z[2], z[3]);
  __m512i const high01 = _mm512_unpackhi_epi32(z[0], z[1]);
  __m512i const high23 = _mm512_unpackhi_epi32(z[2], z[3]);
  _mm512_store_si512(rows, _mm512_unpacklo_epi64(low01, low23));
  _mm512_store_si512(rows + kPairTileK, _mm512_unpackhi_epi64(low01, low23));
  _mm512_store_si512(rows + 2 * kPairTileK, _mm512_unpacklo_epi64(high01, high23));
  _mm512_store_si512(rows + 3 * kPairTileK, _mm512_unpackhi_epi64(high01, high23));
}

__m128i four_pairs(bf16 const* from) {
  return _mm_loadu_si128(reinterpret_cast<__m128i const*>(from));
}

// 16 whole rows of 16 pairs to a tile with rows and columns exchanged. Lane L of the vectors that
// are transposed within their lanes holds row 4 L + r; the loads place it there.
[[gnu::target("avx512f")]] void transpose_tile(bf16 const* from, std::int64_t stride, bf16* tile) {
  for (int group = 0; group < 4; ++group) {
    __m512i z[4];
    for (int r = 0; r < 4; ++r) {
      bf16 const* const row = from + r * stride + 8 * group;
      z[r] = _mm512_castsi128_si512(four_pairs(row));
      z[r] = _mm512_mask_broadcast_i32x4(z[r], 0x00f0, four_pairs(row + 4 * stride));
      z[r] = _mm512_mask_broadcast_i32x4(z[r], 0x0f00, four_pairs(row + 8 * stride));
      z[r] = _mm512_mask_broadcast_i32x4(z[r], 0xf000, four_pairs(row + 12 * stride));
    }
    store_lanes(z, tile + 4 * group * kPairTileK);
  }
}

// Where a word of two rows goes when they are joined to pairs: from the second row if odd.
struct JoinOrder {
  std::uint16_t first[32], second[32];  // of the pairs 0-15 and 16-31
  constexpr JoinOrder() : first(), second() {
    for (int i = 0; i < 32; ++i) {
      first[i] = static_cast<std::uint16_t>(i / 2 + 32 * (i % 2));
      second[i] = static_cast<std::uint16_t>(first[i] + 16);
    }
  }
};
alignas(64) constexpr JoinOrder kJoinOrder;

// Elements of k and of k + 1 (null: zeros) of `lines` lines that lie beside each other, to a row of
// pairs in the tiles of strip after strip, which are `strip_elements` apart.
[[gnu::target("avx512f,avx512bw")]] void join_rows(bf16 const* even, bf16 const* odd,
                                                   std::int64_t lines, bf16* row,
                                                   std::int64_t strip_elements) {
  __m512i const first = _mm512_load_si512(kJoinOrder.first);
  __m512i const second = _mm512_load_si512(kJoinOrder.second);
  for (std::int64_t line = 0; line < lines; line += kStripRows, row += strip_elements) {
    __mmask32 const mask = first_bits(lines - line);
    // A mask of zeros reads nothing, whatever the address.
    __m512i const a = _mm512_maskz_loadu_epi16(even == nullptr ? 0 : mask, even + line);
    __m512i const b = _mm512_maskz_loadu_epi16(odd == nullptr ? 0 : mask, odd + line);
    _mm512_store_si512(row, _mm512_permutex2var_epi16(a, first, b));
    _mm512_store_si512(row + kPairTileElements, _mm512_permutex2var_epi16(a, second, b));
  }
}

std::int64_t tiles_of(std::int64_t steps) { return (steps + kPairTileK - 1) / kPairTileK; }

// Lines that are contiguous in k: tile by tile, by copying or transposing.
void pack_lines(PackSource const& source, PackRange const& range, bool transposed, bf16* target) {
  std::int64_t const k_tiles = tiles_of(range.steps);
  for (std::int64_t line = 0; line < round_up(range.lines, kStripRows); line += kPairTileRows) {
    std::int64_t const lines = std::clamp<std::int64_t>(range.lines - line, 0, kPairTileRows);
    bf16* tile = target + line / kStripRows * k_tiles * 2 * kPairTileElements +
                 line / kPairTileRows % 2 * kPairTileElements;
    for (std::int64_t k = 0; k < range.steps; k += kPairTileK, tile += 2 * kPairTileElements) {
      std::int64_t const steps = std::min(range.steps - k, kPairTileK);
      bf16 const* const from = lines == 0 ? source.data : source.at(range.line + line, range.k + k);
      if (!transposed) {
        copy_tile(from, source.stride, lines, steps, tile);
      } else if (lines == kPairTileRows && steps == kPairTileK) {
        transpose_tile(from, source.stride, tile);
      } else {
        alignas(64) bf16 whole[kPairTileElements];
        copy_tile(from, source.stride, lines, steps, whole);
        transpose_tile(whole, kPairTileK, tile);
      }
    }
  }
}

void transpose_in_place(bf16* tile) {
  alignas(64) bf16 copy[kPairTileElements];
  std::copy_n(tile, kPairTileElements, copy);
  transpose_tile(copy, kPairTileK, tile);
}

// Elements of one k beside each other: two rows of memory at a time, in the order of memory.
void pack_rows(PackSource const& source, PackRange const& range, bool transposed, bf16* target) {
  std::int64_t const strip_elements = tiles_of(range.steps) * 2 * kPairTileElements;
  for (std::int64_t k = 0; k < range.steps; k += kPairTileK, target += 2 * kPairTileElements) {
    for (std::int64_t pair = 0; pair < kPairTileRows; ++pair) {
      std::int64_t const at = k + 2 * pair;
      join_rows(at < range.steps ? source.at(range.line, range.k + at) : nullptr,
                at + 1 < range.steps ? source.at(range.line, range.k + at + 1) : nullptr,
                range.lines, target + pair * kPairTileK, strip_elements);
    }
    if (!transposed) continue;
    for (std::int64_t line = 0; line < range.lines; line += kStripRows) {
      bf16* const strip = target + line / kStripRows * strip_elements;
      transpose_in_place(strip);
      transpose_in_place(strip + kPairTileElements);
    }
  }
}

}  // namespace

[[gnu::target("avx512f,avx512bw,avx512bf16")]] void round_block(RoundedBlock const& block) {
  bool const biased = block.bias != nullptr;
  __m512 const low = biased ? _mm512_loadu_ps(block.bias) : _mm512_setzero_ps();
  __m512 const high = biased ? _mm512_loadu_ps(block.bias + 16) : _mm512_setzero_ps();
  for (std::int64_t row = 0; row < block.rows; ++row) {
    float const* const sums = block.sums + row * block.sums_stride;
    __m512 const a = _mm512_loadu_ps(sums), b = _mm512_loadu_ps(sums + 16);
    // -0 + 0 would be +0.
    auto const both = biased ? _mm512_cvtne2ps_pbh(_mm512_add_ps(b, high), _mm512_add_ps(a, low))
                             : _mm512_cvtne2ps_pbh(b, a);
    _mm512_storeu_si512(block.result + row * block.result_stride, reinterpret_cast<__m512i>(both));
  }
}

void transpose_words(float const* from, std::int64_t stride, float* tile) {
  transpose_tile(reinterpret_cast<bf16 const*>(from), 2 * stride, reinterpret_cast<bf16*>(tile));
}

void pack_left(PackSource const& source, PackRange const& range, bf16* strips) {
  source.k_major ? pack_rows(source, range, true, strips)
                 : pack_lines(source, range, false, strips);
}

void pack_right(PackSource const& source, PackRange const& range, bf16* panels) {
  source.k_major ? pack_rows(source, range, false, panels)
                 : pack_lines(source, range, true, panels);
}

namespace {

std::uint16_t upper_bits(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}
float cut(float value) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffff0000u);
}

// A strip's numbers as three matrices of bf16, laid out as they were.
void split_strip(PackSourceOf<float> const& source, PackRange const& strip, bf16* room,
                 std::int64_t matrix) {
  std::int64_t const rows = source.k_major ? strip.steps : strip.lines;
  std::int64_t const width = source.k_major ? strip.lines : strip.steps;
  float const* const first = source.at(strip.line, strip.k);
  run_on(Isa::avx512, [&, rows, width, first, room, matrix](auto) {
    for (std::int64_t row = 0; row < rows; ++row) {
      float const* const from = first + row * source.stride;
      bf16* const high = room + row * width;
      bf16* const middle = high + matrix;
      bf16* const low = middle + matrix;
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i) {
        // Cut and not rounded: 24 bits of a number are three times 8 all the same.
        float const upper = cut(from[i]);
        float const rest = from[i] - upper;
        float const middle_part = cut(rest);
        high[i].bits = upper_bits(upper);
        middle[i].bits = upper_bits(middle_part);
        low[i].bits = upper_bits(rest - middle_part);
      }
    }
  });
}

template <class Pack>
void pack_parts(PackSourceOf<float> const& source, PackRange const& range, PackedParts const& to,
                Pack const& pack) {
  std::int64_t const matrix = split_room(range.steps) / 3;
  for (std::int64_t line = 0; line < range.lines; line += kStripRows) {
    PackRange const strip{range.line + line, std::min(kStripRows, range.lines - line), range.k,
                          range.steps};
    split_strip(source, strip, to.room, matrix);
    for (std::int64_t part = 0; part < 3; ++part)
      pack({to.room + part * matrix, source.k_major ? strip.lines : strip.steps, source.k_major},
           {0, strip.lines, 0, strip.steps},
           to.first + part * to.part + packed_elements(line, range.steps));
  }
}

}  // namespace

void pack_left(PackSourceOf<float> const& source, PackRange const& range,
               PackedParts const& strips) {
  pack_parts(source, range, strips, [](PackSource const& from, PackRange const& all, bf16* to) {
    pack_left(from, all, to);
  });
}

void pack_right(PackSourceOf<float> const& source, PackRange const& range,
                PackedParts const& panels) {
  pack_parts(source, range, panels, [](PackSource const& from, PackRange const& all, bf16* to) {
    pack_right(from, all, to);
  });
}

}  // namespace spillway::ops::detail
