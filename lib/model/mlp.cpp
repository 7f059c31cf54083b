#include "lib/model/mlp.hpp"

#include <algorithm>
#include <array>

#include "lib/model/names.hpp"
#include "lib/ops/pointwise.hpp"

namespace spillway::model {

template <class T>
MlpLayer<T>::MlpLayer(ModelConfig const& config, shard::FlatLayout const& layout,
                      std::int64_t layer)
    : up_(find_linear(layout, block_names(config.family, layer).up, config.weight_order,
                      config.mlp_bias)),
      down_(find_linear(layout, block_names(config.family, layer).down, config.weight_order,
                        config.mlp_bias)) {
  if (config.mlp == Mlp::gated_silu)
    gate_ = Linear<T>(find_linear(layout, block_names(config.family, layer).gate,
                                  config.weight_order, config.mlp_bias));
}

template <class T>
FeedForwardArea<T> MlpLayer<T>::carve(std::int64_t rows, AreaCarvers carvers) const {
  FeedForwardArea<T> area;
  if (gate_) area.gate = carvers.products.take<T>(rows * width());
  area.up = carvers.products.take<T>(rows * width());
  area.activated = carvers.others.take<T>(rows * width());
  return area;
}

template <class T>
auto MlpLayer<T>::carve_backward(std::int64_t rows, Carver& carver) const -> Temporaries {
  Temporaries temporary{};
  temporary.dactivated = carver.take<T>(rows * width());
  temporary.dup = temporary.dactivated;  // gelu_backward works in place
  if (!gate_) return temporary;
  temporary.dgate = carver.take<T>(rows * width());
  temporary.dup = carver.take<T>(rows * width());
  temporary.sum = carver.take<float>(sum_elements<T>(rows, up_.in(), 2));
  return temporary;
}

template <class T>
void MlpLayer<T>::forward(UnitView unit, std::int64_t rows, T const* normed,
                          FeedForwardArea<T> const& area, device::Stream& stream) const {
  if (gate_) gate_->forward(unit, rows, normed, area.gate, stream);
  up_.forward(unit, rows, normed, area.up, stream);
  recompute(rows, normed, area, stream);
}

template <class T>
void MlpLayer<T>::recompute(std::int64_t rows, T const*, FeedForwardArea<T> const& area,
                            device::Stream& stream) const {
  if (gate_) {
    ops::swiglu_forward(rows * width(), area.gate, area.up, area.activated, stream);
  } else {
    ops::gelu_forward(rows * width(), area.up, area.activated, stream);
  }
}

template <class T>
void MlpLayer<T>::project(UnitView unit, std::int64_t rows, FeedForwardArea<T> const& area, T* out,
                          device::Stream& stream) const {
  down_.forward(unit, rows, area.activated, out, stream);
}

template <class T>
void MlpLayer<T>::backward(UnitView unit, std::int64_t rows, T const* normed,
                           FeedForwardArea<T> const& area, Gradients gradients, Carver& carver,
                           device::Stream& stream) const {
  Temporaries const temporary = carve_backward(rows, carver);
  down_.backward_weights(unit, rows, area.activated, gradients.dout, stream);
  down_.backward_input(unit, rows, gradients.dout, temporary.dactivated, false, stream);
  if (!gate_) {
    ops::gelu_backward(rows * width(), area.up, temporary.dactivated, temporary.dup, stream);
    up_.backward_weights(unit, rows, normed, temporary.dup, stream);
    up_.backward_input(unit, rows, temporary.dup, gradients.dnormed, false, stream);
    return;
  }
  ops::swiglu_backward(rows * width(), area.gate, area.up, temporary.dactivated, temporary.dgate,
                       temporary.dup, stream);
  gate_->backward_weights(unit, rows, normed, temporary.dgate, stream);
  up_.backward_weights(unit, rows, normed, temporary.dup, stream);
  std::array<InputTerm<T>, 2> const terms{{{&*gate_, temporary.dgate}, {&up_, temporary.dup}}};
  backward_inputs<T>(unit, rows, terms, gradients.dnormed, temporary.sum, stream);
}

template <class T>
std::size_t MlpLayer<T>::scratch_bytes(std::int64_t rows, int threads) const {
  std::size_t const bytes =
      std::max(up_.scratch_bytes(rows, threads), down_.scratch_bytes(rows, threads));
  return gate_ ? std::max(bytes, gate_->scratch_bytes(rows, threads)) : bytes;
}

template <class T>
void MlpLayer<T>::append_set_ranges(std::vector<shard::Range>& ranges) const {
  if (gate_) ranges.push_back(gate_->weight_range());
  ranges.push_back(up_.weight_range());
  ranges.push_back(down_.weight_range());
}

template class MlpLayer<float>;
template class MlpLayer<bf16>;

}  // namespace spillway::model
