// Product of tiles that lie in cache, in fp32, for the inner loops of attention.
#pragma once

#include <cstdint>
#include <cstring>

#include "lib/ops/detail/isa.hpp"

namespace spillway::ops::detail {

/// Rows of a register block: 6 rows of 2 vectors, and what a step loads, fit 16 registers.
inline constexpr int kTileRows = 6;
/// Columns of every tile are a multiple of this: the widest vector.
inline constexpr int kTileColumns = 16;

template <Isa I>
inline constexpr int kVectorFloats = I == Isa::avx512 ? 16
                                     : I == Isa::avx2 ? 8
                                                      : 4;

/// c[M,N] = (c +) a[M,K] b[K,N]. a(m, k) is a[m * a_row + k * a_column]; b and c are row-major with
/// b_row, c_row. M is a multiple of kTileRows, N of kTileColumns.
struct TileProduct {
  std::int64_t M, N, K;
  float const* a;
  std::int64_t a_row, a_column;
  float const* b;
  std::int64_t b_row;
  float* c;
  std::int64_t c_row;
  bool accumulate;
};

template <int Floats>
struct VectorOf {
  typedef float type __attribute__((vector_size(Floats * sizeof(float)), aligned(4), may_alias));
};

// One block of kTileRows by Vectors * Floats elements of c, held in registers over the whole of K.
template <int Floats, int Vectors>
[[gnu::always_inline]] inline void multiply_block(TileProduct const& p, float const* a,
                                                  float const* b, float* c) {
  using Vector = typename VectorOf<Floats>::type;
  Vector sum[kTileRows][Vectors];
  for (int m = 0; m < kTileRows; ++m)
    for (int v = 0; v < Vectors; ++v)
      sum[m][v] =
          p.accumulate ? *reinterpret_cast<Vector const*>(c + m * p.c_row + v * Floats) : Vector{};
  for (std::int64_t k = 0; k < p.K; ++k) {
    Vector row[Vectors];
    for (int v = 0; v < Vectors; ++v)
      row[v] = *reinterpret_cast<Vector const*>(b + k * p.b_row + v * Floats);
    for (int m = 0; m < kTileRows; ++m) {
      float const factor = a[m * p.a_row + k * p.a_column];
      for (int v = 0; v < Vectors; ++v) sum[m][v] += factor * row[v];
    }
  }
  for (int m = 0; m < kTileRows; ++m)
    for (int v = 0; v < Vectors; ++v)
      *reinterpret_cast<Vector*>(c + m * p.c_row + v * Floats) = sum[m][v];
}

template <Isa I>
[[gnu::always_inline]] inline void multiply_tiles(TileProduct const& p) {
  constexpr int kFloats = kVectorFloats<I>;
  std::int64_t n = 0;
  for (; n + 2 * kFloats <= p.N; n += 2 * kFloats)
    for (std::int64_t m = 0; m < p.M; m += kTileRows)
      multiply_block<kFloats, 2>(p, p.a + m * p.a_row, p.b + n, p.c + m * p.c_row + n);
  for (; n < p.N; n += kFloats)
    for (std::int64_t m = 0; m < p.M; m += kTileRows)
      multiply_block<kFloats, 1>(p, p.a + m * p.a_row, p.b + n, p.c + m * p.c_row + n);
}

}  // namespace spillway::ops::detail
