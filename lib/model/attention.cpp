#include "lib/model/attention.hpp"

#include <algorithm>
#include <cmath>

#include "lib/model/unit_access.hpp"
#include "lib/ops/head_norm.hpp"
#include "lib/ops/rope.hpp"

namespace spillway::model {
namespace {

/// The layer that computes both, if the weights lie end to end (rows of [out, in]) and the biases
/// too.
bool merge(LinearPlace& first, LinearPlace const& second) {
  bool const weights_touch =
      first.order == WeightOrder::out_in && first.weight + first.in * first.out == second.weight;
  bool const biases_touch = first.bias < 0 || first.bias + first.out == second.bias;
  if (!weights_touch || !biases_touch) return false;
  first.out += second.out;
  return true;
}

template <class T>
std::vector<Linear<T>> find_inputs(ModelConfig const& config, shard::FlatLayout const& layout,
                                   BlockNames const& names) {
  auto const find = [&](std::string const& module) {
    return find_linear(layout, module, config.weight_order, config.qkv_bias);
  };
  if (!names.qkv.empty()) return {Linear<T>(find(names.qkv))};
  LinearPlace const q = find(names.q), k = find(names.k), v = find(names.v);
  LinearPlace all = q;
  if (merge(all, k) && merge(all, v)) return {Linear<T>(all)};
  return {Linear<T>(q), Linear<T>(k), Linear<T>(v)};
}

float score_scale(ModelConfig const& config, std::int64_t layer) {
  double scale = 1;
  if (config.scale_attention) scale /= std::sqrt(static_cast<double>(config.head_dim));
  if (config.scale_attention_by_layer) scale /= static_cast<double>(layer + 1);
  return static_cast<float>(scale);
}

}  // namespace

template <class T>
AttentionLayer<T>::AttentionLayer(ModelConfig const& config, shard::FlatLayout const& layout,
                                  std::int64_t layer, RotaryTable const& rotary)
    : heads_(config.heads),
      kv_heads_(config.kv_heads),
      head_dim_(config.head_dim),
      scale_(score_scale(config, layer)),
      window_(config.window(layer)),
      rotary_(rotary),
      inputs_(find_inputs<T>(config, layout, block_names(config.family, layer))),
      output_(find_linear(layout, block_names(config.family, layer).out, config.weight_order,
                          config.out_bias)) {
  if (!config.head_norms) return;
  BlockNames const names = block_names(config.family, layer);
  norms_ = {layout.find(names.q_norm + ".weight").range.begin,
            layout.find(names.k_norm + ".weight").range.begin, static_cast<float>(config.norm_eps)};
}

template <class T>
AttentionArea<T> AttentionLayer<T>::carve(Shape shape, Carver& products, Carver& others) const {
  AttentionArea<T> area;
  area.qkv = products.take<T>(shape.rows() * (heads_ + 2 * kv_heads_) * head_dim_);
  area.heads_out = products.take<T>(shape.rows() * heads_ * head_dim_);
  area.logsumexp = products.take<float>(shape.rows() * heads_);
  if (!norms_) return area;
  area.qk = others.take<T>(shape.rows() * (heads_ + kv_heads_) * head_dim_);
  area.q_rstd = others.take<float>(shape.rows() * heads_);
  area.k_rstd = others.take<float>(shape.rows() * kv_heads_);
  return area;
}

template <class T>
auto AttentionLayer<T>::carve_backward(Shape shape, Carver& carver) const -> Temporaries {
  std::int64_t const rows = shape.rows();
  return {carver.take<T>(rows * heads_ * head_dim_),
          carver.take<T>(rows * (heads_ + 2 * kv_heads_) * head_dim_),
          norms_ ? carver.take<T>(rows * (heads_ + kv_heads_) * head_dim_) : nullptr,
          carver.take<float>(sum_elements<T>(rows, inputs_[0].in(), inputs_.size()))};
}

template <class T>
auto AttentionLayer<T>::products(T* qkv, std::int64_t rows) const -> Heads {
  std::int64_t const q = heads_ * head_dim_;
  std::int64_t const kv = kv_heads_ * head_dim_;
  std::int64_t const all = q + 2 * kv;
  if (inputs_.size() == 1) return {qkv, qkv + q, qkv + q + kv, all, all, all};
  return {qkv, qkv + rows * q, qkv + rows * (q + kv), q, kv, kv};
}

/// As attention reads them.
template <class T>
auto AttentionLayer<T>::heads(T* qkv, T* qk, std::int64_t rows) const -> Heads {
  Heads heads = products(qkv, rows);
  if (!norms_) return heads;
  heads.q = qk;
  heads.k = qk + heads_ * head_dim_;
  heads.q_stride = heads.k_stride = (heads_ + kv_heads_) * head_dim_;
  return heads;
}

template <class T>
void AttentionLayer<T>::norm_heads(UnitView unit, Shape shape, AttentionArea<T> const& area,
                                   device::Stream& stream) const {
  Heads const from = products(area.qkv, shape.rows());
  Heads const to = heads(area.qkv, area.qk, shape.rows());
  ops::HeadNormForward<T> args;
  args.rows = shape.rows();
  args.head_dim = head_dim_;
  args.eps = norms_->eps;
  args.heads = heads_;
  args.x = from.q;
  args.x_stride = from.q_stride;
  args.weight = weights_at<T>(unit, norms_->q_weight);
  args.y = to.q;
  args.y_stride = to.q_stride;
  args.rstd = area.q_rstd;
  ops::head_norm_forward(args, stream);
  args.heads = kv_heads_;
  args.x = from.k;
  args.x_stride = from.k_stride;
  args.weight = weights_at<T>(unit, norms_->k_weight);
  args.y = to.k;
  args.y_stride = to.k_stride;
  args.rstd = area.k_rstd;
  ops::head_norm_forward(args, stream);
}

template <class T>
void AttentionLayer<T>::norm_heads_backward(UnitView unit, Shape shape,
                                            AttentionArea<T> const& area,
                                            Temporaries const& temporary,
                                            device::Stream& stream) const {
  Heads const x = products(area.qkv, shape.rows());
  Heads const dy = heads(temporary.dqkv, temporary.dqk, shape.rows());
  Heads const dx = products(temporary.dqkv, shape.rows());
  ops::HeadNormBackward<T> args;
  args.rows = shape.rows();
  args.head_dim = head_dim_;
  args.heads = heads_;
  args.x = x.q;
  args.x_stride = x.q_stride;
  args.weight = weights_at<T>(unit, norms_->q_weight);
  args.rstd = area.q_rstd;
  args.dy = dy.q;
  args.dy_stride = dy.q_stride;
  args.dx = dx.q;
  args.dweight = gradient_at(unit, norms_->q_weight);
  ops::head_norm_backward(args, stream);
  args.heads = kv_heads_;
  args.x = x.k;
  args.x_stride = x.k_stride;
  args.weight = weights_at<T>(unit, norms_->k_weight);
  args.rstd = area.k_rstd;
  args.dy = dy.k;
  args.dy_stride = dy.k_stride;
  args.dx = dx.k;
  args.dweight = gradient_at(unit, norms_->k_weight);
  ops::head_norm_backward(args, stream);
}

template <class T>
void AttentionLayer<T>::rotate(Shape shape, Heads const& heads, bool forward,
                               device::Stream& stream) const {
  if (rotary_.cosine.empty()) return;
  ops::Rope<T> rope;
  rope.B = shape.B;
  rope.T_ = shape.T;
  rope.head_dim = head_dim_;
  rope.cosine = rotary_.cosine.data();
  rope.sine = rotary_.sine.data();
  ops::Turn const turn = forward ? ops::Turn::forward : ops::Turn::backward;
  rope.heads = heads_;
  rope.x = heads.q;
  rope.stride = heads.q_stride;
  ops::rope(rope, turn, stream);
  rope.heads = kv_heads_;
  rope.x = heads.k;
  rope.stride = heads.k_stride;
  ops::rope(rope, turn, stream);
}

template <class T>
ops::AttentionForward<T> AttentionLayer<T>::attention(Shape shape,
                                                      AttentionArea<T> const& area) const {
  Heads const from = heads(area.qkv, area.qk, shape.rows());
  ops::AttentionForward<T> args;
  args.B = shape.B;
  args.T_ = shape.T;
  args.heads = heads_;
  args.kv_heads = kv_heads_;
  args.head_dim = head_dim_;
  args.scale = scale_;
  args.window = window_;
  args.q = from.q;
  args.k = from.k;
  args.v = from.v;
  args.q_stride = from.q_stride;
  args.k_stride = from.k_stride;
  args.v_stride = from.v_stride;
  args.out_stride = heads_ * head_dim_;
  args.out = area.heads_out;
  args.logsumexp = area.logsumexp;
  return args;
}

template <class T>
void AttentionLayer<T>::forward(UnitView unit, Shape shape, T const* normed,
                                AttentionArea<T> const& area, device::Stream& stream) const {
  T* out = area.qkv;
  for (auto const& input : inputs_) {
    input.forward(unit, shape.rows(), normed, out, stream);
    out += shape.rows() * input.out();
  }
  if (norms_) norm_heads(unit, shape, area, stream);
  rotate(shape, heads(area.qkv, area.qk, shape.rows()), true, stream);
  ops::attention_forward(attention(shape, area), stream);
}

template <class T>
void AttentionLayer<T>::recompute(UnitView unit, Shape shape, AttentionArea<T> const& area,
                                  device::Stream& stream) const {
  if (!norms_) return;
  norm_heads(unit, shape, area, stream);
  rotate(shape, heads(area.qkv, area.qk, shape.rows()), true, stream);
}

template <class T>
void AttentionLayer<T>::project(UnitView unit, Shape shape, AttentionArea<T> const& area, T* out,
                                device::Stream& stream) const {
  output_.forward(unit, shape.rows(), area.heads_out, out, stream);
}

template <class T>
void AttentionLayer<T>::backward(UnitView unit, Shape shape, T const* normed,
                                 AttentionArea<T> const& area, T const* dout, T* dnormed,
                                 Carver& carver, device::Stream& stream) const {
  std::int64_t const rows = shape.rows();
  Temporaries const temporary = carve_backward(shape, carver);
  output_.backward_weights(unit, rows, area.heads_out, dout, stream);
  output_.backward_input(unit, rows, dout, temporary.dheads_out, false, stream);
  Heads const to = heads(temporary.dqkv, temporary.dqk, rows);
  ops::AttentionBackward<T> args;
  args.forward = attention(shape, area);
  args.dout = temporary.dheads_out;
  args.dq = to.q;
  args.dk = to.k;
  args.dv = to.v;
  ops::attention_backward(args, stream);
  rotate(shape, to, false, stream);
  if (norms_) norm_heads_backward(unit, shape, area, temporary, stream);
  std::vector<InputTerm<T>> terms;
  T const* dy = temporary.dqkv;
  for (auto const& input : inputs_) {
    input.backward_weights(unit, rows, normed, dy, stream);
    terms.push_back({&input, dy});
    dy += rows * input.out();
  }
  backward_inputs<T>(unit, rows, terms, dnormed, temporary.sum, stream);
}

template <class T>
std::size_t AttentionLayer<T>::scratch_bytes(Shape shape, int threads) const {
  std::size_t bytes = ops::attention_scratch_bytes(shape.B, shape.T, heads_, head_dim_, threads);
  for (auto const& input : inputs_)
    bytes = std::max(bytes, input.scratch_bytes(shape.rows(), threads));
  return std::max(bytes, output_.scratch_bytes(shape.rows(), threads));
}

template <class T>
void AttentionLayer<T>::append_set_ranges(std::vector<shard::Range>& ranges) const {
  for (auto const& input : inputs_) ranges.push_back(input.weight_range());
  ranges.push_back(output_.weight_range());
}

template class AttentionLayer<float>;
template class AttentionLayer<bf16>;

}  // namespace spillway::model
