// Launches of the embeddings on the CPU.
#include "lib/ops/embedding.hpp"

#include "lib/core/dtype.hpp"
#include "lib/core/numeric.hpp"
#include "lib/ops/detail/embedding_functors.hpp"
#include "lib/ops/detail/launch.hpp"

namespace spillway::ops {

template <class T>
void embedding_forward(EmbeddingForward<T> const& args, device::Stream& stream) {
  detail::launch_rows(args.rows, detail::EmbeddingForwardRow<T>{args}, stream);
}

template <class T>
void embedding_backward(EmbeddingBackward<T> const& args, device::Stream& stream) {
  detail::launch_rows(div_ceil(args.C, detail::kColumnChunk),
                      detail::EmbeddingBackwardColumns<T>{args}, stream);
}

template void embedding_forward(EmbeddingForward<float> const&, device::Stream&);
template void embedding_forward(EmbeddingForward<bf16> const&, device::Stream&);
template void embedding_backward(EmbeddingBackward<float> const&, device::Stream&);
template void embedding_backward(EmbeddingBackward<bf16> const&, device::Stream&);

}  // namespace spillway::ops
