#include "tests/support/resident_model.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "lib/model/balance.hpp"

namespace spillway::test {
namespace {

// All bits set is a NaN in fp32 and bf16: what is read before it is written shows.
void poison(std::vector<std::byte>& bytes) {
  std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
}

}  // namespace

ResidentModel::ResidentModel(model::ModelSpec spec, Options options)
    : spec_(std::move(spec)),
      options_(options),
      decoder_(model::make_decoder(spec_, options.compute, options.shape.T)),
      device_(device::make_cpu_device()),
      stream_(device_->make_stream(decoder_->scratch_bytes(options.shape, options.threads),
                                   options.threads)) {
  for (std::size_t u = 0; u < spec_.units.size(); ++u) {
    Unit unit{spec_.layout(UnitId{static_cast<int>(u)}), {}, {}, {}, {}, {}};
    std::size_t const elements = static_cast<std::size_t>(unit.layout.elements());
    unit.weights.resize(elements * size_of(options.compute));
    if (options.compute == DType::bf16) unit.lo.resize(elements);
    unit.gradient.resize(elements);
    unit.m.resize(elements);
    unit.v.resize(elements);
    units_.push_back(std::move(unit));
  }
  std::size_t const blocks = units_.size() - 2;
  boundaries_.assign(blocks + 1, std::vector<std::byte>(decoder_->boundary_bytes(options.shape)));
  kept_.assign(blocks, std::vector<std::byte>(decoder_->kept_bytes(options.shape, options.keep)));
  dx_.resize(decoder_->boundary_bytes(options.shape));
  workspace_.resize(decoder_->workspace_bytes(options.shape, options.keep));
}

ResidentModel::Place ResidentModel::find(std::string const& name) const {
  for (std::size_t u = 0; u < spec_.units.size(); ++u)
    for (auto const& tensor : spec_.units[u].tensors)
      if (tensor.name == name) return {u, units_[u].layout.find(name).range, tensor.decay};
  throw std::runtime_error("no tensor " + name);
}

void ResidentModel::set(std::string const& name, std::vector<float> const& values) {
  Place const place = find(name);
  Unit& unit = units_[place.unit];
  if (static_cast<std::int64_t>(values.size()) != place.range.size())
    throw std::runtime_error("wrong size of " + name);
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::size_t const at = static_cast<std::size_t>(place.range.begin) + i;
    if (options_.compute == DType::f32) {
      reinterpret_cast<float*>(unit.weights.data())[at] = values[i];
    } else {
      ops::split_master(values[i], reinterpret_cast<bf16*>(unit.weights.data())[at], unit.lo[at]);
    }
  }
}

std::vector<float> ResidentModel::master(std::string const& name) const {
  Place const place = find(name);
  Unit const& unit = units_[place.unit];
  std::vector<float> values;
  for (std::int64_t i = place.range.begin; i < place.range.end; ++i) {
    std::size_t const at = static_cast<std::size_t>(i);
    if (options_.compute == DType::f32) {
      values.push_back(reinterpret_cast<float const*>(unit.weights.data())[at]);
    } else {
      values.push_back(
          ops::join_master(reinterpret_cast<bf16 const*>(unit.weights.data())[at], unit.lo[at]));
    }
  }
  return values;
}

std::vector<float> ResidentModel::gradient(std::string const& name) const {
  Place const place = find(name);
  auto const begin = units_[place.unit].gradient.begin();
  return {begin + place.range.begin, begin + place.range.end};
}

model::UnitView ResidentModel::view(std::size_t unit, bool backward) {
  return {units_[unit].weights.data(), backward ? units_[unit].gradient.data() : nullptr};
}

std::span<std::byte> ResidentModel::poisoned_workspace() {
  poison(workspace_);
  return workspace_;
}

void ResidentModel::zero_gradients() {
  for (auto& unit : units_) std::fill(unit.gradient.begin(), unit.gradient.end(), 0.0f);
}

void ResidentModel::balance(float scale) {
  auto const sums = decoder_->expert_loads();
  if (sums.empty()) return;
  double const rows = static_cast<double>(options_.shape.rows());
  model::ExpertLoads const loads{sums, rows * static_cast<double>(spec_.config.layers)};
  balance_loss_ = model::balance_loss(loads);
  model::balance_gradient(loads,
                          static_cast<double>(scale) * rows * spec_.config.balance_coefficient,
                          decoder_->balance_gradient());
}

void ResidentModel::forward(model::Tokens tokens) {
  std::ranges::fill(decoder_->expert_loads(), 0.0);
  poison(boundaries_[0]);
  decoder_->embed_forward(view(0, false), tokens, options_.shape, boundaries_[0], *stream_);
  for (std::size_t layer = 0; layer + 1 < boundaries_.size(); ++layer) {
    poison(boundaries_[layer + 1]);
    poison(kept_[layer]);
    decoder_->block_forward(static_cast<int>(layer), view(layer + 1, false), options_.shape,
                            options_.keep, boundaries_[layer], boundaries_[layer + 1], kept_[layer],
                            poisoned_workspace(), *stream_);
  }
}

model::LossSum ResidentModel::forward_backward(model::Tokens tokens, float scale) {
  forward(tokens);
  balance(scale);
  poison(dx_);
  std::size_t const head = units_.size() - 1;
  auto const sum = decoder_->head(view(head, true), view(0, true), tokens, options_.shape, scale,
                                  boundaries_.back(), dx_, poisoned_workspace(), *stream_);
  for (std::size_t layer = boundaries_.size() - 1; layer-- > 0;)
    decoder_->block_backward(static_cast<int>(layer), view(layer + 1, true), options_.shape,
                             options_.keep, boundaries_[layer], dx_, kept_[layer],
                             poisoned_workspace(), *stream_);
  decoder_->embed_backward(view(0, true), tokens, options_.shape, dx_, *stream_);
  return sum;
}

model::LossSum ResidentModel::evaluate(model::Tokens tokens) {
  forward(tokens);
  return decoder_->head(view(units_.size() - 1, false), view(0, false), tokens, options_.shape, 1,
                        boundaries_.back(), {}, poisoned_workspace(), *stream_);
}

std::vector<float> ResidentModel::logits(model::Tokens tokens, std::int64_t first) {
  forward(tokens);
  std::vector<float> all;
  std::vector<float> row(static_cast<std::size_t>(spec_.config.vocab_size));
  for (std::int64_t r = first; r < options_.shape.rows(); ++r) {
    decoder_->logits(view(units_.size() - 1, false), view(0, false), r, boundaries_.back(), row,
                     poisoned_workspace(), *stream_);
    all.insert(all.end(), row.begin(), row.end());
  }
  return all;
}

double ResidentModel::gradient_norm() {
  double sum = 0;
  for (auto const& unit : units_)
    sum += ops::sum_of_squares(static_cast<std::int64_t>(unit.gradient.size()),
                               unit.gradient.data(), *stream_);
  return std::sqrt(sum);
}

void ResidentModel::update(ops::AdamwStep const& step) {
  for (std::size_t u = 0; u < units_.size(); ++u) {
    for (auto const& tensor : spec_.units[u].tensors) {
      shard::Range const range = units_[u].layout.find(tensor.name).range;
      Unit& unit = units_[u];
      ops::AdamwState state;
      state.n = range.size();
      if (options_.compute == DType::f32) {
        state.hi32 = reinterpret_cast<float*>(unit.weights.data()) + range.begin;
      } else {
        state.hi = reinterpret_cast<bf16*>(unit.weights.data()) + range.begin;
        state.lo = unit.lo.data() + range.begin;
      }
      state.m = unit.m.data() + range.begin;
      state.v = unit.v.data() + range.begin;
      state.grad32 = unit.gradient.data() + range.begin;
      ops::AdamwStep own = step;
      if (!tensor.decay) own.weight_decay = 0;
      ops::adamw(state, own, *stream_);
    }
  }
}

}  // namespace spillway::test
