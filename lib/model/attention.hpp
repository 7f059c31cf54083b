// Self-attention of a block: projections, norms of heads, rotation, scores, output projection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lib/device/stream.hpp"
#include "lib/model/carver.hpp"
#include "lib/model/decoder.hpp"
#include "lib/model/linear.hpp"
#include "lib/model/names.hpp"
#include "lib/model/rotary.hpp"
#include "lib/ops/attention.hpp"

namespace spillway::model {

/// Intermediate values of one micro-batch. q and k are rotated where they lie; where heads are
/// normed, they lie in `qk` and `qkv` keeps what the products gave.
template <class T>
struct AttentionArea {
  T* qkv = nullptr;  // [rows, q|k|v] where one product makes them, else [rows, q][rows, k][rows, v]
  T* qk = nullptr;   // [rows, q|k], or null
  float* q_rstd = nullptr;     // [rows, heads]
  float* k_rstd = nullptr;     // [rows, kv_heads]
  T* heads_out = nullptr;      // [rows, heads * head_dim]
  float* logsumexp = nullptr;  // [B, heads, T]
};

template <class T>
class AttentionLayer {
 public:
  /// `rotary` outlives the layer.
  AttentionLayer(ModelConfig const& config, shard::FlatLayout const& layout, std::int64_t layer,
                 RotaryTable const& rotary);

  /// What takes one pass over memory to compute again comes from `others`, the rest from
  /// `products`.
  AttentionArea<T> carve(Shape shape, Carver& products, Carver& others) const;
  /// Fills `area` from the normed input.
  void forward(UnitView unit, Shape shape, T const* normed, AttentionArea<T> const& area,
               device::Stream& stream) const;
  /// Fills the part of `area` that `others` holds.
  void recompute(UnitView unit, Shape shape, AttentionArea<T> const& area,
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
  /// Appends the ranges that `backward` sets in a fresh unit.
  void append_set_ranges(std::vector<shard::Range>& ranges) const;

 private:
  struct Heads {  // where q, k and v lie
    T* q;
    T* k;
    T* v;
    std::int64_t q_stride, k_stride, v_stride;
  };
  struct Temporaries {
    T* dheads_out;
    T* dqkv;
    T* dqk;  // null where heads are not normed
    float* sum;
  };
  struct HeadNorms {
    std::int64_t q_weight, k_weight;
    float eps;
  };
  Heads products(T* qkv, std::int64_t rows) const;
  Heads heads(T* qkv, T* qk, std::int64_t rows) const;
  void norm_heads(UnitView unit, Shape shape, AttentionArea<T> const& area,
                  device::Stream& stream) const;
  void norm_heads_backward(UnitView unit, Shape shape, AttentionArea<T> const& area,
                           Temporaries const& temporary, device::Stream& stream) const;
  ops::AttentionForward<T> attention(Shape shape, AttentionArea<T> const& area) const;
  Temporaries carve_backward(Shape shape, Carver& carver) const;
  void rotate(Shape shape, Heads const& heads, bool forward, device::Stream& stream) const;

  std::int64_t heads_, kv_heads_, head_dim_;
  float scale_;
  std::int64_t window_;
  RotaryTable const& rotary_;
  std::optional<HeadNorms> norms_;
  std::vector<Linear<T>> inputs_;  // one for q|k|v, or three
  Linear<T> output_;
};

}  // namespace spillway::model
