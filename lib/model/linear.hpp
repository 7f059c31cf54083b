// A linear layer in a unit's flat: y = x W + b, and its two gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/core/dtype.hpp"
#include "lib/device/stream.hpp"
#include "lib/model/decoder.hpp"
#include "lib/model/spec.hpp"
#include "lib/ops/matmul.hpp"

namespace spillway::model {

/// Place and shape of a layer; offsets in elements of the flat, bias -1 where there is none.
struct LinearPlace {
  std::int64_t in = 0;
  std::int64_t out = 0;
  WeightOrder order = WeightOrder::out_in;
  std::int64_t weight = 0;
  std::int64_t bias = -1;
};

/// Looks up "<module>.weight" and, with `has_bias`, "<module>.bias".
LinearPlace find_linear(shard::FlatLayout const& layout, std::string const& module,
                        WeightOrder order, bool has_bias);

/// Operands are dense: x and dx [rows, in], y and dy [rows, out].
template <class T>
class Linear {
 public:
  explicit Linear(LinearPlace place) : place_(place) {}

  /// Of the weight in the flat.
  shard::Range weight_range() const {
    return {place_.weight, place_.weight + place_.in * place_.out};
  }
  std::int64_t in() const { return place_.in; }
  std::int64_t out() const { return place_.out; }

  /// y in T, or in fp32 for logits.
  template <class Out>
  void forward(UnitView unit, std::int64_t rows, T const* x, Out* y, device::Stream& stream) const;
  /// Adds to the unit's gradient; the weight's is set where the unit is fresh.
  void backward_weights(UnitView unit, std::int64_t rows, T const* x, T const* dy,
                        device::Stream& stream) const;
  /// dx in T or fp32; set, or added to (fp32 only).
  template <class Out>
  void backward_input(UnitView unit, std::int64_t rows, T const* dy, Out* dx, bool accumulate,
                      device::Stream& stream) const;
  std::size_t scratch_bytes(std::int64_t rows, int threads) const;
  /// Enough for any number of rows up to `rows`.
  std::size_t scratch_bound(std::int64_t rows, int threads) const;
  /// The layer of `count` of the outputs; for weights [out, in] without bias.
  Linear outputs(std::int64_t first, std::int64_t count) const;

 private:
  using Count = std::size_t (*)(ops::MatmulArgs const&, int threads);
  /// The most that any of the layer's products takes, as `count` says.
  std::size_t most_scratch(std::int64_t rows, int threads, Count count) const;
  ops::Matrix weight_matrix(UnitView unit, bool transposed) const;

  LinearPlace place_;
};

/// One of several layers that read the same x.
template <class T>
struct InputTerm {
  Linear<T> const* layer = nullptr;
  T const* dy = nullptr;
};

/// dx = sum over the terms, added up in fp32 and rounded once. `sum` has sum_elements(...)
/// elements.
template <class T>
void backward_inputs(UnitView unit, std::int64_t rows, std::span<InputTerm<T> const> terms, T* dx,
                     float* sum, device::Stream& stream);
template <class T>
std::int64_t sum_elements(std::int64_t rows, std::int64_t in, std::size_t terms);

}  // namespace spillway::model
