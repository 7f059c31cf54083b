// Rotary positions (Su et al. 2021), in the half-split order of Hugging Face's Llama.
#pragma once

#include <cstdint>

#include "lib/device/stream.hpp"

namespace spillway::ops {

enum class Turn { forward, backward };  // backward rotates by the opposite angle

/// Rotates in place: row r is position r % T_. Tables are [T_, head_dim/2], fp32.
template <class T>
struct Rope {
  std::int64_t B = 0, T_ = 0, heads = 0, head_dim = 0;
  T* x = nullptr;
  std::int64_t stride = 0;  // elements between rows
  float const* cosine = nullptr;
  float const* sine = nullptr;
};

template <class T>
void rope(Rope<T> const&, Turn, device::Stream&);

}  // namespace spillway::ops
