#include "lib/model/block.hpp"

#include <algorithm>

#include "lib/ops/pointwise.hpp"

namespace spillway::model {

template <class T>
Block<T>::Block(ModelConfig const& config, shard::FlatLayout const& layout, std::int64_t layer,
                RotaryTable const& rotary)
    : width_(config.hidden_size),
      attention_norm_(config, layout, block_names(config.family, layer).attention_norm),
      attention_(config, layout, layer, rotary),
      mlp_norm_(config, layout, block_names(config.family, layer).mlp_norm),
      feed_forward_(make_feed_forward<T>(config, layout, layer)) {}

template <class T>
BlockArea<T> Block<T>::carve(Shape shape, Keep keep, Carver& kept, Carver& rest) const {
  std::int64_t const rows = shape.rows();
  Carver& products = keep == Keep::nothing ? rest : kept;   // costly to compute again
  Carver& others = keep == Keep::everything ? kept : rest;  // one pass over memory
  BlockArea<T> area;
  area.normed = others.take<T>(rows * width_);
  area.statistics = {others.take<float>(rows), others.take<float>(rows)};
  area.attention = attention_.carve(shape, products, others);
  area.middle = products.take<T>(rows * width_);
  area.middle_normed = others.take<T>(rows * width_);
  area.middle_statistics = {others.take<float>(rows), others.take<float>(rows)};
  area.feed_forward = feed_forward_->carve(rows, {products, others, rest});
  return area;
}

template <class T>
void Block<T>::forward(UnitView unit, Shape shape, T const* x, T* x_out, BlockArea<T> const& area,
                       device::Stream& stream) const {
  std::int64_t const rows = shape.rows();
  attention_norm_.forward(unit, rows, x, area.normed, area.statistics, stream);
  attention_.forward(unit, shape, area.normed, area.attention, stream);
  attention_.project(unit, shape, area.attention, area.middle, stream);
  ops::add(rows * width_, x, area.middle, area.middle, stream);
  mlp_norm_.forward(unit, rows, area.middle, area.middle_normed, area.middle_statistics, stream);
  feed_forward_->forward(unit, rows, area.middle_normed, area.feed_forward, stream);
  if (x_out == nullptr) return;
  feed_forward_->project(unit, rows, area.feed_forward, x_out, stream);
  ops::add<T>(rows * width_, area.middle, x_out, x_out, stream);
}

template <class T>
void Block<T>::recompute(UnitView unit, Shape shape, Keep keep, T const* x,
                         BlockArea<T> const& area, device::Stream& stream) const {
  std::int64_t const rows = shape.rows();
  if (keep == Keep::everything) return;
  if (keep == Keep::nothing) return forward(unit, shape, x, nullptr, area, stream);
  attention_norm_.forward(unit, rows, x, area.normed, area.statistics, stream);
  attention_.recompute(unit, shape, area.attention, stream);
  mlp_norm_.forward(unit, rows, area.middle, area.middle_normed, area.middle_statistics, stream);
  feed_forward_->recompute(rows, area.middle_normed, area.feed_forward, stream);
}

template <class T>
void Block<T>::backward(UnitView unit, Shape shape, T const* x, BlockArea<T> const& area, T* dx,
                        Carver& carver, device::Stream& stream) const {
  std::int64_t const rows = shape.rows();
  T* const dnormed = carver.take<T>(rows * width_);
  std::size_t const mark = carver.mark();
  feed_forward_->backward(unit, rows, area.middle_normed, area.feed_forward, {dx, dnormed}, carver,
                          stream);
  mlp_norm_.backward(unit, rows, area.middle, area.middle_statistics, dnormed, dx, Target::add,
                     stream);
  carver.rewind(mark);
  attention_.backward(unit, shape, area.normed, area.attention, dx, dnormed, carver, stream);
  attention_norm_.backward(unit, rows, x, area.statistics, dnormed, dx, Target::add, stream);
}

template <class T>
void Block<T>::count_backward(Shape shape, Carver& carver) const {
  carver.take<T>(shape.rows() * width_);
  std::size_t const mark = carver.mark();
  feed_forward_->count_backward(shape.rows(), carver);
  carver.rewind(mark);
  attention_.count_backward(shape, carver);
}

template <class T>
std::size_t Block<T>::scratch_bytes(Shape shape, int threads) const {
  return std::max(attention_.scratch_bytes(shape, threads),
                  feed_forward_->scratch_bytes(shape.rows(), threads));
}

template <class T>
std::vector<shard::Range> Block<T>::set_ranges() const {
  std::vector<shard::Range> ranges;
  attention_.append_set_ranges(ranges);
  feed_forward_->append_set_ranges(ranges);
  return ranges;
}

template class Block<float>;
template class Block<bf16>;

}  // namespace spillway::model
