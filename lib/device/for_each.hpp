// Runs a functor over indices on the CPU, written once for all element-wise and row-wise
// operations.
#pragma once

#include <cstdint>

#include "lib/device/stream.hpp"

namespace spillway::device {

/// functor(i) for i in [0, n). Static split: which thread does which index is fixed by n and the
/// team.
template <class Functor>
void for_each(std::int64_t n, Functor const& functor, Stream& stream) {
  int const threads = n < 4096 ? 1 : stream.threads();
  if (threads == 1) {
    for (std::int64_t i = 0; i < n; ++i) functor(i);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t i = 0; i < n; ++i) functor(i);
}

/// functor(row) for every row; rows are coarse, so even two are worth two threads.
template <class Functor>
void for_each_row(std::int64_t rows, Functor const& functor, Stream& stream) {
  int const threads = rows < 2 ? 1 : stream.threads();
  if (threads == 1) {
    for (std::int64_t row = 0; row < rows; ++row) functor(row);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t row = 0; row < rows; ++row) functor(row);
}

}  // namespace spillway::device
