// A decoder, composed of the parts that its configuration names, with explicit forward and
// backward, unit by unit. B sequences, T positions, C hidden size, V vocabulary. Activations are
// [B*T, C] of the compute type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lib/core/dtype.hpp"
#include "lib/device/stream.hpp"
#include "lib/model/spec.hpp"

namespace spillway::model {

/// B sequences of T tokens of one micro-batch.
struct Shape {
  std::int64_t B = 0;
  std::int64_t T = 0;
  std::int64_t rows() const { return B * T; }
};

/// What a block keeps between forward and backward besides its input.
enum class Keep { everything, selection, nothing };

/// One micro-batch of tokens: inputs [B*T], targets [B*T] with -1 where no loss is taken.
struct Tokens {
  std::span<std::int32_t const> inputs;
  std::span<std::int32_t const> targets;
};

/// The gathered weights of a unit (compute type) and its gradient accumulator (fp32), both in flat
/// order. The gradient is added to; with `fresh`, what Decoder::set_ranges names is set instead,
/// whatever it held. `gradient` is null in a forward pass.
struct UnitView {
  std::byte const* weights = nullptr;
  float* gradient = nullptr;
  bool fresh = false;
};

/// Sum over the micro-batch, not divided.
struct LossSum {
  double loss = 0;           // of -log p(target), natural logarithm
  std::int64_t targets = 0;  // positions with a target
};

class Decoder {
 public:
  virtual ~Decoder() = default;

  /// Bytes of one [B*T, C] activation.
  virtual std::size_t boundary_bytes(Shape) const = 0;
  /// Bytes that a block keeps of one micro-batch besides its input.
  virtual std::size_t kept_bytes(Shape, Keep) const = 0;
  /// Bytes of workspace that any one of the calls below needs, with blocks keeping `Keep`.
  virtual std::size_t workspace_bytes(Shape, Keep) const = 0;
  /// Bytes of scratch of a stream with so many threads.
  virtual std::size_t scratch_bytes(Shape, int threads) const = 0;

  /// Ranges of a unit's gradient that block_backward or, for the weight of the head, head() sets
  /// where UnitView::fresh: they need no zeros before a step's first micro-batch.
  virtual std::vector<shard::Range> set_ranges(UnitId unit) const = 0;

  virtual void embed_forward(UnitView embedding, Tokens, Shape, std::span<std::byte> x_out,
                             device::Stream&) = 0;
  virtual void embed_backward(UnitView embedding, Tokens, Shape, std::span<std::byte const> dx,
                              device::Stream&) = 0;
  /// `kept` has kept_bytes(shape, keep).
  virtual void block_forward(int layer, UnitView block, Shape, Keep, std::span<std::byte const> x,
                             std::span<std::byte> x_out, std::span<std::byte> kept,
                             std::span<std::byte> workspace, device::Stream&) = 0;
  /// dx: gradient of x_out in, of x out. What was not kept is recomputed, to the same bits.
  virtual void block_backward(int layer, UnitView block, Shape, Keep, std::span<std::byte const> x,
                              std::span<std::byte> dx, std::span<std::byte const> kept,
                              std::span<std::byte> workspace, device::Stream&) = 0;
  /// Of models with experts, else empty: [2, experts], how often each was chosen, then the sums of
  /// their probabilities. block_forward adds to them; the caller clears them.
  virtual std::span<double> expert_loads() = 0;
  /// [experts]: what block_backward adds to the gradient of each position's probabilities. 0 until
  /// the caller sets it.
  virtual std::span<float> balance_gradient() = 0;
  /// Final norm, head and cross entropy, forward and backward in one go; logits of a few rows at a
  /// time only. dx_out = gradient of `scale` * loss sum. With a tied head `embedding` holds the
  /// head's weight (and its gradient); else it is ignored. Where `dx_out` is empty only the loss is
  /// computed.
  virtual LossSum head(UnitView head, UnitView embedding, Tokens, Shape, float scale,
                       std::span<std::byte const> x, std::span<std::byte> dx_out,
                       std::span<std::byte> workspace, device::Stream&) = 0;
  /// Logits [V] in fp32 of one row of x.
  virtual void logits(UnitView head, UnitView embedding, std::int64_t row,
                      std::span<std::byte const> x, std::span<float> out,
                      std::span<std::byte> workspace, device::Stream&) = 0;
};

/// compute: f32 or bf16. max_T: the longest sequence that a Shape will have (rotary tables are made
/// for it).
std::unique_ptr<Decoder> make_decoder(ModelSpec const& spec, DType compute, std::int64_t max_T);

}  // namespace spillway::model
