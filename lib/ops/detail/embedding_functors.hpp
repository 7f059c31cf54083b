// Look-up of one row, and the gradient of one chunk of columns; launched by embedding.cpp.
#pragma once

#include <cstdint>

#include "lib/core/hd.hpp"
#include "lib/ops/detail/columns.hpp"
#include "lib/ops/detail/store.hpp"
#include "lib/ops/embedding.hpp"

namespace spillway::ops::detail {

template <class T>
struct EmbeddingForwardRow {
  EmbeddingForward<T> args;
  SPILLWAY_HD void operator()(std::int64_t row) const {
    std::int64_t const C = args.C;
    T const* const token = args.token_table + static_cast<std::int64_t>(args.tokens[row]) * C;
    T* const x = args.x + row * C;
    if (args.position_table == nullptr) {
#pragma omp simd
      for (std::int64_t c = 0; c < C; ++c) x[c] = token[c];
      return;
    }
    T const* const position = args.position_table + (row % args.T_) * C;
#pragma omp simd
    for (std::int64_t c = 0; c < C; ++c)
      store(x[c], static_cast<float>(token[c]) + static_cast<float>(position[c]));
  }
};

/// A chunk of columns belongs to one thread, which walks the rows in order: no two threads add to
/// one element.
template <class T>
struct EmbeddingBackwardColumns {
  EmbeddingBackward<T> args;
  SPILLWAY_HD void operator()(std::int64_t chunk) const {
    std::int64_t const C = args.C;
    std::int64_t const begin = chunk * kColumnChunk;
    std::int64_t const end = C - begin < kColumnChunk ? C : begin + kColumnChunk;
    for (std::int64_t row = 0; row < args.rows; ++row) {
      T const* const dx = args.dx + row * C;
      add(args.dtoken_table + static_cast<std::int64_t>(args.tokens[row]) * C, dx, begin, end);
      if (args.dposition_table != nullptr)
        add(args.dposition_table + (row % args.T_) * C, dx, begin, end);
    }
  }
  SPILLWAY_HD static void add(float* gradient, T const* dx, std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t c = begin; c < end; ++c) gradient[c] += static_cast<float>(dx[c]);
  }
};

}  // namespace spillway::ops::detail
