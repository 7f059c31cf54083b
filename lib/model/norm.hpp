// A LayerNorm or RMSNorm in a unit's flat.
#pragma once

#include <cstdint>
#include <string>

#include "lib/device/stream.hpp"
#include "lib/model/decoder.hpp"
#include "lib/model/spec.hpp"

namespace spillway::model {

/// Per row: what backward needs besides x. mean is unused by RMSNorm.
struct NormStatistics {
  float* mean = nullptr;
  float* rstd = nullptr;
};

enum class Target { set, add };

template <class T>
class NormLayer {
 public:
  NormLayer(ModelConfig const& config, shard::FlatLayout const& layout, std::string const& module);

  void forward(UnitView unit, std::int64_t rows, T const* x, T* y, NormStatistics statistics,
               device::Stream& stream) const;
  /// Sets dx (which may then be dy), or adds to it.
  void backward(UnitView unit, std::int64_t rows, T const* x, NormStatistics statistics,
                T const* dy, T* dx, Target target, device::Stream& stream) const;

 private:
  Norm kind_;
  float eps_;
  std::int64_t width_;
  std::int64_t weight_;
  std::int64_t bias_ = -1;
};

}  // namespace spillway::model
