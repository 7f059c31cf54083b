// Token and position embeddings.
#pragma once

#include <cstdint>
#include <span>

#include "lib/device/stream.hpp"

namespace spillway::ops {

/// x[r] = token_table[token[r]] (+ position_table[r % T_] where it is not null). Tokens must be in
/// [0, V).
template <class T>
struct EmbeddingForward {
  std::int64_t rows = 0, T_ = 0, C = 0;
  std::int32_t const* tokens = nullptr;
  T const* token_table = nullptr;     // [V, C]
  T const* position_table = nullptr;  // [max_positions, C] or null
  T* x = nullptr;
};

/// Adds dx[r] to the rows of the fp32 gradients, in row order whatever the threads.
template <class T>
struct EmbeddingBackward {
  std::int64_t rows = 0, T_ = 0, C = 0;
  std::int32_t const* tokens = nullptr;
  T const* dx = nullptr;
  float* dtoken_table = nullptr;
  float* dposition_table = nullptr;  // or null
};

template <class T>
void embedding_forward(EmbeddingForward<T> const&, device::Stream&);
template <class T>
void embedding_backward(EmbeddingBackward<T> const&, device::Stream&);

}  // namespace spillway::ops
