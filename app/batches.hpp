// The micro-batches of a step: which sequences this rank reads, in the sampler's global order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/core/strong.hpp"
#include "lib/data/token_source.hpp"
#include "lib/model/decoder.hpp"

namespace spillway::app {

struct BatchShape {
  model::Shape micro;
  int micro_batches = 1;  // of this rank
  Rank rank;
  int ranks = 1;
  std::int64_t global_batch() const { return micro.B * micro_batches * ranks; }
};

/// Owns the tokens of one step; memory is claimed once.
class Batches {
 public:
  Batches(data::TokenSource const& source, data::Sampler sampler, BatchShape shape);

  /// Sequences at global positions [position, position + global_batch): rank r takes every ranks-th
  /// from r on.
  std::span<model::Tokens const> load(std::int64_t position);
  /// Sequences [0, count) of the source in order, at most one step's worth; padding has no targets.
  std::span<model::Tokens const> load_first(std::int64_t count);

 private:
  template <class SequenceOf>
  void fill(SequenceOf const& sequence_of);

  data::TokenSource const& source_;
  data::Sampler sampler_;
  BatchShape shape_;
  std::vector<std::int32_t> inputs_, targets_;
  std::vector<model::Tokens> micro_batches_;
};

}  // namespace spillway::app
