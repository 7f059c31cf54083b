// Mixture of experts: which experts see a row, the order in which their rows lie, and the ways
// there and back. Routing is in fp32; T is float or bf16.
#pragma once

#include <cstdint>

#include "lib/device/stream.hpp"

namespace spillway::ops {

/// Each expert's rows begin at a multiple of this many, so that few shapes of product occur. The
/// rows between are 0 and add nothing to any sum.
inline constexpr std::int64_t kExpertRows = 64;

/// Rows that the experts of `rows` rows have at most, padding included.
inline std::int64_t expert_capacity(std::int64_t rows, std::int64_t experts, std::int64_t k) {
  return rows * k + experts * (kExpertRows - 1);
}

/// Softmax over all experts, then the k likeliest, their probabilities divided by their sum. Of
/// equal ones the lower index comes first. A row's choice depends on its logits alone.
struct Route {
  std::int64_t rows = 0, experts = 0, k = 0;
  float* probabilities = nullptr;  // [rows, experts]: logits in, probabilities out
  std::int32_t* chosen = nullptr;  // [rows, k]
  float* weights = nullptr;        // [rows, k]
};
void route(Route const&, device::Stream&);

template <class T>
struct RouteBackward {
  Route forward;                          // as route left it
  float const* dweights = nullptr;        // [rows, k]
  float const* dprobabilities = nullptr;  // [experts], of every row alike; or null
  T* dlogits = nullptr;                   // [rows, experts]
};
template <class T>
void route_backward(RouteBackward<T> const&, device::Stream&);

/// Rows sorted by expert, in their own order within each. A choice is row * k + its place among the
/// k; a slot is a row of an expert.
struct ExpertOrder {
  std::int64_t rows = 0, experts = 0, k = 0;
  std::int32_t const* chosen = nullptr;  // [rows, k]
  std::int32_t* slot_of = nullptr;       // [rows, k]
  std::int32_t* choice_of = nullptr;     // [expert_capacity]; -1: padding
  std::int64_t* begin = nullptr;         // [experts + 1]: first slot of each, then the end
};
/// On the caller's thread: `chosen` must be complete.
void order_by_expert(ExpertOrder const&);

/// y[slot] = x[row of the slot], 0 for padding; rows of C.
template <class T>
void gather_rows(ExpertOrder const&, std::int64_t C, T const* x, T* y, device::Stream&);

/// out[row] = base[row] + sum over the row's choices of weight * y[slot], in fp32, rounded once.
/// `base` null: 0. `weights` null: 1.
template <class T>
struct CombineRows {
  ExpertOrder order;
  std::int64_t C = 0;
  float const* base = nullptr;     // [rows, C]
  float const* weights = nullptr;  // [rows, k]
  T const* y = nullptr;            // [slots, C]
  T* out = nullptr;                // [rows, C]
};
template <class T>
void combine_rows(CombineRows<T> const&, device::Stream&);

/// On the way back through combine_rows: of the gradients of an expert's activation [slots, I] and
/// result [slots, C], which do not know the weights yet. dweights = sum of dactivated * activated;
/// then both are multiplied by the weight.
template <class T>
struct WeighRows {
  ExpertOrder order;
  std::int64_t I = 0, C = 0;
  float const* weights = nullptr;  // [rows, k]
  T const* activated = nullptr;
  T* dactivated = nullptr;
  T* dresult = nullptr;
  float* dweights = nullptr;  // [rows, k]
};
template <class T>
void weigh_rows(WeighRows<T> const&, device::Stream&);

}  // namespace spillway::ops
