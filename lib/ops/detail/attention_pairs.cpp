#include "lib/ops/detail/attention_pairs.hpp"

#include <immintrin.h>

#include <limits>

#include "lib/ops/detail/isa.hpp"
#include "lib/ops/detail/store.hpp"

namespace spillway::ops::detail {
namespace {

constexpr std::int64_t kQ = kPairQueries;

// Words 0-15 are of the first row, 16-31 of the second: they alternate in pairs.
struct AlternateOrder {
  std::uint16_t word[32];
  constexpr AlternateOrder() : word() {
    for (int i = 0; i < 32; ++i) word[i] = static_cast<std::uint16_t>(i / 2 + 16 * (i % 2));
  }
};
alignas(64) constexpr AlternateOrder kAlternateOrder;

}  // namespace

void multiply_pairs(TileUnit unit, PairProduct const& p) {
  TileBlock block;
  block.steps = p.steps;
  block.c_stride = p.c_stride;
  block.accumulate = p.accumulate;
  for (std::int64_t strip = 0; strip < p.strips; ++strip)
    for (std::int64_t panel = 0; panel < p.panels; ++panel) {
      block.strip = p.left + strip * p.strip_steps * 2 * kPairTileElements;
      block.panel = p.right + panel * p.panel_steps * 2 * kPairTileElements;
      block.c = p.c + strip * kStripRows * p.c_stride + panel * kStripRows;
      multiply_block(unit, block);
    }
}

void hide_scores(PairScores const& scores, std::int64_t window) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  constexpr std::int32_t kNoLimit = std::numeric_limits<std::int32_t>::max();
  std::int32_t const limit =
      window > 0 && window < kNoLimit ? static_cast<std::int32_t>(window) : kNoLimit;
  bool const all_before = scores.first_key + scores.keys - 1 <= scores.first_query;
  if (all_before && scores.first_query + kQ - 1 - scores.first_key < limit) return;
  run_on(Isa::avx512, [&scores, limit](auto) {
    for (std::int64_t j = 0; j < scores.keys; ++j) {
      float* const row = scores.data + j * kQ;
      std::int64_t const key = scores.first_key + j;
      bool const seen_by_all =
          key <= scores.first_query && scores.first_query + kQ - 1 - key < limit;
      if (seen_by_all) continue;
      auto const distance = static_cast<std::int32_t>(scores.first_query - scores.first_key - j);
#pragma omp simd
      for (std::int32_t q = 0; q < kQ; ++q) {
        bool const seen = distance + q >= 0 && distance + q < limit;
        row[q] = seen ? row[q] : kHidden;
      }
    }
  });
}

[[gnu::target("avx512f,avx512bw,avx512bf16")]] void join_keys(float const* values,
                                                              std::int64_t keys, bf16* panels) {
  __m512i const order = _mm512_load_si512(kAlternateOrder.word);
  std::int64_t const panel = keys * kStripRows;
  for (std::int64_t key = 0; key < keys; key += 2) {
    float const* const even = values + key * kQ;
    bf16* const row =
        panels + key / kPairTileK * 2 * kPairTileElements + key % kPairTileK / 2 * kPairTileK;
    for (std::int64_t q = 0; q < kQ; q += 16) {
      auto const both = reinterpret_cast<__m512i>(
          _mm512_cvtne2ps_pbh(_mm512_load_ps(even + kQ + q), _mm512_load_ps(even + q)));
      _mm512_store_si512(row + q / kStripRows * panel + q % kStripRows / 16 * kPairTileElements,
                         _mm512_permutexvar_epi16(order, both));
    }
  }
}

[[gnu::target("avx512f,avx512bw,avx512bf16")]] void round_keys(float const* values,
                                                               std::int64_t keys, bf16* strips) {
  for (std::int64_t key = 0; key < keys; ++key) {
    bf16* const row = strips + key / kStripRows * kStripRows * kQ +
                      key % kStripRows / kPairTileRows * kPairTileElements +
                      key % kPairTileRows * kPairTileK;
    for (std::int64_t q = 0; q < kQ; q += kPairTileK) {
      float const* const from = values + key * kQ + q;
      _mm512_store_si512(row + q / kPairTileK * 2 * kPairTileElements,
                         reinterpret_cast<__m512i>(
                             _mm512_cvtne2ps_pbh(_mm512_load_ps(from + 16), _mm512_load_ps(from))));
    }
  }
}

void store_transposed(float const* values, float const* factor, HeadRows<bf16> const& target) {
  alignas(64) float tile[16 * 16];
  for (std::int64_t d = 0; d < target.head_dim; d += 16)
    for (std::int64_t q = 0; q < target.rows; q += 16) {
      transpose_words(values + d * kQ + q, kQ, tile);
      std::int64_t const width = std::min<std::int64_t>(16, target.head_dim - d);
      std::int64_t const rows = std::min<std::int64_t>(16, target.rows - q);
      run_on(Isa::avx512, [&](auto) {
        for (std::int64_t r = 0; r < rows; ++r) {
          bf16* const to = target.data + (q + r) * target.stride + d;
          float const times = factor[q + r];
#pragma omp simd
          for (std::int64_t i = 0; i < width; ++i) store(to[i], tile[r * 16 + i] * times);
        }
      });
    }
}

}  // namespace spillway::ops::detail
