// Walks the schedule of a step: fetch, gather, compute, reduce, give back. Knows stores only as
// interfaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lib/comm/communicator.hpp"
#include "lib/model/decoder.hpp"
#include "lib/optim/schedule.hpp"
#include "lib/train/schedule.hpp"
#include "lib/train/state_store.hpp"

namespace spillway::train {

struct EngineOptions {
  model::Shape micro;     // sequences of a micro-batch and their length
  int micro_batches = 1;  // of one step and rank
  int waves = 1;          // divides micro_batches
  model::Keep keep = model::Keep::everything;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  double clip = 1.0;  // 0: off
};

/// Bytes of the engine's memory by purpose; the planner adds them up, the engine carves them from
/// one block.
struct EngineSizes {
  std::size_t boundaries = 0;  // inputs of the stages, for the micro-batches of a wave
  std::size_t kept = 0;
  std::size_t workspace = 0;
  std::size_t gradients = 0;  // accumulators of whole units
  std::size_t total() const { return boundaries + kept + workspace + gradients; }
};
EngineSizes engine_sizes(model::ModelSpec const& spec, model::Decoder const& decoder,
                         EngineOptions const& options, int ranks);

/// State of the optimizer between steps: what a restart needs besides the shards.
struct Progress {
  std::int64_t step = 0;     // steps finished
  std::int64_t updates = 0;  // of which not skipped
  std::int64_t tokens = 0;   // target tokens seen
  std::int64_t skipped_in_a_row = 0;
};

struct StepResult {
  double loss = 0;  // mean over all ranks' targets
  double grad_norm = 0;
  std::optional<double>
      aux_loss;  // of models with experts: their load balance, without coefficient
  std::int64_t targets = 0;
  bool skipped = false;  // not finite: no rank updates
};

/// One rank's part of training. All ranks call the same functions in the same order.
class Engine {
 public:
  struct Parts {
    model::ModelSpec const& spec;
    model::Decoder& decoder;
    comm::Communicator& comm;
    StateStore& store;
    device::Stream& stream;
    std::function<void(std::string_view)> set_phase;  // for the watchdog
  };
  /// `memory` has engine_sizes(...).total() bytes.
  Engine(Parts parts, EngineOptions options, ScheduleShape shape, std::span<std::byte> memory);
  ~Engine();

  Progress const& progress() const { return progress_; }
  void resume(Progress progress) { progress_ = progress; }

  /// One optimizer step over this rank's micro-batches. The update itself is applied when the units
  /// are next fetched.
  StepResult step(std::span<model::Tokens const> micro_batches, double lr);
  /// Mean loss of micro-batches (all ranks), without gradients. Applies a pending update first.
  double evaluate(std::span<model::Tokens const> micro_batches);
  /// Applies a pending update now. `read_anyway`: also where none is pending, every unit's state is
  /// read (a checkpoint attached to the store then sees it).
  void flush(bool read_anyway);
  bool pending() const { return pending_.has_value(); }
  /// Logits [V] of the last of `tokens` (at most the micro-batch's length); every rank gets the
  /// same.
  void next_logits(std::span<std::int32_t const> tokens, std::span<float> logits);

 private:
  struct Memory;

  std::span<std::byte> gather(int fetch, UnitId unit);
  model::UnitView view(int fetch, UnitId unit);
  void run_forward(Op const& op, std::span<model::Tokens const> wave);
  void run_head(Op const& op, std::span<model::Tokens const> wave, bool with_gradient);
  void run_block_backward(Op const& op);
  void run_embed_backward(Op const& op, std::span<model::Tokens const> wave);
  /// Where a unit's gradient accumulates: in the store itself where it lends it, else in the
  /// engine's memory.
  std::span<float> gradient_of(UnitId unit);
  void clear(std::span<float> values);
  /// Zeros where backward only adds.
  void open_gradient(UnitId unit, std::span<float> accumulator);
  void close_gradient(UnitId unit, std::span<float> accumulator, GradientPart part);
  void begin(Schedule const& schedule);
  void finish_step(StepResult& result, double lr);
  void set_phase(std::string_view what, UnitId unit);

  Parts parts_;
  EngineOptions options_;
  Schedule train_[2], forward_[2], flush_[2];  // [1]: with a pending update
  std::unique_ptr<Memory> memory_;
  std::optional<ops::AdamwStep> pending_;
  Progress progress_;
  // Of the step under way.
  model::LossSum sum_;
  float scale_ = 0;
  double aux_loss_ = 0;
  std::vector<double> squares_;  // of each unit's gradient shard
};

}  // namespace spillway::train
