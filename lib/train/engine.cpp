#include "lib/train/engine.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"
#include "lib/device/for_each.hpp"
#include "lib/train/balance.hpp"

namespace spillway::train {
namespace {

constexpr std::size_t kAlignment = 4096;

std::int64_t padded_elements(model::ModelSpec const& spec, UnitId unit, int ranks) {
  return spec.layout(unit).shard_elements(ranks) * ranks;
}

std::size_t gradient_bytes(model::ModelSpec const& spec, UnitId unit, int ranks) {
  return round_up(static_cast<std::size_t>(padded_elements(spec, unit, ranks)) * sizeof(float),
                  kAlignment);
}

// The gradient of a tied table accumulates from the head to the embedding, in memory of its own
// beside the others'.
std::size_t tied_gradient_bytes(model::ModelSpec const& spec, int ranks) {
  return spec.config.tied_head ? gradient_bytes(spec, UnitId{0}, ranks) : 0;
}

}  // namespace

EngineSizes engine_sizes(model::ModelSpec const& spec, model::Decoder const& decoder,
                         EngineOptions const& options, int ranks) {
  auto const levels = static_cast<std::size_t>(spec.config.layers) + 2;  // inputs, output, gradient
  auto const wave = static_cast<std::size_t>(div_exact(options.micro_batches, options.waves));
  auto const blocks = static_cast<std::size_t>(spec.config.layers);
  EngineSizes sizes;
  sizes.boundaries = levels * wave * round_up(decoder.boundary_bytes(options.micro), kAlignment);
  sizes.kept =
      blocks * wave * round_up(decoder.kept_bytes(options.micro, options.keep), kAlignment);
  sizes.workspace = round_up(decoder.workspace_bytes(options.micro, options.keep), kAlignment);
  int const first = spec.config.tied_head ? 1 : 0;
  for (int unit = first; unit < narrow<int>(spec.units.size()); ++unit)
    sizes.gradients = std::max(sizes.gradients, gradient_bytes(spec, UnitId{unit}, ranks));
  sizes.gradients += tied_gradient_bytes(spec, ranks);
  return sizes;
}

/// The engine's block, cut into its parts.
struct Engine::Memory {
  std::span<std::byte> boundaries, kept, workspace, gradients;
  std::size_t boundary_stride = 0, boundary_bytes = 0, kept_stride = 0, kept_bytes = 0, wave = 0;

  /// Input of stage `level` (0 .. blocks); level blocks + 1 is the gradient that travels down.
  std::span<std::byte> boundary(std::size_t level, std::size_t micro) const {
    return boundaries.subspan((level * wave + micro) * boundary_stride, boundary_bytes);
  }
  std::span<std::byte> block_kept(std::size_t block, std::size_t micro) const {
    return kept.subspan((block * wave + micro) * kept_stride, kept_bytes);
  }
  std::span<float> gradient(std::size_t offset, std::int64_t elements) const {
    return {reinterpret_cast<float*>(gradients.data() + offset),
            static_cast<std::size_t>(elements)};
  }
};

Engine::Engine(Parts parts, EngineOptions options, ScheduleShape shape, std::span<std::byte> memory)
    : parts_(std::move(parts)), options_(options), memory_(std::make_unique<Memory>()) {
  for (bool pending : {false, true}) {
    train_[pending] = train_schedule(shape, pending);
    forward_[pending] = forward_schedule(shape, pending);
    flush_[pending] = flush_schedule(shape, pending ? Use::update : Use::save);
  }
  auto const sizes = engine_sizes(parts_.spec, parts_.decoder, options_, parts_.comm.size());
  expect(memory.size() >= sizes.total(), "the engine gets the memory it asked for");
  auto take = [&memory](std::size_t bytes) {
    auto const part = memory.first(bytes);
    memory = memory.subspan(bytes);
    return part;
  };
  memory_->boundaries = take(sizes.boundaries);
  memory_->kept = take(sizes.kept);
  memory_->workspace = take(sizes.workspace);
  memory_->gradients = take(sizes.gradients);
  memory_->boundary_bytes = parts_.decoder.boundary_bytes(options_.micro);
  memory_->boundary_stride = round_up(memory_->boundary_bytes, kAlignment);
  memory_->kept_bytes = parts_.decoder.kept_bytes(options_.micro, options_.keep);
  memory_->kept_stride = round_up(memory_->kept_bytes, kAlignment);
  memory_->wave = static_cast<std::size_t>(div_exact(options_.micro_batches, options_.waves));
}

Engine::~Engine() = default;

void Engine::set_phase(std::string_view what, UnitId unit) {
  if (!parts_.set_phase) return;
  parts_.set_phase(fmt::format("step {}, {} of {}", progress_.step + 1, what,
                               parts_.spec.units[static_cast<std::size_t>(unit.get())].name));
}

std::span<std::byte> Engine::gather(int fetch, UnitId unit) {
  set_phase("fetch", unit);
  auto const whole = parts_.store.acquire(fetch);
  set_phase("gather", unit);
  if (!whole.empty()) parts_.comm.all_gather(whole, parts_.stream);
  return whole;
}

model::UnitView Engine::view(int fetch, UnitId unit) {
  return {.weights = gather(fetch, unit).data(), .gradient = nullptr};
}

void Engine::run_forward(Op const& op, std::span<model::Tokens const> wave) {
  auto const unit = view(op.fetch, op.unit);
  set_phase("forward", op.unit);
  auto const level = static_cast<std::size_t>(op.unit.get());
  if (op.kind == OpKind::embed) std::ranges::fill(parts_.decoder.expert_loads(), 0.0);
  for (std::size_t micro = 0; micro < wave.size(); ++micro) {
    if (op.kind == OpKind::embed) {
      parts_.decoder.embed_forward(unit, wave[micro], options_.micro, memory_->boundary(0, micro),
                                   parts_.stream);
    } else {
      parts_.decoder.block_forward(
          narrow<int>(level) - 1, unit, options_.micro, options_.keep,
          memory_->boundary(level - 1, micro), memory_->boundary(level, micro),
          memory_->block_kept(level - 1, micro), memory_->workspace, parts_.stream);
    }
  }
  parts_.store.release(op.fetch);
}

std::span<float> Engine::gradient_of(UnitId unit) {
  int const ranks = parts_.comm.size();
  if (options_.waves == 1 && ranks == 1) {
    auto const stored = parts_.store.lend_gradient(unit);
    if (!stored.empty()) return stored;
  }
  return memory_->gradient(unit.get() == 0 ? 0 : tied_gradient_bytes(parts_.spec, ranks),
                           padded_elements(parts_.spec, unit, ranks));
}

void Engine::clear(std::span<float> values) {
  // Pages of 1 Mi elements, so that the team shares the clearing.
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  auto const pieces = narrow<std::int64_t>(div_ceil(values.size(), kPiece));
  device::for_each_row(
      pieces,
      [&](std::int64_t piece) {
        auto const from = static_cast<std::size_t>(piece) * kPiece;
        auto const size = std::min(kPiece, values.size() - from);
        std::memset(values.data() + from, 0, size * sizeof(float));
      },
      parts_.stream);
}

void Engine::open_gradient(UnitId unit, std::span<float> accumulator) {
  std::size_t from = 0;
  for (shard::Range const& range : parts_.decoder.set_ranges(unit)) {
    auto const begin = static_cast<std::size_t>(range.begin);
    clear(accumulator.subspan(from, begin - from));
    from = static_cast<std::size_t>(range.end);
  }
  clear(accumulator.subspan(from));
}

void Engine::close_gradient(UnitId unit, std::span<float> accumulator, GradientPart part) {
  set_phase("reduction", unit);
  auto const ranks = static_cast<std::size_t>(parts_.comm.size());
  auto const size = div_exact(accumulator.size(), ranks);
  auto own = accumulator.subspan(static_cast<std::size_t>(parts_.comm.rank().get()) * size, size);
  if (options_.waves == 1) {
    auto const stored = parts_.store.lend_gradient(unit);
    if (!stored.empty()) own = stored;
  }
  parts_.comm.reduce_scatter(accumulator, own, parts_.stream);
  set_phase("gradient write", unit);
  squares_[static_cast<std::size_t>(unit.get())] += parts_.store.put_gradient(unit, own, part);
}

void Engine::run_head(Op const& op, std::span<model::Tokens const> wave, bool with_gradient) {
  bool const tied = op.fetch_embedding >= 0;
  model::UnitView embedding;
  if (tied) embedding = view(op.fetch_embedding, UnitId{0});
  model::UnitView head = view(op.fetch, op.unit);
  std::span<float> head_gradient;
  if (with_gradient) {
    head_gradient = gradient_of(op.unit);
    open_gradient(op.unit, head_gradient);
    head.gradient = head_gradient.data();
  }
  if (with_gradient && tied) {
    auto const embedding_gradient = gradient_of(UnitId{0});
    open_gradient(UnitId{0}, embedding_gradient);
    embedding.gradient = embedding_gradient.data();
  }

  set_phase("loss", op.unit);
  auto const blocks = static_cast<std::size_t>(parts_.spec.config.layers);
  for (std::size_t micro = 0; micro < wave.size(); ++micro) {
    auto const dx = with_gradient ? memory_->boundary(blocks + 1, micro) : std::span<std::byte>{};
    head.fresh = embedding.fresh = micro == 0;
    auto const sum = parts_.decoder.head(head, embedding, wave[micro], options_.micro, scale_,
                                         memory_->boundary(blocks, micro), dx, memory_->workspace,
                                         parts_.stream);
    sum_.loss += sum.loss;
    sum_.targets += sum.targets;
  }
  if (tied) parts_.store.release(op.fetch_embedding);
  parts_.store.release(op.fetch);
  if (!with_gradient) return;
  bool const last = op.wave == options_.waves - 1;
  close_gradient(op.unit, head_gradient, {.first = op.wave == 0, .last = last});
}

void Engine::run_block_backward(Op const& op) {
  model::UnitView unit = view(op.fetch, op.unit);
  auto const gradient = gradient_of(op.unit);
  open_gradient(op.unit, gradient);
  unit.gradient = gradient.data();
  set_phase("backward", op.unit);
  auto const level = static_cast<std::size_t>(op.unit.get());
  auto const blocks = static_cast<std::size_t>(parts_.spec.config.layers);
  for (std::size_t micro = 0; micro < memory_->wave; ++micro) {
    unit.fresh = micro == 0;
    parts_.decoder.block_backward(
        narrow<int>(level) - 1, unit, options_.micro, options_.keep,
        memory_->boundary(level - 1, micro), memory_->boundary(blocks + 1, micro),
        memory_->block_kept(level - 1, micro), memory_->workspace, parts_.stream);
  }
  parts_.store.release(op.fetch);
  close_gradient(op.unit, gradient, {.first = op.wave == 0, .last = op.wave == options_.waves - 1});
}

void Engine::run_embed_backward(Op const& op, std::span<model::Tokens const> wave) {
  // Of a tied table the gradient is gone on with where the head has left it.
  auto const gradient = gradient_of(op.unit);
  if (!parts_.spec.config.tied_head) clear(gradient);
  set_phase("backward", op.unit);
  auto const blocks = static_cast<std::size_t>(parts_.spec.config.layers);
  for (std::size_t micro = 0; micro < wave.size(); ++micro)
    parts_.decoder.embed_backward({.weights = nullptr, .gradient = gradient.data()}, wave[micro],
                                  options_.micro, memory_->boundary(blocks + 1, micro),
                                  parts_.stream);
  close_gradient(op.unit, gradient, {.first = op.wave == 0, .last = op.wave == options_.waves - 1});
}

void Engine::begin(Schedule const& schedule) {
  parts_.store.begin_pass(schedule.fetches, pending_.value_or(ops::AdamwStep{}));
}

StepResult Engine::step(std::span<model::Tokens const> micro_batches, double lr) {
  expect(narrow<int>(micro_batches.size()) == options_.micro_batches,
         "a step gets all its micro-batches");
  double targets = 0;
  for (auto const& tokens : micro_batches)
    targets += static_cast<double>(std::count_if(tokens.targets.begin(), tokens.targets.end(),
                                                 [](std::int32_t target) { return target >= 0; }));
  double all_targets = 0;
  for (double part : parts_.comm.all_gather_values({&targets, 1})) all_targets += part;
  scale_ = all_targets > 0 ? static_cast<float>(1.0 / all_targets) : 0.0f;
  sum_ = {};
  aux_loss_ = 0;
  squares_.assign(parts_.spec.units.size(), 0.0);

  Schedule const& schedule = train_[pending_.has_value()];
  begin(schedule);
  for (Op const& op : schedule.ops) {
    auto const wave =
        micro_batches.subspan(static_cast<std::size_t>(op.wave) * memory_->wave, memory_->wave);
    switch (op.kind) {
      case OpKind::embed:
      case OpKind::block: run_forward(op, wave); break;
      case OpKind::head:
        aux_loss_ += balance_experts(parts_.spec.config, parts_.decoder, parts_.comm,
                                     options_.micro.rows() * options_.micro_batches) /
                     options_.waves;
        run_head(op, wave, true);
        break;
      case OpKind::block_backward: run_block_backward(op); break;
      case OpKind::embed_backward: run_embed_backward(op, wave); break;
      case OpKind::flush: break;
    }
  }
  parts_.store.end_pass();
  pending_.reset();

  StepResult result;
  result.targets = static_cast<std::int64_t>(all_targets);
  if (parts_.spec.config.experts > 0) result.aux_loss = aux_loss_;
  finish_step(result, lr);
  return result;
}

void Engine::finish_step(StepResult& result, double lr) {
  // One exchange: this rank's loss and squares; summed over units, then over ranks, in order.
  std::vector<double> mine = squares_;
  mine.push_back(sum_.loss);
  auto const all = parts_.comm.all_gather_values(mine);
  double loss = 0;
  double squares = 0;
  auto const ranks = static_cast<std::size_t>(parts_.comm.size());
  for (std::size_t rank = 0; rank < ranks; ++rank)
    loss += all[rank * mine.size() + squares_.size()];
  for (std::size_t unit = 0; unit < squares_.size(); ++unit)
    for (std::size_t rank = 0; rank < ranks; ++rank) squares += all[rank * mine.size() + unit];

  result.loss = result.targets > 0 ? loss / static_cast<double>(result.targets) : 0.0;
  result.grad_norm = std::sqrt(squares);
  result.skipped = !std::isfinite(result.grad_norm) || !std::isfinite(result.loss);
  progress_.step += 1;
  progress_.tokens += result.targets;
  if (result.skipped) {
    progress_.skipped_in_a_row += 1;
    return;
  }
  progress_.skipped_in_a_row = 0;
  progress_.updates += 1;
  auto const t = static_cast<double>(progress_.updates);
  ops::AdamwStep step;
  step.lr = static_cast<float>(lr);
  step.beta1 = static_cast<float>(options_.beta1);
  step.beta2 = static_cast<float>(options_.beta2);
  step.eps = static_cast<float>(options_.eps);
  step.weight_decay = static_cast<float>(options_.weight_decay);
  step.bias1 = static_cast<float>(1.0 - std::pow(options_.beta1, t));
  step.bias2 = static_cast<float>(1.0 - std::pow(options_.beta2, t));
  step.grad_scale = static_cast<float>(optim::clip_factor(result.grad_norm, options_.clip));
  pending_ = step;
}

double Engine::evaluate(std::span<model::Tokens const> micro_batches) {
  double loss = 0;
  double targets = 0;
  for (std::size_t from = 0; from < micro_batches.size(); from += memory_->wave) {
    auto const wave =
        micro_batches.subspan(from, std::min(memory_->wave, micro_batches.size() - from));
    sum_ = {};
    Schedule const& schedule = forward_[pending_.has_value()];
    begin(schedule);
    for (Op const& op : schedule.ops) {
      if (op.kind == OpKind::head) {
        run_head(op, wave, false);
      } else {
        run_forward(op, wave);
      }
    }
    parts_.store.end_pass();
    pending_.reset();
    loss += sum_.loss;
    targets += static_cast<double>(sum_.targets);
  }
  double const mine[2] = {loss, targets};
  auto const all = parts_.comm.all_gather_values(mine);
  double all_loss = 0;
  double all_targets = 0;
  for (std::size_t at = 0; at < all.size(); at += 2) {
    all_loss += all[at];
    all_targets += all[at + 1];
  }
  return all_targets > 0 ? all_loss / all_targets : 0.0;
}

void Engine::flush(bool read_anyway) {
  if (!pending_ && !read_anyway) return;
  Schedule const& schedule = flush_[pending_.has_value()];
  begin(schedule);
  for (Op const& op : schedule.ops) {
    set_phase("flush", op.unit);
    parts_.store.acquire(op.fetch);
    parts_.store.release(op.fetch);
  }
  parts_.store.end_pass();
  pending_.reset();
}

void Engine::next_logits(std::span<std::int32_t const> tokens, std::span<float> logits) {
  expect(!tokens.empty() && narrow<std::int64_t>(tokens.size()) <= options_.micro.T,
         "a prompt fits the sequence length");
  std::vector<std::int32_t> padded(static_cast<std::size_t>(options_.micro.rows()), 0);
  std::copy(tokens.begin(), tokens.end(), padded.begin());
  std::vector<std::int32_t> const targets(padded.size(), -1);
  model::Tokens const one{padded, targets};
  Schedule const& schedule = forward_[pending_.has_value()];
  begin(schedule);
  for (Op const& op : schedule.ops) {
    if (op.kind != OpKind::head) {
      run_forward(op, {&one, 1});
      continue;
    }
    model::UnitView embedding;
    if (op.fetch_embedding >= 0) embedding = view(op.fetch_embedding, UnitId{0});
    model::UnitView const head = view(op.fetch, op.unit);
    auto const blocks = static_cast<std::size_t>(parts_.spec.config.layers);
    parts_.decoder.logits(head, embedding, narrow<std::int64_t>(tokens.size()) - 1,
                          memory_->boundary(blocks, 0), logits, memory_->workspace, parts_.stream);
    if (op.fetch_embedding >= 0) parts_.store.release(op.fetch_embedding);
    parts_.store.release(op.fetch);
  }
  parts_.store.end_pass();
  pending_.reset();
}

}  // namespace spillway::train
