#include "lib/model/decoder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"
#include "lib/model/block.hpp"
#include "lib/model/carver.hpp"
#include "lib/model/head.hpp"
#include "lib/model/names.hpp"
#include "lib/model/rotary.hpp"
#include "lib/model/unit_access.hpp"
#include "lib/ops/embedding.hpp"

namespace spillway::model {
namespace {

template <class T>
T const* as(std::span<std::byte const> bytes, std::int64_t count) {
  expect(bytes.size() >= static_cast<std::size_t>(count) * sizeof(T), "an activation has its size");
  return reinterpret_cast<T const*>(bytes.data());
}

template <class T>
T* as(std::span<std::byte> bytes, std::int64_t count) {
  expect(bytes.size() >= static_cast<std::size_t>(count) * sizeof(T), "an activation has its size");
  return reinterpret_cast<T*>(bytes.data());
}

/// Checks what every call relies on.
void check(Shape shape, std::int64_t max_T) {
  expect(shape.B > 0 && shape.T > 0, "a micro-batch has rows");
  expect(shape.T <= max_T, "a sequence is not longer than the decoder was made for");
}

template <class T>
class TypedDecoder : public Decoder {
 public:
  TypedDecoder(ModelSpec const& spec, std::int64_t max_T)
      : max_T_(max_T),
        width_(spec.config.hidden_size),
        tied_(spec.config.tied_head),
        rotary_(spec.config, max_T),
        head_(spec) {
    ModelNames const& names = model_names(spec.config.family);
    shard::FlatLayout const embedding = spec.layout(UnitId{0});
    token_table_ = embedding.find(names.token_embedding + ".weight").range.begin;
    if (spec.config.positions == Positions::learned)
      position_table_ = embedding.find(names.position_embedding + ".weight").range.begin;
    expert_loads_.resize(static_cast<std::size_t>(2 * spec.config.experts));
    balance_gradient_.resize(static_cast<std::size_t>(spec.config.experts));
    for (std::int64_t layer = 0; layer < spec.config.layers; ++layer)
      blocks_.emplace_back(spec.config, spec.layout(UnitId{narrow<int>(layer + 1)}), layer,
                           rotary_);
  }
  TypedDecoder(TypedDecoder const&) = delete;  // blocks refer to rotary_
  TypedDecoder& operator=(TypedDecoder const&) = delete;

  std::size_t boundary_bytes(Shape shape) const override {
    return static_cast<std::size_t>(shape.rows() * width_) * sizeof(T);
  }

  std::size_t kept_bytes(Shape shape, Keep keep) const override {
    Carver kept, rest;
    blocks_.front().carve(shape, keep, kept, rest);
    return kept.peak();
  }

  std::size_t workspace_bytes(Shape shape, Keep keep) const override {
    Carver kept, rest, head;
    blocks_.front().carve(shape, keep, kept, rest);
    blocks_.front().count_backward(shape, rest);
    // Where everything is kept, there is memory for the logits of some rows too.
    head_.count(shape.rows(), keep == Keep::everything ? Logits::kept : Logits::recomputed, head);
    return std::max(rest.peak(), head.peak());
  }

  std::size_t scratch_bytes(Shape shape, int threads) const override {
    return std::max(blocks_.front().scratch_bytes(shape, threads),
                    head_.scratch_bytes(shape.rows(), threads));
  }

  std::vector<shard::Range> set_ranges(UnitId unit) const override {
    auto const index = static_cast<std::size_t>(unit.get());
    std::size_t const head_unit = blocks_.size() + 1;
    if (index == (tied_ ? 0 : head_unit)) return {head_.weight_range()};
    if (index == 0 || index == head_unit) return {};
    return blocks_[index - 1].set_ranges();
  }

  void embed_forward(UnitView embedding, Tokens tokens, Shape shape, std::span<std::byte> x_out,
                     device::Stream& stream) override {
    check_tokens(tokens, shape);
    ops::EmbeddingForward<T> args;
    args.rows = shape.rows();
    args.T_ = shape.T;
    args.C = width_;
    args.tokens = tokens.inputs.data();
    args.token_table = weights_at<T>(embedding, token_table_);
    if (position_table_ >= 0) args.position_table = weights_at<T>(embedding, position_table_);
    args.x = as<T>(x_out, shape.rows() * width_);
    ops::embedding_forward(args, stream);
  }

  void embed_backward(UnitView embedding, Tokens tokens, Shape shape, std::span<std::byte const> dx,
                      device::Stream& stream) override {
    check_tokens(tokens, shape);
    ops::EmbeddingBackward<T> args;
    args.rows = shape.rows();
    args.T_ = shape.T;
    args.C = width_;
    args.tokens = tokens.inputs.data();
    args.dx = as<T>(dx, shape.rows() * width_);
    args.dtoken_table = gradient_at(embedding, token_table_);
    if (position_table_ >= 0) args.dposition_table = gradient_at(embedding, position_table_);
    ops::embedding_backward(args, stream);
  }

  void block_forward(int layer, UnitView unit, Shape shape, Keep keep, std::span<std::byte const> x,
                     std::span<std::byte> x_out, std::span<std::byte> kept,
                     std::span<std::byte> workspace, device::Stream& stream) override {
    check(shape, max_T_);
    Block<T> const& block = blocks_.at(static_cast<std::size_t>(layer));
    Carver keeper(kept), carver(workspace);
    BlockArea<T> const area = block.carve(shape, keep, keeper, carver);
    std::int64_t const count = shape.rows() * width_;
    block.forward(unit, shape, as<T>(x, count), as<T>(x_out, count), area, stream);
    block.add_loads(area, expert_loads_);
  }

  void block_backward(int layer, UnitView unit, Shape shape, Keep keep,
                      std::span<std::byte const> x, std::span<std::byte> dx,
                      std::span<std::byte const> kept, std::span<std::byte> workspace,
                      device::Stream& stream) override {
    check(shape, max_T_);
    expect(unit.gradient != nullptr, "a backward pass has a gradient accumulator");
    Block<T> const& block = blocks_.at(static_cast<std::size_t>(layer));
    // What is kept is only read: recompute writes into the workspace's part of the area.
    Carver keeper({const_cast<std::byte*>(kept.data()), kept.size()}), carver(workspace);
    BlockArea<T> area = block.carve(shape, keep, keeper, carver);
    area.feed_forward.balance_gradient = balance_gradient_.data();
    std::int64_t const count = shape.rows() * width_;
    block.recompute(unit, shape, keep, as<T>(x, count), area, stream);
    block.backward(unit, shape, as<T>(x, count), area, as<T>(dx, count), carver, stream);
  }

  std::span<double> expert_loads() override { return expert_loads_; }
  std::span<float> balance_gradient() override { return balance_gradient_; }

  LossSum head(UnitView head, UnitView embedding, Tokens tokens, Shape shape, float scale,
               std::span<std::byte const> x, std::span<std::byte> dx_out,
               std::span<std::byte> workspace, device::Stream& stream) override {
    check_tokens(tokens, shape);
    Carver carver(workspace);
    std::int64_t const count = shape.rows() * width_;
    T* const dx = dx_out.empty() ? nullptr : as<T>(dx_out, count);
    return head_.run({head, embedding}, tokens, scale, as<T>(x, count), dx, carver, stream);
  }

  void logits(UnitView head, UnitView embedding, std::int64_t row, std::span<std::byte const> x,
              std::span<float> out, std::span<std::byte> workspace,
              device::Stream& stream) override {
    Carver carver(workspace);
    T const* const rows = as<T>(x, (row + 1) * width_);
    head_.logits({head, embedding}, rows + row * width_, out.data(), carver, stream);
  }

 private:
  void check_tokens(Tokens const& tokens, Shape shape) const {
    check(shape, max_T_);
    std::size_t const rows = static_cast<std::size_t>(shape.rows());
    expect(tokens.inputs.size() == rows && tokens.targets.size() == rows,
           "there is one input and one target for every row");
  }

  std::int64_t max_T_;
  std::int64_t width_;
  bool tied_;
  std::int64_t token_table_ = 0;
  std::int64_t position_table_ = -1;
  RotaryTable rotary_;
  std::vector<Block<T>> blocks_;
  std::vector<double> expert_loads_;
  std::vector<float> balance_gradient_;
  Head<T> head_;
};

}  // namespace

std::unique_ptr<Decoder> make_decoder(ModelSpec const& spec, DType compute, std::int64_t max_T) {
  if (compute == DType::f32) return std::make_unique<TypedDecoder<float>>(spec, max_T);
  if (compute == DType::bf16) return std::make_unique<TypedDecoder<bf16>>(spec, max_T);
  fail(Fault::usage, fmt::format("cannot compute in {} (decoders run in fp32 and bf16). Use bf16?",
                                 name_of(compute)));
}

}  // namespace spillway::model
