#include "lib/model/linear.hpp"

#include <algorithm>

#include "lib/core/error.hpp"
#include "lib/model/unit_access.hpp"
#include "lib/ops/pointwise.hpp"

namespace spillway::model {
namespace {

ops::MatmulArgs product(std::int64_t M, std::int64_t N, std::int64_t K) {
  ops::MatmulArgs args;
  args.M = M;
  args.N = N;
  args.K = K;
  return args;
}

}  // namespace

LinearPlace find_linear(shard::FlatLayout const& layout, std::string const& module,
                        WeightOrder order, bool has_bias) {
  auto const& weight = layout.find(module + ".weight");
  bool const in_out = order == WeightOrder::in_out;
  LinearPlace place;
  place.in = weight.shape.at(in_out ? 0 : 1);
  place.out = weight.shape.at(in_out ? 1 : 0);
  place.order = order;
  place.weight = weight.range.begin;
  if (has_bias) place.bias = layout.find(module + ".bias").range.begin;
  return place;
}

/// The weight as [in, out], or as its transpose [out, in], however it is stored.
template <class T>
ops::Matrix Linear<T>::weight_matrix(UnitView unit, bool transposed) const {
  bool const stored_out_in = place_.order == WeightOrder::out_in;
  return {weights_at<T>(unit, place_.weight), dtype_of<T>, stored_out_in != transposed, 0};
}

template <class T>
template <class Out>
void Linear<T>::forward(UnitView unit, std::int64_t rows, T const* x, Out* y,
                        device::Stream& stream) const {
  ops::MatmulArgs args = product(rows, place_.out, place_.in);
  args.a = {x, dtype_of<T>, false, 0};
  args.b = weight_matrix(unit, false);
  args.c = y;
  args.c_type = dtype_of<Out>;
  if (place_.bias >= 0) args.bias = weights_at<T>(unit, place_.bias);
  ops::matmul(args, stream);
}

template <class T>
void Linear<T>::backward_weights(UnitView unit, std::int64_t rows, T const* x, T const* dy,
                                 device::Stream& stream) const {
  bool const in_out = place_.order == WeightOrder::in_out;
  ops::MatmulArgs args =
      product(in_out ? place_.in : place_.out, in_out ? place_.out : place_.in, rows);
  args.a = {in_out ? x : dy, dtype_of<T>, true, 0};
  args.b = {in_out ? dy : x, dtype_of<T>, false, 0};
  args.c = gradient_at(unit, place_.weight);
  args.accumulate = !unit.fresh;
  args.cold = true;
  ops::matmul(args, stream);
  if (place_.bias >= 0)
    ops::bias_backward(rows, place_.out, dy, gradient_at(unit, place_.bias), stream);
}

template <class T>
template <class Out>
void Linear<T>::backward_input(UnitView unit, std::int64_t rows, T const* dy, Out* dx,
                               bool accumulate, device::Stream& stream) const {
  ops::MatmulArgs args = product(rows, place_.in, place_.out);
  args.a = {dy, dtype_of<T>, false, 0};
  args.b = weight_matrix(unit, true);
  args.c = dx;
  args.c_type = dtype_of<Out>;
  args.accumulate = accumulate;
  ops::matmul(args, stream);
}

template <class T>
Linear<T> Linear<T>::outputs(std::int64_t first, std::int64_t count) const {
  expect(place_.order == WeightOrder::out_in && place_.bias < 0,
         "a layer is cut where its rows lie beside each other");
  LinearPlace part = place_;
  part.weight += first * place_.in;
  part.out = count;
  return Linear(part);
}

template <class T>
std::size_t Linear<T>::scratch_bytes(std::int64_t rows, int threads) const {
  return most_scratch(rows, threads, ops::matmul_scratch_bytes);
}

template <class T>
std::size_t Linear<T>::scratch_bound(std::int64_t rows, int threads) const {
  return most_scratch(rows, threads, ops::matmul_scratch_bound);
}

template <class T>
std::size_t Linear<T>::most_scratch(std::int64_t rows, int threads, Count count) const {
  ops::Matrix plain{nullptr, dtype_of<T>, false, 0};
  ops::Matrix turned{nullptr, dtype_of<T>, true, 0};
  bool const in_out = place_.order == WeightOrder::in_out;
  ops::MatmulArgs forward = product(rows, place_.out, place_.in);
  forward.a = plain;
  forward.b = in_out ? plain : turned;
  ops::MatmulArgs weights =
      product(in_out ? place_.in : place_.out, in_out ? place_.out : place_.in, rows);
  weights.a = turned;
  weights.b = plain;
  weights.accumulate = true;
  ops::MatmulArgs input = product(rows, place_.in, place_.out);
  input.a = plain;
  input.b = in_out ? turned : plain;
  std::size_t bytes = count(weights, threads);
  for (DType const type : {DType::f32, dtype_of<T>}) {
    for (auto args : {forward, input}) {
      args.c_type = type;
      bytes = std::max(bytes, count(args, threads));
      args.accumulate = type == DType::f32;
      bytes = std::max(bytes, count(args, threads));
    }
  }
  return bytes;
}

template <class T>
void backward_inputs(UnitView unit, std::int64_t rows, std::span<InputTerm<T> const> terms, T* dx,
                     float* sum, device::Stream& stream) {
  if (terms.size() == 1) {
    terms[0].layer->backward_input(unit, rows, terms[0].dy, dx, false, stream);
    return;
  }
  float* target = sum;
  if constexpr (std::is_same_v<T, float>) target = dx;
  for (std::size_t i = 0; i < terms.size(); ++i)
    terms[i].layer->backward_input(unit, rows, terms[i].dy, target, i > 0, stream);
  if constexpr (!std::is_same_v<T, float>)
    ops::round_to_bf16(rows * terms[0].layer->in(), sum, dx, stream);
}

template <class T>
std::int64_t sum_elements(std::int64_t rows, std::int64_t in, std::size_t terms) {
  return terms > 1 && !std::is_same_v<T, float> ? rows * in : 0;
}

template class Linear<float>;
template class Linear<bf16>;
template void Linear<float>::forward(UnitView, std::int64_t, float const*, float*,
                                     device::Stream&) const;
template void Linear<bf16>::forward(UnitView, std::int64_t, bf16 const*, bf16*,
                                    device::Stream&) const;
template void Linear<bf16>::forward(UnitView, std::int64_t, bf16 const*, float*,
                                    device::Stream&) const;
template void Linear<float>::backward_input(UnitView, std::int64_t, float const*, float*, bool,
                                            device::Stream&) const;
template void Linear<bf16>::backward_input(UnitView, std::int64_t, bf16 const*, bf16*, bool,
                                           device::Stream&) const;
template void Linear<bf16>::backward_input(UnitView, std::int64_t, bf16 const*, float*, bool,
                                           device::Stream&) const;
template void backward_inputs(UnitView, std::int64_t, std::span<InputTerm<float> const>, float*,
                              float*, device::Stream&);
template void backward_inputs(UnitView, std::int64_t, std::span<InputTerm<bf16> const>, bf16*,
                              float*, device::Stream&);
template std::int64_t sum_elements<float>(std::int64_t, std::int64_t, std::size_t);
template std::int64_t sum_elements<bf16>(std::int64_t, std::int64_t, std::size_t);

}  // namespace spillway::model
