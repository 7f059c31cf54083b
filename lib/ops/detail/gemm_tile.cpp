// Register blocks of the tile product, compiled for each instruction set.
#include "lib/ops/detail/gemm_tile.hpp"

namespace spillway::ops::detail {
namespace {

template <Isa I>
inline constexpr int kVectorFloats = I == Isa::avx512 ? 16
                                     : I == Isa::avx2 ? 8
                                                      : 4;

template <int Floats>
struct VectorOf {
  typedef float type __attribute__((vector_size(Floats * sizeof(float)), aligned(4), may_alias));
};

// One block of kTileRows by Vectors * Floats elements of c, held in registers over the whole of K.
template <int Floats, int Vectors>
void multiply_block(TileProduct const& p, float const* a, float const* b, float* c) {
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
void multiply_on(TileProduct const& p) {
  constexpr int kFloats = kVectorFloats<I>;
  std::int64_t n = 0;
  for (; n + 2 * kFloats <= p.N; n += 2 * kFloats)
    for (std::int64_t m = 0; m < p.M; m += kTileRows)
      multiply_block<kFloats, 2>(p, p.a + m * p.a_row, p.b + n, p.c + m * p.c_row + n);
  for (; n < p.N; n += kFloats)
    for (std::int64_t m = 0; m < p.M; m += kTileRows)
      multiply_block<kFloats, 1>(p, p.a + m * p.a_row, p.b + n, p.c + m * p.c_row + n);
}

}  // namespace

void multiply_tiles(TileProduct const& product, Isa isa) {
  run_on(isa, [&product](auto set) { multiply_on<set.value>(product); });
}

int sliver_columns(Isa isa) {
  int columns = 0;
  run_on(isa, [&columns](auto set) { columns = 2 * kVectorFloats<set.value>; });
  return columns;
}

}  // namespace spillway::ops::detail
