// Launches element-wise and row-wise functors on the CPU: threads outside, vector code inside.
#pragma once

#include <algorithm>
#include <cstdint>

#include "lib/core/numeric.hpp"
#include "lib/device/for_each.hpp"
#include "lib/device/stream.hpp"
#include "lib/ops/detail/isa.hpp"

namespace spillway::ops::detail {

/// functor(i) for i in [0, n). Indices must not depend on each other: the loop is vectorised.
template <class Functor>
void launch_each(std::int64_t n, Functor const& functor, device::Stream& stream,
                 Isa isa = widest_isa()) {
  constexpr std::int64_t kBlock = 4096;
  auto const block = [&functor, isa, n](std::int64_t index) {
    std::int64_t const begin = index * kBlock;
    std::int64_t const end = std::min(n, begin + kBlock);
    run_on(isa, [&functor, begin, end](auto) {
      Functor const local = functor;  // a copy that no store of the loop can alias
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) local(i);
    });
  };
  device::for_each_row(div_ceil(n, kBlock), block, stream);
}

/// functor(row) for every row; the functor's own loops are vectorised.
template <class Functor>
void launch_rows(std::int64_t rows, Functor const& functor, device::Stream& stream,
                 Isa isa = widest_isa()) {
  auto const one = [&functor, isa](std::int64_t row) {
    run_on(isa, [&functor, row](auto) {
      Functor const local = functor;
      local(row);
    });
  };
  device::for_each_row(rows, one, stream);
}

}  // namespace spillway::ops::detail
