// Products of packed bf16 tiles (tile_pack.hpp) with fp32 sums, by AMX or AVX512_BF16.
#pragma once

#include <cstdint>

#include "lib/core/dtype.hpp"

namespace spillway::ops::detail {

/// Each is had by processors that have the next.
enum class TileUnit { none, avx512_bf16, amx };

/// The best one that this processor and kernel offer; for AMX the kernel's leave is taken here.
TileUnit best_tile_unit();

/// An fp32 number is the sum of three bf16, eight bits of it each. Of the nine products of two
/// numbers the six largest give the accuracy of fp32 (Henry, Tang & Heinecke 2019, "Leveraging the
/// bfloat16 Artificial Intelligence Datatype").
inline constexpr int kFloatParts = 3;

/// c (+)= strip times panel: up to 32 x 32 of the result, over `steps` tiles of k. Tiles of the
/// second half of the strip or panel are left out where c has no rows or columns for them.
struct TileBlock {
  bf16 const* strip = nullptr;
  bf16 const* panel = nullptr;
  std::int64_t steps = 0;
  float* c = nullptr;
  std::int64_t c_stride = 0;
  int row_tiles = 2, column_tiles = 2;  // 1 or 2
  bool accumulate = false;
  int parts = 1;  // or kFloatParts, with AMX; they lie so many elements apart:
  std::int64_t strip_part = 0, panel_part = 0;
  // What comes next, for the caches: lines that will be read, so many a step, and rows of a result
  // that will be written (null: none).
  struct Ahead {
    char const* first = nullptr;
    std::int64_t lines = 0;
  };
  Ahead next_strip, next_panel;
  char const* result = nullptr;
  std::int64_t result_stride = 0, result_bytes = 0;  // between rows, of a row
};

void multiply_block(TileUnit unit, TileBlock const& block);

/// Rows of 32 sums to aligned rows of a result, past the caches: for what is not read again soon.
void stream_block(float const* sums, std::int64_t sums_stride, std::int64_t rows, float* result,
                  std::int64_t result_stride);
/// Streamed rows are in memory before what the thread writes later: a lock or a flag that hands
/// them to another thread does not order them by itself.
void finish_streams();

/// A thread's use of a unit: AMX wants its tiles configured before and released after.
class TileSession {
 public:
  explicit TileSession(TileUnit unit);
  TileSession(TileSession const&) = delete;
  TileSession& operator=(TileSession const&) = delete;
  ~TileSession();

 private:
  TileUnit unit_;
};

}  // namespace spillway::ops::detail
