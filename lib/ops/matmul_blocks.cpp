// bf16 products where the processor has none: blocks of both operands are widened to fp32 in
// scratch and multiplied there. A task is a block of the result; it sums over K in steps of a fixed
// length, so that its bits depend neither on the size of the blocks nor on the threads.
#include <algorithm>

#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"
#include "lib/ops/detail/gemm_tile.hpp"
#include "lib/ops/detail/matmul_paths.hpp"
#include "lib/ops/detail/scratch.hpp"
#include "lib/ops/detail/store.hpp"
#include "lib/ops/detail/tasks.hpp"

namespace spillway::ops::detail {
namespace {

// A step of K by a slice of N in a sliver stays in the first cache, a panel of A in the second.
constexpr std::int64_t kStepK = 256;
constexpr std::int64_t kPanelM = 96;
constexpr std::int64_t kMostM = 768;
constexpr std::int64_t kMostN = 384;
// Blocks are multiples of these, so that no vector crosses an edge on any instruction set.
constexpr std::int64_t kGrainM = kPanelM;
constexpr std::int64_t kGrainN = 96;

// Equal blocks of the result, at most kMostM x kMostN, and smaller where threads would be idle.
struct Blocks {
  std::int64_t m, n, count_m, count_n;
  Blocks(std::int64_t M, std::int64_t N, int threads) {
    std::int64_t most_m = kMostM;
    std::int64_t most_n = kMostN;
    for (;;) {
      m = even_part(M, most_m, kGrainM);
      n = even_part(N, most_n, kGrainN);
      count_m = div_ceil(M, m);
      count_n = div_ceil(N, n);
      if (count_m * count_n >= 2 * threads || (m == kGrainM && n == kGrainN)) return;
      (m > n || n == kGrainN ? most_m : most_n) /= 2;
      most_m = std::max(most_m, kGrainM);
      most_n = std::max(most_n, kGrainN);
    }
  }
  static std::int64_t even_part(std::int64_t whole, std::int64_t most, std::int64_t grain) {
    return round_up(div_ceil(whole, div_ceil(whole, most)), grain);
  }
};

// Buffers of one thread.
struct Buffers {
  float *a, *b, *c;
  Buffers(Scratch& scratch, Blocks const& blocks)
      : a(scratch.take<float>(kPanelM * kStepK)),
        b(scratch.take<float>(blocks.n * kStepK)),
        c(scratch.take<float>(blocks.m * blocks.n)) {}
};

std::size_t buffer_bytes(Blocks const& blocks) {
  return scratch_bytes<float>(kPanelM * kStepK) + scratch_bytes<float>(blocks.n * kStepK) +
         scratch_bytes<float>(blocks.m * blocks.n);
}

// A matrix of bf16 as it is stored: element (row, column) of the operand.
struct Stored {
  bf16 const* data;
  std::int64_t stride;
  bool transposed;
  bf16 const* at(std::int64_t row, std::int64_t column) const {
    return data + (transposed ? column * stride + row : row * stride + column);
  }
};

// Rows of `width` bf16 to rows of fp32, then zeros up to `padded_rows` rows of `padded_width`.
void widen(bf16 const* source, std::int64_t stride, std::int64_t rows, std::int64_t width,
           std::int64_t padded_rows, std::int64_t padded_width, float* target) {
  for (std::int64_t r = 0; r < padded_rows; ++r) {
    bf16 const* const from = source + r * stride;
    float* const to = target + r * padded_width;
    std::int64_t const filled = r < rows ? width : 0;
#pragma omp simd
    for (std::int64_t i = 0; i < filled; ++i) to[i] = static_cast<float>(from[i]);
    for (std::int64_t i = filled; i < padded_width; ++i) to[i] = 0;
  }
}

// A block of b as slivers of `sliver` columns, each with its rows beside each other.
void pack_slivers(Stored const& b, std::int64_t k, std::int64_t steps, std::int64_t n,
                  std::int64_t columns, std::int64_t sliver, float* slivers) {
  for (std::int64_t first = 0; first < columns; first += sliver, slivers += sliver * steps) {
    std::int64_t const width = std::min(sliver, columns - first);
    if (!b.transposed) {
      widen(b.at(k, n + first), b.stride, steps, width, steps, sliver, slivers);
      continue;
    }
    for (std::int64_t j = 0; j < sliver; ++j) {
      bf16 const* const from = b.at(k, n + first + j);
      for (std::int64_t step = 0; step < steps; ++step)
        slivers[step * sliver + j] = j < width ? static_cast<float>(from[step]) : 0.0f;
    }
  }
}

// The result in fp32, plus bias and what is there, to where it belongs.
void deliver(MatmulArgs const& args, float const* sums, std::int64_t row, std::int64_t column,
             std::int64_t width) {
  std::int64_t const offset = row * (args.c_stride == 0 ? args.N : args.c_stride) + column;
  bf16 const* const bias =
      args.bias == nullptr ? nullptr : static_cast<bf16 const*>(args.bias) + column;
  if (args.c_type == DType::bf16) {
    bf16* const c = static_cast<bf16*>(args.c) + offset;
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i)
      store(c[i], bias == nullptr ? sums[i] : sums[i] + static_cast<float>(bias[i]));
    return;
  }
  float* const c = static_cast<float*>(args.c) + offset;
  if (args.accumulate) {
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) c[i] += sums[i];
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < width; ++i) c[i] = sums[i];
  }
  if (bias == nullptr) return;
#pragma omp simd
  for (std::int64_t i = 0; i < width; ++i) c[i] += static_cast<float>(bias[i]);
}

// c (+)= panel of a times the slivers of b.
void multiply_panel(TileProduct panel, std::int64_t columns, std::int64_t sliver, Isa isa) {
  panel.N = panel.b_row = sliver;
  for (std::int64_t n = 0; n < columns; n += sliver) {
    multiply_tiles(panel, isa);
    panel.b += sliver * panel.K;
    panel.c += sliver;
  }
}

void multiply_block_of_result(MatmulArgs const& args, std::int64_t row, std::int64_t column,
                              Blocks const& blocks, Buffers const& buffers, Isa isa) {
  Stored const a{static_cast<bf16 const*>(args.a.data), stored_stride(args.a, args.M, args.K),
                 args.a.transposed};
  Stored const b{static_cast<bf16 const*>(args.b.data), stored_stride(args.b, args.K, args.N),
                 args.b.transposed};
  std::int64_t const rows = std::min(blocks.m, args.M - row);
  std::int64_t const columns = std::min(blocks.n, args.N - column);
  std::int64_t const sliver = sliver_columns(isa);
  for (std::int64_t k = 0; k < args.K; k += kStepK) {
    std::int64_t const steps = std::min(kStepK, args.K - k);
    run_on(isa, [&](auto) { pack_slivers(b, k, steps, column, columns, sliver, buffers.b); });
    for (std::int64_t m = 0; m < rows; m += kPanelM) {
      std::int64_t const height = std::min(kPanelM, rows - m);
      std::int64_t const padded = round_up<std::int64_t>(height, kTileRows);
      run_on(isa, [&](auto) {
        if (a.transposed)
          widen(a.at(row + m, k), a.stride, steps, height, steps, kPanelM, buffers.a);
        else
          widen(a.at(row + m, k), a.stride, height, steps, padded, kStepK, buffers.a);
      });
      multiply_panel({.M = padded,
                      .N = sliver,
                      .K = steps,
                      .a = buffers.a,
                      .a_row = a.transposed ? 1 : kStepK,
                      .a_column = a.transposed ? kPanelM : 1,
                      .b = buffers.b,
                      .b_row = sliver,
                      .c = buffers.c + m * blocks.n,
                      .c_row = blocks.n,
                      .accumulate = k > 0},
                     columns, sliver, isa);
    }
  }
  run_on(isa, [&](auto) {
    for (std::int64_t r = 0; r < rows; ++r)
      deliver(args, buffers.c + r * blocks.n, row + r, column, columns);
  });
}

}  // namespace

std::size_t matmul_blocks_scratch_bytes(MatmulArgs const& args, int threads) {
  return buffer_bytes(Blocks(args.M, args.N, threads)) * static_cast<std::size_t>(threads);
}

std::size_t matmul_blocks_scratch_bound(int threads) {
  std::size_t const one = scratch_bytes<float>(kPanelM * kStepK) +
                          scratch_bytes<float>(kMostN * kStepK) +
                          scratch_bytes<float>(kMostM * kMostN);
  return one * static_cast<std::size_t>(threads);
}

void matmul_bf16_blocks(MatmulArgs const& args, device::Stream& stream, Isa isa) {
  int const threads = stream.threads();
  Blocks const blocks(args.M, args.N, threads);
  std::size_t const bytes = buffer_bytes(blocks);
  Scratch const scratch(stream.scratch(), bytes * static_cast<std::size_t>(threads), "matmul");
  for_each_task(blocks.count_m * blocks.count_n, threads, [&](std::int64_t task, int thread) {
    Scratch mine = scratch.part(thread, bytes);
    Buffers const buffers(mine, blocks);
    std::int64_t const row = task % blocks.count_m * blocks.m;
    std::int64_t const column = task / blocks.count_m * blocks.n;
    multiply_block_of_result(args, row, column, blocks, buffers, isa);
  });
}

}  // namespace spillway::ops::detail
