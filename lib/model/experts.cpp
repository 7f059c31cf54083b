#include "lib/model/experts.hpp"

#include <algorithm>
#include <array>

#include "lib/model/names.hpp"
#include "lib/ops/pointwise.hpp"

namespace spillway::model {
namespace {

/// visit(expert, first slot, slots) for every expert that has rows.
template <class Visit>
void for_each_expert(ops::ExpertOrder const& order, Visit const& visit) {
  for (std::int64_t e = 0; e < order.experts; ++e) {
    std::int64_t const slots = order.begin[e + 1] - order.begin[e];
    if (slots > 0) visit(static_cast<std::size_t>(e), order.begin[e], slots);
  }
}

std::int64_t used_slots(ops::ExpertOrder const& order) { return order.begin[order.experts]; }

}  // namespace

template <class T>
ExpertsLayer<T>::ExpertsLayer(ModelConfig const& config, shard::FlatLayout const& layout,
                              std::int64_t layer)
    : router_(find_linear(layout, block_names(config.family, layer).router, config.weight_order,
                          false)),
      per_row_(config.experts_per_token) {
  auto const find = [&](std::string const& module) {
    return Linear<T>(find_linear(layout, module, config.weight_order, false));
  };
  for (std::int64_t e = 0; e < config.experts; ++e) {
    ExpertNames const names = expert_names(config.family, layer, e);
    experts_.push_back({find(names.gate), find(names.up), find(names.down)});
  }
}

template <class T>
FeedForwardArea<T> ExpertsLayer<T>::carve(std::int64_t rows, AreaCarvers carvers) const {
  std::int64_t const slots = ops::expert_capacity(rows, count(), per_row_);
  Carver& products = carvers.products;
  FeedForwardArea<T> area;
  area.gate = products.take<T>(slots * inner());
  area.up = products.take<T>(slots * inner());
  area.routing.rows = area.order.rows = rows;
  area.routing.experts = area.order.experts = count();
  area.routing.k = area.order.k = per_row_;
  area.routing.probabilities = products.take<float>(rows * count());
  area.routing.chosen = products.take<std::int32_t>(rows * per_row_);
  area.routing.weights = products.take<float>(rows * per_row_);
  area.order.chosen = area.routing.chosen;
  area.order.slot_of = products.take<std::int32_t>(rows * per_row_);
  area.order.choice_of = products.take<std::int32_t>(slots);
  area.order.begin = products.take<std::int64_t>(count() + 1);
  area.gathered = carvers.others.take<T>(slots * width());
  area.activated = carvers.others.take<T>(slots * inner());
  area.moved = carvers.passing.take<T>(slots * width());
  return area;
}

template <class T>
auto ExpertsLayer<T>::carve_backward(std::int64_t rows, Carver& carver) const -> Temporaries {
  std::int64_t const slots = ops::expert_capacity(rows, count(), per_row_);
  return {.dactivated = carver.take<T>(slots * inner()),
          .dgate = carver.take<T>(slots * inner()),
          .dup = carver.take<T>(slots * inner()),
          .sum = carver.take<float>(sum_elements<T>(slots, width(), 2)),
          .dweights = carver.take<float>(rows * per_row_),
          .dlogits = carver.take<T>(rows * count()),
          .drouter = carver.take<float>(rows * width())};
}

template <class T>
void ExpertsLayer<T>::forward(UnitView unit, std::int64_t rows, T const* normed,
                              FeedForwardArea<T> const& area, device::Stream& stream) const {
  router_.forward(unit, rows, normed, area.routing.probabilities, stream);
  ops::route(area.routing, stream);
  stream.synchronize();
  ops::order_by_expert(area.order);
  ops::gather_rows(area.order, width(), normed, area.gathered, stream);
  for_each_expert(area.order, [&](std::size_t e, std::int64_t begin, std::int64_t slots) {
    T const* const x = area.gathered + begin * width();
    experts_[e].gate.forward(unit, slots, x, area.gate + begin * inner(), stream);
    experts_[e].up.forward(unit, slots, x, area.up + begin * inner(), stream);
  });
  activate(area, stream);
}

template <class T>
void ExpertsLayer<T>::activate(FeedForwardArea<T> const& area, device::Stream& stream) const {
  ops::swiglu_forward(used_slots(area.order) * inner(), area.gate, area.up, area.activated, stream);
}

template <class T>
void ExpertsLayer<T>::recompute(std::int64_t, T const* normed, FeedForwardArea<T> const& area,
                                device::Stream& stream) const {
  ops::gather_rows(area.order, width(), normed, area.gathered, stream);
  activate(area, stream);
}

template <class T>
void ExpertsLayer<T>::project(UnitView unit, std::int64_t, FeedForwardArea<T> const& area, T* out,
                              device::Stream& stream) const {
  for_each_expert(area.order, [&](std::size_t e, std::int64_t begin, std::int64_t slots) {
    experts_[e].down.forward(unit, slots, area.activated + begin * inner(),
                             area.moved + begin * width(), stream);
  });
  ops::combine_rows<T>({.order = area.order,
                        .C = width(),
                        .weights = area.routing.weights,
                        .y = area.moved,
                        .out = out},
                       stream);
}

template <class T>
void ExpertsLayer<T>::backward(UnitView unit, std::int64_t rows, T const* normed,
                               FeedForwardArea<T> const& area, Gradients gradients, Carver& carver,
                               device::Stream& stream) const {
  Temporaries const temporary = carve_backward(rows, carver);
  unit.fresh = false;
  ops::gather_rows(area.order, width(), gradients.dout, area.moved, stream);
  experts_backward(unit, area, temporary, stream);
  ops::route_backward<T>({.forward = area.routing,
                          .dweights = temporary.dweights,
                          .dprobabilities = area.balance_gradient,
                          .dlogits = temporary.dlogits},
                         stream);
  router_.backward_weights(unit, rows, normed, temporary.dlogits, stream);
  router_.backward_input(unit, rows, temporary.dlogits, temporary.drouter, false, stream);
  ops::combine_rows<T>({.order = area.order,
                        .C = width(),
                        .base = temporary.drouter,
                        .y = area.moved,
                        .out = gradients.dnormed},
                       stream);
}

/// `area.moved`: from the gradient of each expert's result, not yet weighted, to that of its input.
template <class T>
void ExpertsLayer<T>::experts_backward(UnitView unit, FeedForwardArea<T> const& area,
                                       Temporaries const& temporary, device::Stream& stream) const {
  for_each_expert(area.order, [&](std::size_t e, std::int64_t begin, std::int64_t slots) {
    experts_[e].down.backward_input(unit, slots, area.moved + begin * width(),
                                    temporary.dactivated + begin * inner(), false, stream);
  });
  ops::weigh_rows<T>({.order = area.order,
                      .I = inner(),
                      .C = width(),
                      .weights = area.routing.weights,
                      .activated = area.activated,
                      .dactivated = temporary.dactivated,
                      .dresult = area.moved,
                      .dweights = temporary.dweights},
                     stream);
  ops::swiglu_backward(used_slots(area.order) * inner(), area.gate, area.up, temporary.dactivated,
                       temporary.dgate, temporary.dup, stream);
  for_each_expert(area.order, [&](std::size_t e, std::int64_t begin, std::int64_t slots) {
    Expert const& expert = experts_[e];
    T* const moved = area.moved + begin * width();
    T const* const x = area.gathered + begin * width();
    T const* const dgate = temporary.dgate + begin * inner();
    T const* const dup = temporary.dup + begin * inner();
    expert.down.backward_weights(unit, slots, area.activated + begin * inner(), moved, stream);
    expert.gate.backward_weights(unit, slots, x, dgate, stream);
    expert.up.backward_weights(unit, slots, x, dup, stream);
    std::array<InputTerm<T>, 2> const terms{{{&expert.gate, dgate}, {&expert.up, dup}}};
    backward_inputs<T>(unit, slots, terms, moved, temporary.sum, stream);
  });
}

/// An expert may have any number of rows up to all of them.
template <class T>
std::size_t ExpertsLayer<T>::scratch_bytes(std::int64_t rows, int threads) const {
  Expert const& expert = experts_.front();
  return std::max({router_.scratch_bytes(rows, threads), expert.gate.scratch_bound(rows, threads),
                   expert.up.scratch_bound(rows, threads),
                   expert.down.scratch_bound(rows, threads)});
}

template <class T>
void ExpertsLayer<T>::add_loads(FeedForwardArea<T> const& area, std::span<double> loads) const {
  ops::Route const& routing = area.routing;
  auto const chosen = loads.first(loads.size() / 2), sums = loads.last(loads.size() / 2);
  for (std::int64_t choice = 0; choice < routing.rows * routing.k; ++choice)
    chosen[static_cast<std::size_t>(routing.chosen[choice])] += 1;
  for (std::int64_t row = 0; row < routing.rows; ++row)
    for (std::int64_t e = 0; e < routing.experts; ++e)
      sums[static_cast<std::size_t>(e)] +=
          static_cast<double>(routing.probabilities[row * routing.experts + e]);
}

template class ExpertsLayer<float>;
template class ExpertsLayer<bf16>;

}  // namespace spillway::model
