// Product of tiles that lie in cache, in fp32, for the inner loops of attention.
#pragma once

#include <cstdint>

#include "lib/ops/detail/isa.hpp"

namespace spillway::ops::detail {

/// Rows of a register block: 6 rows of 2 vectors, and what a step loads, fit 16 registers.
inline constexpr int kTileRows = 6;
/// Columns of every tile are a multiple of this: the widest vector.
inline constexpr int kTileColumns = 16;

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

void multiply_tiles(TileProduct const& product, Isa isa);

/// Columns that a product computes at once: b may be cut into slivers of so many.
int sliver_columns(Isa isa);

}  // namespace spillway::ops::detail
