// The feed-forward half of a block: GELU (GPT-2) or gated SiLU (Llama).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "lib/device/stream.hpp"
#include "lib/model/carver.hpp"
#include "lib/model/decoder.hpp"
#include "lib/model/linear.hpp"

namespace spillway::model {

/// Values before the activation, [rows, I]; gate is null without one.
template <class T>
struct MlpArea {
  T* gate = nullptr;
  T* up = nullptr;
};

template <class T>
class MlpLayer {
 public:
  MlpLayer(ModelConfig const& config, shard::FlatLayout const& layout, std::int64_t layer);

  MlpArea<T> carve(std::int64_t rows, Carver& carver) const;
  std::int64_t width() const { return down_.in(); }
  /// Fills `area` from the normed input.
  void forward(UnitView unit, std::int64_t rows, T const* normed, MlpArea<T> const& area,
               device::Stream& stream) const;
  /// activated [rows, I] from `area`.
  void activate(std::int64_t rows, MlpArea<T> const& area, T* activated,
                device::Stream& stream) const;
  /// out [rows, C].
  void project(UnitView unit, std::int64_t rows, T const* activated, T* out,
               device::Stream& stream) const;
  /// What backward reads.
  struct Saved {
    T const* normed;
    MlpArea<T> area;
    T const* activated;
  };
  /// dnormed from dout (gradient of `project`'s out). Takes temporaries from `carver`.
  void backward(UnitView unit, std::int64_t rows, Saved const& saved, T const* dout, T* dnormed,
                Carver& carver, device::Stream& stream) const;
  /// Carves the temporaries of `backward`, to count them.
  void count_backward(std::int64_t rows, Carver& carver) const { carve_backward(rows, carver); }
  /// Appends the ranges that `backward` sets in a fresh unit.
  void append_set_ranges(std::vector<shard::Range>& ranges) const;
  std::size_t scratch_bytes(std::int64_t rows, int threads) const;

 private:
  struct Temporaries {
    T* dactivated;
    T* dgate;
    T* dup;
    float* sum;
  };
  Temporaries carve_backward(std::int64_t rows, Carver& carver) const;

  std::optional<Linear<T>> gate_;
  Linear<T> up_;
  Linear<T> down_;
};

}  // namespace spillway::model
