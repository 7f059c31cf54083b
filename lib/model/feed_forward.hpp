// The feed-forward half of a block as the block sees it: one MLP, or experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lib/device/stream.hpp"
#include "lib/model/carver.hpp"
#include "lib/model/decoder.hpp"
#include "lib/ops/experts.hpp"

namespace spillway::model {

/// Intermediate values of one micro-batch; what a kind does not have is null. R: its rows, or the
/// slots of all experts.
template <class T>
struct FeedForwardArea {
  T* gate = nullptr;  // [R, I], before the activation
  T* up = nullptr;
  T* activated = nullptr;  // [R, I]
  // Of experts only.
  ops::Route routing;
  ops::ExpertOrder order;
  T* gathered = nullptr;  // [R, C], the normed input where the experts read it
  T* moved = nullptr;     // [R, C], what experts give, or its gradient: lasts for one call
  float const* balance_gradient = nullptr;  // [experts], of every row's probabilities, or null
};

/// Where the parts of an area come from: `products` are costly to compute again, `others` take one
/// pass over memory, and `passing` need not last.
struct AreaCarvers {
  Carver& products;
  Carver& others;
  Carver& passing;
};

template <class T>
class FeedForward {
 public:
  virtual ~FeedForward() = default;

  virtual FeedForwardArea<T> carve(std::int64_t rows, AreaCarvers carvers) const = 0;
  /// Fills `area` from the normed input.
  virtual void forward(UnitView unit, std::int64_t rows, T const* normed,
                       FeedForwardArea<T> const& area, device::Stream& stream) const = 0;
  /// Fills the part of `area` that `others` holds.
  virtual void recompute(std::int64_t rows, T const* normed, FeedForwardArea<T> const& area,
                         device::Stream& stream) const = 0;
  /// out [rows, C] from `area`.
  virtual void project(UnitView unit, std::int64_t rows, FeedForwardArea<T> const& area, T* out,
                       device::Stream& stream) const = 0;
  /// dnormed from dout (gradient of `project`'s out).
  struct Gradients {
    T const* dout;
    T* dnormed;
  };
  /// Takes temporaries from `carver`.
  virtual void backward(UnitView unit, std::int64_t rows, T const* normed,
                        FeedForwardArea<T> const& area, Gradients gradients, Carver& carver,
                        device::Stream& stream) const = 0;
  /// Carves the temporaries of `backward`, to count them.
  virtual void count_backward(std::int64_t rows, Carver& carver) const = 0;
  virtual std::size_t scratch_bytes(std::int64_t rows, int threads) const = 0;
  /// Appends the ranges that `backward` sets in a fresh unit.
  virtual void append_set_ranges(std::vector<shard::Range>& ranges) const = 0;
  /// Adds how often each expert was chosen, then the sums of their probabilities, to [2, experts].
  virtual void add_loads(FeedForwardArea<T> const& area, std::span<double> loads) const = 0;
};

template <class T>
std::unique_ptr<FeedForward<T>> make_feed_forward(ModelConfig const& config,
                                                  shard::FlatLayout const& layout,
                                                  std::int64_t layer);

}  // namespace spillway::model
