// Self-attention of a block: projections, rotation, scores, output projection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lib/device/stream.hpp"
#include "lib/model/carver.hpp"
#include "lib/model/decoder.hpp"
#include "lib/model/linear.hpp"
#include "lib/model/names.hpp"
#include "lib/model/rotary.hpp"
#include "lib/ops/attention.hpp"

namespace spillway::model {

/// Intermediate values of one micro-batch: q, k, v after rotation in one array, heads' outputs,
/// statistics.
template <class T>
struct AttentionArea {
  T* qkv = nullptr;  // [rows, q|k|v] where one product makes them, else [rows, q][rows, k][rows, v]
  T* heads_out = nullptr;      // [rows, heads * head_dim]
  float* logsumexp = nullptr;  // [B, heads, T]
};

template <class T>
class AttentionLayer {
 public:
  /// `rotary` outlives the layer.
  AttentionLayer(ModelConfig const& config, shard::FlatLayout const& layout, std::int64_t layer,
                 RotaryTable const& rotary);

  AttentionArea<T> carve(Shape shape, Carver& carver) const;
  /// Fills `area` from the normed input.
  void forward(UnitView unit, Shape shape, T const* normed, AttentionArea<T> const& area,
               device::Stream& stream) const;
  /// out [rows, C]: the output projection of the heads' outputs.
  void project(UnitView unit, Shape shape, AttentionArea<T> const& area, T* out,
               device::Stream& stream) const;
  /// dnormed from dout (gradient of `project`'s out). Takes temporaries from `carver`.
  void backward(UnitView unit, Shape shape, T const* normed, AttentionArea<T> const& area,
                T const* dout, T* dnormed, Carver& carver, device::Stream& stream) const;
  /// Carves the temporaries of `backward`, to count them.
  void count_backward(Shape shape, Carver& carver) const { carve_backward(shape, carver); }
  std::size_t scratch_bytes(Shape shape, int threads) const;

 private:
  struct Heads {  // where q, k and v lie
    T* q;
    T* k;
    T* v;
    std::int64_t q_stride, kv_stride;
  };
  struct Temporaries {
    T* dheads_out;
    T* dqkv;
    float* sum;
  };
  Heads heads(T* qkv, std::int64_t rows) const;
  ops::AttentionForward<T> attention(Shape shape, AttentionArea<T> const& area) const;
  Temporaries carve_backward(Shape shape, Carver& carver) const;
  void rotate(Shape shape, Heads const& heads, bool forward, device::Stream& stream) const;

  std::int64_t heads_, kv_heads_, head_dim_;
  float scale_;
  std::int64_t window_;
  RotaryTable const& rotary_;
  std::vector<Linear<T>> inputs_;  // one for q|k|v, or three
  Linear<T> output_;
};

}  // namespace spillway::model
