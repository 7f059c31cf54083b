#include "lib/ops/gradient.hpp"

#include <algorithm>
#include <array>

#include "lib/core/numeric.hpp"
#include "lib/ops/detail/launch.hpp"
#include "lib/ops/detail/store.hpp"
#include "lib/ops/detail/sum_of_squares_functor.hpp"

namespace spillway::ops {
namespace {

constexpr std::int64_t kBlock = detail::SumOfSquaresBlock::kBlock;
constexpr std::int64_t kBlocksOfPiece = kSquarePiece / kBlock;

// One block: merged, then squared while it is in cache.
template <class T>
struct MergeBlock {
  MergeGradient<T> args;
  std::int64_t first;
  double* partial;  // null: not wanted
  void operator()(std::int64_t index) const {
    std::int64_t const begin = (first + index) * kBlock;
    std::int64_t const end = std::min(args.n, begin + kBlock);
    float* const part = args.part;
    T* const stored = args.stored;
    bool const in_place = static_cast<void const*>(part) == static_cast<void const*>(stored);
    if (!in_place && args.add)
      for (std::int64_t i = begin; i < end; ++i) part[i] += static_cast<float>(stored[i]);
    if (!in_place) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        detail::store(stored[i], part[i]);
        part[i] = static_cast<float>(stored[i]);
      }
    }
    if (partial != nullptr) detail::SumOfSquaresBlock{args.n, part, first, partial}(index);
  }
};

}  // namespace

template <class T>
void merge_gradient(MergeGradient<T> const& args, double* squares, device::Stream& stream) {
  // A group of pieces at a time, because the sums of blocks are kept on the stack.
  constexpr std::int64_t kGroup = 64 * kBlocksOfPiece;
  std::array<double, kGroup> partial;
  std::int64_t const blocks = div_ceil(args.n, kBlock);
  for (std::int64_t first = 0; first < blocks; first += kGroup) {
    std::int64_t const count = std::min(kGroup, blocks - first);
    detail::launch_rows(
        count, MergeBlock<T>{args, first, squares == nullptr ? nullptr : partial.data()}, stream);
    if (squares == nullptr) continue;
    for (std::int64_t piece = 0; piece < count; piece += kBlocksOfPiece) {
      double sum = 0;
      for (std::int64_t i = piece; i < std::min(count, piece + kBlocksOfPiece); ++i)
        sum += partial[static_cast<std::size_t>(i)];
      *squares += sum;
    }
  }
}

template void merge_gradient(MergeGradient<float> const&, double*, device::Stream&);
template void merge_gradient(MergeGradient<bf16> const&, double*, device::Stream&);

}  // namespace spillway::ops
