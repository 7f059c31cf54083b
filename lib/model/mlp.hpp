// A block's feed-forward half with one MLP: GELU (GPT-2) or gated SiLU (Llama).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "lib/model/feed_forward.hpp"
#include "lib/model/linear.hpp"

namespace spillway::model {

template <class T>
class MlpLayer : public FeedForward<T> {
 public:
  using typename FeedForward<T>::Gradients;
  MlpLayer(ModelConfig const& config, shard::FlatLayout const& layout, std::int64_t layer);

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
  void add_loads(FeedForwardArea<T> const&, std::span<double>) const override {}
  void append_set_ranges(std::vector<shard::Range>& ranges) const override;

 private:
  struct Temporaries {
    T* dactivated;
    T* dgate;
    T* dup;
    float* sum;
  };
  std::int64_t width() const { return down_.in(); }
  Temporaries carve_backward(std::int64_t rows, Carver& carver) const;

  std::optional<Linear<T>> gate_;
  Linear<T> up_;
  Linear<T> down_;
};

}  // namespace spillway::model
