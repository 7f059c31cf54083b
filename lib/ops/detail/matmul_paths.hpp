// The ways in which a matrix product can be computed on the CPU, for matmul.cpp and the tests.
#pragma once

#include <cstddef>
#include <memory>

#include "lib/ops/detail/isa.hpp"
#include "lib/ops/detail/tile_kernels.hpp"
#include "lib/ops/matmul.hpp"

namespace spillway::ops::detail {

enum class MatmulPath {
  sgemm,        // fp32
  tiles,        // packed tiles: AMX in fp32 and bf16, AVX512_BF16 in bf16
  bf16_blocks,  // bf16 converted to fp32 block by block: processors without bf16 products
};

/// The one place of the decision.
MatmulPath choose_matmul_path(DType type);

void matmul_sgemm(MatmulArgs const& args, device::Stream& stream);
void matmul_bf16_blocks(MatmulArgs const& args, device::Stream& stream, Isa isa);
void matmul_tiles(MatmulArgs const& args, device::Stream& stream, TileUnit unit);
/// Any type that oneDNN has a primitive for on this processor; compiled primitives are kept with
/// the stream.
void matmul_primitive(MatmulArgs const& args, device::Stream& stream);

std::size_t matmul_blocks_scratch_bytes(MatmulArgs const& args, int threads);
std::size_t matmul_blocks_scratch_bound(int threads);
std::size_t matmul_tiles_scratch_bytes(MatmulArgs const& args, int threads);
std::size_t matmul_tiles_scratch_bound(MatmulArgs const& args, int threads);
std::size_t matmul_primitive_scratch_bytes(MatmulArgs const& args, int threads);

/// Elements between the rows of a matrix as it is stored; `rows` and `columns` are those of the
/// product's operand.
inline std::int64_t stored_stride(Matrix const& matrix, std::int64_t rows, std::int64_t columns) {
  if (matrix.stride != 0) return matrix.stride;
  return matrix.transposed ? rows : columns;
}

/// Processors that OpenMP may use: no sensible stream has more threads.
int all_processors();

/// oneDNN's teams have as many threads as the stream while one of these lives.
class OneDnnTeam {
 public:
  explicit OneDnnTeam(int threads);
  OneDnnTeam(OneDnnTeam const&) = delete;
  OneDnnTeam& operator=(OneDnnTeam const&) = delete;
  ~OneDnnTeam();

 private:
  int before_;
};

}  // namespace spillway::ops::detail
