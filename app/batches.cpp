#include "app/batches.hpp"

#include <algorithm>

#include "lib/core/numeric.hpp"

namespace spillway::app {

Batches::Batches(data::TokenSource const& source, data::Sampler sampler, BatchShape shape)
    : source_(source), sampler_(sampler), shape_(shape) {
  auto const rows = static_cast<std::size_t>(shape.micro.rows());
  auto const all = rows * static_cast<std::size_t>(shape.micro_batches);
  inputs_.resize(all);
  targets_.resize(all);
  for (std::size_t at = 0; at < all; at += rows)
    micro_batches_.push_back(
        {std::span(inputs_).subspan(at, rows), std::span(targets_).subspan(at, rows)});
}

// sequence_of(j): index of this rank's j-th sequence, -1 for padding.
template <class SequenceOf>
void Batches::fill(SequenceOf const& sequence_of) {
  auto const T = static_cast<std::size_t>(shape_.micro.T);
  std::int64_t const local = shape_.micro.B * shape_.micro_batches;
  for (std::int64_t j = 0; j < local; ++j) {
    auto const at = static_cast<std::size_t>(j) * T;
    auto const inputs = std::span(inputs_).subspan(at, T);
    auto const targets = std::span(targets_).subspan(at, T);
    std::int64_t const sequence = sequence_of(j);
    if (sequence >= 0) {
      data::read_sequence(source_, sequence, inputs, targets);
    } else {
      std::fill(inputs.begin(), inputs.end(), 0);
      std::fill(targets.begin(), targets.end(), -1);
    }
  }
}

std::span<model::Tokens const> Batches::load(std::int64_t position) {
  fill([&](std::int64_t j) {
    return sampler_.sequence_at(position + j * shape_.ranks + shape_.rank.get());
  });
  return micro_batches_;
}

std::span<model::Tokens const> Batches::load_first(std::int64_t count) {
  std::int64_t const most = std::min(count, sampler_.sequences());
  fill([&](std::int64_t j) {
    std::int64_t const sequence = j * shape_.ranks + shape_.rank.get();
    return sequence < most ? sequence : -1;
  });
  return micro_batches_;
}

}  // namespace spillway::app
