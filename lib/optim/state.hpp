// State kinds of an element and their types: what a shard consists of (DESIGN.md section 1).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lib/core/dtype.hpp"

namespace spillway::optim {

/// In the order in which a tile's kinds lie beside each other: what an update writes is a prefix.
enum class StateKind : std::uint8_t { hi, lo, m, v, grad };
inline constexpr std::array kStateKinds{StateKind::hi, StateKind::lo, StateKind::m, StateKind::v,
                                        StateKind::grad};
inline constexpr std::size_t kKinds = kStateKinds.size();
constexpr std::size_t index(StateKind kind) { return static_cast<std::size_t>(kind); }

/// Numeric settings of the state: they change results, placement never does.
struct StateTypes {
  DType compute = DType::f32;  // f32: hi is the master, lo is empty. bf16: hi and lo are the master
  DType grad = DType::f32;     // f32 or bf16
  bool weights_only = false;   // evaluation and generation: nothing but hi is kept

  /// Bytes of one element of a kind; 0 for a kind that is not kept.
  std::size_t bytes(StateKind kind) const {
    if (weights_only && kind != StateKind::hi) return 0;
    switch (kind) {
      case StateKind::hi: return size_of(compute);
      case StateKind::lo: return compute == DType::f32 ? 0 : 2;
      case StateKind::m:
      case StateKind::v: return 4;
      case StateKind::grad: return size_of(grad);
    }
    return 0;
  }
  std::size_t bytes_all() const {
    std::size_t sum = 0;
    for (StateKind kind : kStateKinds) sum += bytes(kind);
    return sum;
  }
};

/// Pieces of all kinds of the same elements; null where a kind is not kept or not asked for.
struct StateView {
  std::array<std::byte*, kKinds> data{};
  std::int64_t elements = 0;

  std::byte* operator[](StateKind kind) const { return data[index(kind)]; }
  template <class T>
  T* as(StateKind kind) const {
    return reinterpret_cast<T*>(data[index(kind)]);
  }
};

}  // namespace spillway::optim
