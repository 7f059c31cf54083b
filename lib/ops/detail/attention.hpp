// Attention on a chosen instruction set, for attention.cpp and the tests.
#pragma once

#include "lib/ops/attention.hpp"
#include "lib/ops/detail/isa.hpp"

namespace spillway::ops::detail {

template <class T>
void attention_forward(AttentionForward<T> const&, device::Stream&, Isa);
template <class T>
void attention_backward(AttentionBackward<T> const&, device::Stream&, Isa);

}  // namespace spillway::ops::detail
