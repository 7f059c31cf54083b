// Final norm, head and cross entropy over a few rows at a time: the logits never exist whole.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/device/stream.hpp"
#include "lib/model/carver.hpp"
#include "lib/model/decoder.hpp"
#include "lib/model/linear.hpp"
#include "lib/model/norm.hpp"

namespace spillway::model {

/// The units that the head reads: its norm and, unless it is tied, its weight in `head`.
struct HeadUnits {
  UnitView head;
  UnitView embedding;
};

template <class T>
class Head {
 public:
  explicit Head(ModelSpec const& spec);

  /// dx_out may be null: then only the loss is computed.
  LossSum run(HeadUnits units, Tokens tokens, float scale, T const* x, T* dx_out, Carver& carver,
              device::Stream& stream) const;
  /// Logits [V] of one row.
  void logits(HeadUnits units, T const* row, float* out, Carver& carver,
              device::Stream& stream) const;
  /// Carves the temporaries of `run` and `logits`, to count them.
  void count(std::int64_t rows, Carver& carver) const { carve(chunk_rows(rows), carver); }
  std::size_t scratch_bytes(std::int64_t rows, int threads) const;

 private:
  struct Temporaries {
    T* normed;
    NormStatistics statistics;
    float* logits;
    T* dlogits;
    float* losses;
  };
  std::int64_t chunk_rows(std::int64_t rows) const;
  Temporaries carve(std::int64_t rows, Carver& carver) const;
  UnitView weight_unit(HeadUnits units) const { return tied_ ? units.embedding : units.head; }

  bool tied_;
  std::int64_t width_;
  NormLayer<T> norm_;
  Linear<T> projection_;
};

}  // namespace spillway::model
