// The arithmetic of a norm over heads, one row (or one chunk of columns) at a time; each head is a
// row of RMSNorm.
#pragma once

#include <cstdint>

#include "lib/core/hd.hpp"
#include "lib/ops/detail/columns.hpp"
#include "lib/ops/detail/norm_functors.hpp"
#include "lib/ops/head_norm.hpp"

namespace spillway::ops::detail {

template <class T>
struct HeadNormForwardRow {
  HeadNormForward<T> args;
  SPILLWAY_HD void operator()(std::int64_t row) const {
    for (std::int64_t head = 0; head < args.heads; ++head) {
      NormForward<T> one;
      one.rows = 1;
      one.C = args.head_dim;
      one.eps = args.eps;
      one.x = args.x + row * args.x_stride + head * args.head_dim;
      one.weight = args.weight;
      one.y = args.y + row * args.y_stride + head * args.head_dim;
      one.rstd = args.rstd + row * args.heads + head;
      RmsNormForwardRow<T>{one}(0);
    }
  }
};

template <class T>
struct HeadNormBackwardRow {
  HeadNormBackward<T> args;
  SPILLWAY_HD void operator()(std::int64_t row) const {
    for (std::int64_t head = 0; head < args.heads; ++head) {
      std::int64_t const place = row * args.x_stride + head * args.head_dim;
      NormBackward<T> one;
      one.rows = 1;
      one.C = args.head_dim;
      one.x = args.x + place;
      one.weight = args.weight;
      one.rstd = args.rstd + row * args.heads + head;
      one.dy = args.dy + row * args.dy_stride + head * args.head_dim;
      one.dx = args.dx + place;
      NormBackwardRow<T, false>{one}(0);
    }
  }
};

template <class T>
struct HeadNormBackwardWeights {
  HeadNormBackward<T> args;
  SPILLWAY_HD void operator()(std::int64_t chunk) const {
    HeadNormBackward<T> const a = args;
    add_column_sums(chunk, a.rows * a.heads, a.head_dim, a.dweight,
                    [a](std::int64_t index, std::int64_t c) {
                      std::int64_t const row = index / a.heads;
                      std::int64_t const column = index % a.heads * a.head_dim + c;
                      return static_cast<float>(a.dy[row * a.dy_stride + column]) *
                             (static_cast<float>(a.x[row * a.x_stride + column]) * a.rstd[index]);
                    });
  }
};

}  // namespace spillway::ops::detail
