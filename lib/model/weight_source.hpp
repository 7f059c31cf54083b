// Where initial weights come from: random numbers, a safetensors folder or a checkpoint.
#pragma once

#include <cstdint>
#include <span>

#include "lib/model/spec.hpp"

namespace spillway::model {

/// Reads any element range of any tensor, so that a shard can be filled where it will live.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Fills `out` with elements [begin, begin + out.size()) of the tensor in C order.
  virtual void read(TensorSpec const& tensor, std::int64_t begin, std::span<float> out) = 0;
};

/// Normal(mean, std) by Philox keyed by (seed, tensor name, element): no dependence on ranks or
/// placement.
class RandomWeights : public WeightSource {
 public:
  explicit RandomWeights(std::uint64_t seed) : seed_(seed) {}
  void read(TensorSpec const& tensor, std::int64_t begin, std::span<float> out) override;

 private:
  std::uint64_t seed_;
};

}  // namespace spillway::model
