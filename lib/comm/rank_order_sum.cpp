// Sums tile by tile in a local accumulator, which aliases nothing and so lets the loops vectorise.
#include "lib/comm/rank_order_sum.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace spillway::comm {

void sum_in_rank_order(std::span<float const* const> terms, std::span<float> result) {
  constexpr std::size_t tile_max = 1024;
  std::array<float, tile_max> sum;
  for (std::size_t begin = 0; begin < result.size(); begin += tile_max) {
    std::size_t const tile = std::min(tile_max, result.size() - begin);
    std::copy_n(terms[0] + begin, tile, sum.begin());
    for (float const* term : terms.subspan(1)) {
      for (std::size_t i = 0; i < tile; ++i) sum[i] += term[begin + i];
    }
    std::copy_n(sum.begin(), tile, result.begin() + static_cast<std::ptrdiff_t>(begin));
  }
}

}  // namespace spillway::comm
