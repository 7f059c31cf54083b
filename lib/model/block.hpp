// One transformer block: x1 = x + attention(norm(x)), x_out = x1 + feed_forward(norm(x1)).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lib/device/stream.hpp"
#include "lib/model/attention.hpp"
#include "lib/model/carver.hpp"
#include "lib/model/decoder.hpp"
#include "lib/model/feed_forward.hpp"
#include "lib/model/norm.hpp"

namespace spillway::model {

/// All intermediate values of one micro-batch.
template <class T>
struct BlockArea {
  T* normed = nullptr;  // [rows, C]
  NormStatistics statistics;
  AttentionArea<T> attention;
  T* middle = nullptr;  // x1, [rows, C]
  T* middle_normed = nullptr;
  NormStatistics middle_statistics;
  FeedForwardArea<T> feed_forward;
};

template <class T>
class Block {
 public:
  /// `rotary` outlives the block.
  Block(ModelConfig const& config, shard::FlatLayout const& layout, std::int64_t layer,
        RotaryTable const& rotary);

  /// What `keep` keeps comes from `kept`, the rest from `rest`.
  BlockArea<T> carve(Shape shape, Keep keep, Carver& kept, Carver& rest) const;
  /// Fills `area` but for the parts after it; x_out may be null where only the intermediate values
  /// are wanted.
  void forward(UnitView unit, Shape shape, T const* x, T* x_out, BlockArea<T> const& area,
               device::Stream& stream) const;
  /// Fills what `keep` has not kept, to the same bits as forward did.
  void recompute(UnitView unit, Shape shape, Keep keep, T const* x, BlockArea<T> const& area,
                 device::Stream& stream) const;
  /// dx: gradient of x_out in, of x out. Takes temporaries from `carver`.
  void backward(UnitView unit, Shape shape, T const* x, BlockArea<T> const& area, T* dx,
                Carver& carver, device::Stream& stream) const;
  /// Adds how often each expert was chosen, and the sums of their probabilities.
  void add_loads(BlockArea<T> const& area, std::span<double> loads) const {
    feed_forward_->add_loads(area.feed_forward, loads);
  }
  /// Carves the temporaries of `backward`, to count them.
  void count_backward(Shape shape, Carver& carver) const;
  std::size_t scratch_bytes(Shape shape, int threads) const;
  /// Ranges that `backward` sets in a fresh unit.
  std::vector<shard::Range> set_ranges() const;

 private:
  std::int64_t width_;
  NormLayer<T> attention_norm_;
  AttentionLayer<T> attention_;
  NormLayer<T> mlp_norm_;
  std::unique_ptr<FeedForward<T>> feed_forward_;
};

}  // namespace spillway::model
