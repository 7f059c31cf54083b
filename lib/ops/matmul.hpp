// Matrix product: on packed tiles where the processor has AMX or AVX512_BF16, elsewhere through
// oneDNN's sgemm or blocks widened to fp32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/core/dtype.hpp"
#include "lib/device/stream.hpp"

namespace spillway::ops {

/// A row-major matrix as it lies in memory. `transposed`: it is stored as its transpose.
struct Matrix {
  void const* data = nullptr;
  DType type = DType::f32;  // f32 or bf16
  bool transposed = false;
  std::int64_t stride = 0;  // elements between stored rows; 0: dense
};

/// c[M,N] = a[M,K] b[K,N] (+ bias[N]) (+ c). Sums run in fp32. Types: a and b equal; c f32 or a's
/// type; bias of a's type. Bits depend on shapes, types and the stream's threads only.
struct MatmulArgs {
  std::int64_t M = 0, N = 0, K = 0;
  Matrix a{}, b{};
  void* c = nullptr;
  DType c_type = DType::f32;
  std::int64_t c_stride = 0;  // 0: dense
  void const* bias = nullptr;
  bool accumulate = false;  // add to c; for gradient accumulators (c f32)
  bool cold = false;        // c is not read again soon: it may be written past the caches
};

void matmul(MatmulArgs const& args, device::Stream& stream);

/// The same by oneDNN alone, to compare with; no part of training where `matmul` has a way of its
/// own. Its BLAS call has fp32 only, its primitives bf16 too on a processor with AVX512_BF16.
enum class OneDnnWay { blas, primitive };
void matmul_by_onednn(MatmulArgs const& args, OneDnnWay way, device::Stream& stream);
std::size_t matmul_by_onednn_scratch_bytes(MatmulArgs const& args, OneDnnWay way, int threads);

/// Scratch that matmul takes from a stream of so many threads (0: as many as processors) for these
/// shapes and types; with bf16 some MiB a thread.
std::size_t matmul_scratch_bytes(MatmulArgs const& args, int threads = 0);

/// Enough for these products with any smaller M or K too.
std::size_t matmul_scratch_bound(MatmulArgs const& args, int threads = 0);

}  // namespace spillway::ops
