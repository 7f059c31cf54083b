// A whole model with its optimizer state in memory, one flat per unit: the plainest loop around a
// Decoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lib/device/device.hpp"
#include "lib/model/decoder.hpp"
#include "lib/model/spec.hpp"
#include "lib/ops/adamw.hpp"

namespace spillway::test {

class ResidentModel {
 public:
  struct Options {
    DType compute = DType::f32;
    model::Keep keep = model::Keep::everything;
    int threads = 2;
    model::Shape shape;
  };
  ResidentModel(model::ModelSpec spec, Options options);

  /// Sets the master weight, rounded to nearest even in the compute type.
  void set(std::string const& name, std::vector<float> const& values);
  std::vector<float> master(std::string const& name) const;
  std::vector<float> gradient(std::string const& name) const;
  model::ModelSpec const& spec() const { return spec_; }

  void zero_gradients();
  /// Adds the gradient of scale * (loss sum + tokens * the coefficient's share of the balance).
  model::LossSum forward_backward(model::Tokens tokens, float scale);
  model::LossSum evaluate(model::Tokens tokens);
  /// [rows, V] of all rows, or of the rows from `first` on.
  std::vector<float> logits(model::Tokens tokens, std::int64_t first = 0);
  /// The last unit's input and its gradient after forward_backward, bytes of the compute type.
  std::vector<std::byte> const& boundary(std::size_t index) const { return boundaries_.at(index); }
  std::vector<std::byte> const& boundary_gradient() const { return dx_; }

  /// Of the experts in the last forward_backward.
  double balance_loss() const { return balance_loss_; }

  double gradient_norm();
  void update(ops::AdamwStep const& step);

 private:
  struct Unit {
    shard::FlatLayout layout;
    std::vector<std::byte> weights;  // fp32 masters, or bf16 with `lo`
    std::vector<std::int16_t> lo;
    std::vector<float> gradient, m, v;
  };
  struct Place {
    std::size_t unit;
    shard::Range range;
    bool decay;
  };
  Place find(std::string const& name) const;
  model::UnitView view(std::size_t unit, bool backward);
  void forward(model::Tokens tokens);
  void balance(float scale);
  std::span<std::byte> poisoned_workspace();

  model::ModelSpec spec_;
  Options options_;
  std::unique_ptr<model::Decoder> decoder_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_;
  std::vector<Unit> units_;
  std::vector<std::vector<std::byte>> boundaries_;  // inputs of the blocks, then of the head
  std::vector<std::vector<std::byte>> kept_;
  std::vector<std::byte> dx_;
  double balance_loss_ = 0;
  std::vector<std::byte> workspace_;
};

}  // namespace spillway::test
