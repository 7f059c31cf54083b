// Final norm, head and cross entropy over a part of the vocabulary at a time: the logits of a batch
// never exist whole. With gradients a part is visited twice, first for the denominators of the
// softmax: its logits are kept until then where there is room, or computed again.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/device/stream.hpp"
#include "lib/model/carver.hpp"
#include "lib/model/decoder.hpp"
#include "lib/model/linear.hpp"
#include "lib/model/norm.hpp"
#include "lib/ops/cross_entropy.hpp"

namespace spillway::model {

/// The units that the head reads: its norm and, unless it is tied, its weight in `head`.
struct HeadUnits {
  UnitView head;
  UnitView embedding;
};

enum class Logits { kept, recomputed };

/// Rows and columns of the vocabulary that are worked on at once.
struct HeadCut {
  std::int64_t rows, columns;
};
HeadCut cut_head(std::int64_t rows, std::int64_t vocabulary);

template <class T>
class Head {
 public:
  explicit Head(ModelSpec const& spec);

  /// dx_out may be null: then only the loss is computed. Logits are kept if the carver has room.
  LossSum run(HeadUnits units, Tokens tokens, float scale, T const* x, T* dx_out, Carver& carver,
              device::Stream& stream) const;
  /// Logits [V] of one row.
  void logits(HeadUnits units, T const* row, float* out, Carver& carver,
              device::Stream& stream) const;
  /// Carves the temporaries of `run` and `logits`, to count them.
  void count(std::int64_t rows, Logits logits, Carver& carver) const {
    carve(cut(rows, logits), carver);
  }
  std::size_t scratch_bytes(std::int64_t rows, int threads) const;
  /// Of the weight in the flat of its unit: `run` sets its gradient there where the unit is fresh.
  shard::Range weight_range() const { return projection_.weight_range(); }

 private:
  struct Cut {
    std::int64_t rows, columns;  // that are worked on at once
    Logits logits;
  };
  struct Columns {  // of the vocabulary
    std::int64_t first, count;
  };
  struct Temporaries {
    T* normed;
    NormStatistics statistics;
    float* logits;  // part after part, or of one part
    T* dlogits;
    float* dnormed;  // sums over the vocabulary
    ops::SoftmaxState softmax;
    float* losses;
  };
  /// Rows of the micro-batch.
  struct Rows {
    std::int64_t count;
    T const* x;
    std::int32_t const* targets;
  };
  Cut cut(std::int64_t rows, Logits logits) const;
  Cut cut_for(std::int64_t rows, Carver const& carver) const;
  Temporaries carve(Cut cut, Carver& carver) const;
  ops::LogitsPart part_of(Rows const& rows, Columns columns, Cut cut,
                          Temporaries const& temporary) const;
  void compute(HeadUnits units, ops::LogitsPart const& part, Temporaries const& temporary,
               device::Stream& stream) const;
  LossSum losses(HeadUnits units, Rows const& rows, Cut cut, Temporaries const& temporary,
                 device::Stream& stream) const;
  void backward(HeadUnits units, Rows const& rows, Cut cut, float scale, T* dx,
                Temporaries const& temporary, device::Stream& stream) const;
  UnitView weight_unit(HeadUnits units) const { return tied_ ? units.embedding : units.head; }

  bool tied_;
  std::int64_t width_;
  NormLayer<T> norm_;
  Linear<T> projection_;
};

}  // namespace spillway::model
