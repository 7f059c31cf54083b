// A mixture of experts (Shazeer et al. 2017; Jiang et al. 2024): a router chooses k of E gated MLPs
// for each row and adds up their results, weighted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lib/model/feed_forward.hpp"
#include "lib/model/linear.hpp"

namespace spillway::model {

template <class T>
class ExpertsLayer : public FeedForward<T> {
 public:
  using typename FeedForward<T>::Gradients;
  ExpertsLayer(ModelConfig const& config, shard::FlatLayout const& layout, std::int64_t layer);

  FeedForwardArea<T> carve(std::int64_t rows, AreaCarvers carvers) const override;
  void forward(UnitView unit, std::int64_t rows, T const* normed, FeedForwardArea<T> const& area,
               device::Stream& stream) const override;
  void recompute(std::int64_t rows, T const* normed, FeedForwardArea<T> const& area,
                 device::Stream& stream) const override;
  void project(UnitView unit, std::int64_t rows, FeedForwardArea<T> const& area, T* out,
               device::Stream& stream) const override;
  void backward(UnitView unit, std::int64_t rows, T const* normed, FeedForwardArea<T> const& area,
                Gradients gradients, Carver& carver, device::Stream& stream) const override;
  void count_backward(std::int64_t rows, Carver& carver) const override {
    carve_backward(rows, carver);
  }
  std::size_t scratch_bytes(std::int64_t rows, int threads) const override;
  /// None: an expert without rows sets nothing.
  void append_set_ranges(std::vector<shard::Range>&) const override {}
  void add_loads(FeedForwardArea<T> const& area, std::span<double> loads) const override;

 private:
  struct Expert {
    Linear<T> gate, up, down;
  };
  struct Temporaries {
    T* dactivated;
    T* dgate;
    T* dup;
    float* sum;       // of two products that go to one expert's input
    float* dweights;  // [rows, k]
    T* dlogits;       // [rows, E]
    float* drouter;   // [rows, C]
  };
  std::int64_t count() const { return static_cast<std::int64_t>(experts_.size()); }
  std::int64_t width() const { return router_.in(); }
  std::int64_t inner() const { return experts_.front().down.in(); }
  Temporaries carve_backward(std::int64_t rows, Carver& carver) const;
  void activate(FeedForwardArea<T> const& area, device::Stream& stream) const;
  void experts_backward(UnitView unit, FeedForwardArea<T> const& area, Temporaries const& temporary,
                        device::Stream& stream) const;

  Linear<T> router_;
  std::vector<Expert> experts_;
  std::int64_t per_row_;
};

}  // namespace spillway::model
