#include "lib/model/norm.hpp"

#include "lib/model/unit_access.hpp"
#include "lib/ops/norm.hpp"

namespace spillway::model {

template <class T>
NormLayer<T>::NormLayer(ModelConfig const& config, shard::FlatLayout const& layout,
                        std::string const& module)
    : kind_(config.norm),
      eps_(static_cast<float>(config.norm_eps)),
      width_(config.hidden_size),
      weight_(layout.find(module + ".weight").range.begin) {
  if (kind_ == Norm::layer) bias_ = layout.find(module + ".bias").range.begin;
}

template <class T>
void NormLayer<T>::forward(UnitView unit, std::int64_t rows, T const* x, T* y,
                           NormStatistics statistics, device::Stream& stream) const {
  ops::NormForward<T> args;
  args.rows = rows;
  args.C = width_;
  args.eps = eps_;
  args.x = x;
  args.weight = weights_at<T>(unit, weight_);
  args.y = y;
  args.rstd = statistics.rstd;
  if (kind_ == Norm::rms) {
    ops::rms_norm_forward(args, stream);
    return;
  }
  args.bias = weights_at<T>(unit, bias_);
  args.mean = statistics.mean;
  ops::layer_norm_forward(args, stream);
}

template <class T>
void NormLayer<T>::backward(UnitView unit, std::int64_t rows, T const* x, NormStatistics statistics,
                            T const* dy, T* dx, Target target, device::Stream& stream) const {
  ops::NormBackward<T> args;
  args.rows = rows;
  args.C = width_;
  args.x = x;
  args.weight = weights_at<T>(unit, weight_);
  args.rstd = statistics.rstd;
  args.dy = dy;
  args.dx = dx;
  args.add_to_dx = target == Target::add;
  args.dweight = gradient_at(unit, weight_);
  if (kind_ == Norm::rms) {
    ops::rms_norm_backward(args, stream);
    return;
  }
  args.mean = statistics.mean;
  args.dbias = gradient_at(unit, bias_);
  ops::layer_norm_backward(args, stream);
}

template class NormLayer<float>;
template class NormLayer<bf16>;

}  // namespace spillway::model
