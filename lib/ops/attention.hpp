// Causal self-attention with grouped key/value heads, in O(T) memory: scores are never stored whole
// (Milakov & Gimelshein 2018; Dao et al. 2022). Softmax and sums in fp32. T is float or bf16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/device/stream.hpp"

namespace spillway::ops {

/// Head h of q reads head h / (heads / kv_heads) of k and v. Rows are positions: q row r, head h
/// starts at q + r * q_stride + h * head_dim; strides in elements, so that q, k, v may lie in one
/// [B*T, q|k|v] matrix.
template <class T>
struct AttentionForward {
  std::int64_t B = 0, T_ = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1;          // usually 1 / sqrt(head_dim)
  std::int64_t window = 0;  // positions a query sees, itself included; 0: all before it
  T const* q = nullptr;
  T const* k = nullptr;
  T const* v = nullptr;
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0, out_stride = 0;
  T* out = nullptr;
  float* logsumexp = nullptr;  // [B, heads, T]
};

template <class T>
struct AttentionBackward {
  AttentionForward<T> forward;  // with `out` and `logsumexp` as forward left them
  T const* dout = nullptr;      // laid out as out
  T* dq = nullptr;              // laid out as q, k, v; set, not added
  T* dk = nullptr;
  T* dv = nullptr;
};

template <class T>
void attention_forward(AttentionForward<T> const&, device::Stream&);
template <class T>
void attention_backward(AttentionBackward<T> const&, device::Stream&);
/// Stream scratch of either call.
std::size_t attention_scratch_bytes(std::int64_t B, std::int64_t T_, std::int64_t heads,
                                    std::int64_t head_dim, int threads);

}  // namespace spillway::ops
