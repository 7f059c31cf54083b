// bf16 products where the processor has none: blocks of both operands are widened to fp32 in
// scratch and multiplied there. The blocks are small enough for the scratch and large enough to
// hide the conversion.
#include <algorithm>

#include "lib/core/numeric.hpp"
#include "lib/ops/detail/launch.hpp"
#include "lib/ops/detail/matmul_paths.hpp"
#include "lib/ops/detail/scratch.hpp"

namespace spillway::ops::detail {
namespace {

constexpr std::int64_t kBlockM = 384;
constexpr std::int64_t kBlockN = 512;
constexpr std::int64_t kBlockK = 1024;

struct WidenRow {
  bf16 const* source;
  std::int64_t stride, width;
  float* target;
  void operator()(std::int64_t row) const {
    bf16 const* const from = source + row * stride;
    float* const to = target + row * width;
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) to[i] = static_cast<float>(from[i]);
  }
};

// A block of c in fp32, plus the bias, to bf16.
struct NarrowRow {
  float const* source;
  bf16 const* bias;
  std::int64_t width, c_stride;
  bf16* c;
  void operator()(std::int64_t row) const {
    float const* const from = source + row * width;
    bf16* const to = c + row * c_stride;
    bf16 const* const add = bias;
    if (add == nullptr) {
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i) to[i] = bf16(from[i]);
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < width; ++i) to[i] = bf16(from[i] + static_cast<float>(add[i]));
    }
  }
};

// The fp32 copy of a block of an operand, kept as long as the same block is asked for again.
class WideBlock {
 public:
  WideBlock(Matrix const& matrix, std::int64_t stride, float* buffer)
      : matrix_(matrix), stride_(stride), buffer_(buffer) {}

  /// Rows and columns are those of the operand, whichever way it is stored.
  Matrix get(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
             device::Stream& stream) {
    std::int64_t const width = matrix_.transposed ? rows : columns;
    if (row != row_ || column != column_) {
      bf16 const* const data = static_cast<bf16 const*>(matrix_.data);
      bf16 const* const corner =
          matrix_.transposed ? data + column * stride_ + row : data + row * stride_ + column;
      launch_rows(matrix_.transposed ? columns : rows, WidenRow{corner, stride_, width, buffer_},
                  stream);
      row_ = row;
      column_ = column;
    }
    return {.data = buffer_, .type = DType::f32, .transposed = matrix_.transposed, .stride = width};
  }

 private:
  Matrix matrix_;
  std::int64_t stride_;
  float* buffer_;
  std::int64_t row_ = -1;
  std::int64_t column_ = -1;
};

struct BlockSizes {
  std::int64_t m, n, k;
  explicit BlockSizes(MatmulArgs const& args)
      : m(std::min(args.M, kBlockM)), n(std::min(args.N, kBlockN)), k(std::min(args.K, kBlockK)) {}
  std::int64_t wide_c(MatmulArgs const& args) const {
    return args.c_type == DType::f32 ? 0 : m * n;
  }
};

// The bias of an fp32 result of bf16 operands.
struct AddWideBiasRow {
  bf16 const* bias;
  std::int64_t N, c_stride;
  float* c;
  void operator()(std::int64_t row) const {
    float* const to = c + row * c_stride;
    bf16 const* const add = bias;
#pragma omp simd
    for (std::int64_t n = 0; n < N; ++n) to[n] += static_cast<float>(add[n]);
  }
};

}  // namespace

std::size_t matmul_blocks_scratch_bytes(MatmulArgs const& args) {
  BlockSizes const block(args);
  return scratch_bytes<float>(block.m * block.k) + scratch_bytes<float>(block.k * block.n) +
         scratch_bytes<float>(block.wide_c(args));
}

void matmul_bf16_blocks(MatmulArgs const& args, device::Stream& stream) {
  BlockSizes const block(args);
  Scratch scratch(stream.scratch(), matmul_blocks_scratch_bytes(args), "matmul");
  WideBlock a(args.a, stored_stride(args.a, args.M, args.K),
              scratch.take<float>(block.m * block.k));
  WideBlock b(args.b, stored_stride(args.b, args.K, args.N),
              scratch.take<float>(block.k * block.n));
  float* const wide_c = scratch.take<float>(block.wide_c(args));
  std::int64_t const c_stride = args.c_stride == 0 ? args.N : args.c_stride;
  bool const narrow_c = args.c_type == DType::bf16;
  bf16 const* const bias = static_cast<bf16 const*>(args.bias);
  for (std::int64_t m = 0; m < args.M; m += block.m) {
    std::int64_t const rows = std::min(block.m, args.M - m);
    for (std::int64_t n = 0; n < args.N; n += block.n) {
      std::int64_t const columns = std::min(block.n, args.N - n);
      MatmulArgs part{.M = rows, .N = columns};
      part.c = narrow_c ? wide_c : static_cast<float*>(args.c) + m * c_stride + n;
      part.c_stride = narrow_c ? columns : c_stride;
      for (std::int64_t k = 0; k < args.K; k += block.k) {
        part.K = std::min(block.k, args.K - k);
        part.a = a.get(m, rows, k, part.K, stream);
        part.b = b.get(k, part.K, n, columns, stream);
        part.accumulate = k > 0 || args.accumulate;
        matmul_sgemm(part, stream);
      }
      if (narrow_c)
        launch_rows(rows,
                    NarrowRow{wide_c, bias == nullptr ? nullptr : bias + n, columns, c_stride,
                              static_cast<bf16*>(args.c) + m * c_stride + n},
                    stream);
    }
  }
  if (!narrow_c && bias != nullptr)
    launch_rows(args.M, AddWideBiasRow{bias, args.N, c_stride, static_cast<float*>(args.c)},
                stream);
}

}  // namespace spillway::ops::detail
