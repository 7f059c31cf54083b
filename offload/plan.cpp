#include "offload/plan.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "lib/core/bytes.hpp"
#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::offload {
namespace {

using model::Keep;
using optim::StateKind;

// Stacks, oneDNN's kernels and packing buffers, HDF5's code, the allocator's own: measured below
// 24 MiB.
constexpr std::uint64_t kReserve = std::uint64_t{28} << 20;
// What HDF5 holds of each virtual dataset while the index of a checkpoint is made: measured 8 KiB.
constexpr std::uint64_t kIndexBytesPerTensor = std::uint64_t{4} * (9 << 10);
constexpr std::size_t kWorkerScratch = 4096;

struct SlotChoice {
  std::int64_t tile_elements;
  int slots;
};
// From what keeps a fast disk busy down to what just works. A tile is a multiple of the checksum
// block.
constexpr SlotChoice kSlotChoices[] = {{524288, 8}, {262144, 8}, {262144, 6}, {131072, 6},
                                       {65536, 6},  {65536, 4},  {65536, 3}};

struct Choice {
  Keep keep;
  int waves;
  SlotChoice slots;
};

Want want_of(PlanRequest const& request, StateKind kind) {
  if (kind == StateKind::hi) return request.params;
  return kind == StateKind::grad ? request.gradients : request.optimizer;
}

bool has_nvme(PlanRequest const& request) { return !request.directory_weights.empty(); }

void check_wants(PlanRequest const& request) {
  for (StateKind kind : {StateKind::hi, StateKind::m, StateKind::grad}) {
    if (want_of(request, kind) == Want::device)
      fail(Fault::usage,
           "device placement was asked for, but no accelerator is used (the processor is the CPU). "
           "Use "
           "host or nvme for offload.params, offload.optimizer and offload.gradients?");
    if (want_of(request, kind) == Want::nvme && !has_nvme(request))
      fail(Fault::usage,
           "nvme placement was asked for, but offload.nvme names no directory. Add "
           "--offload.nvme=DIRECTORY?");
  }
}

Tier lowest(PlanRequest const& request, StateKind kind) {
  Want const want = want_of(request, kind);
  if (want == Want::host || !has_nvme(request)) return Tier::host;
  return Tier::nvme;
}

Placement lowest_placement(PlanRequest const& request) {
  UnitPlacement unit{};
  for (StateKind kind : optim::kStateKinds) unit[optim::index(kind)] = lowest(request, kind);
  return Placement(request.spec.units.size(), unit);
}

std::int64_t largest_shard(PlanRequest const& request) {
  std::int64_t largest = 0;
  for (int unit = 0; unit < narrow<int>(request.spec.units.size()); ++unit)
    largest = std::max(largest, request.spec.layout(UnitId{unit}).shard_elements(request.ranks));
  return largest;
}

train::ScheduleShape schedule_shape(PlanRequest const& request, Placement const& placement,
                                    int waves) {
  train::ScheduleShape shape{.blocks = narrow<int>(request.spec.config.layers),
                             .tied_head = request.spec.config.tied_head,
                             .waves = waves,
                             .gathered_bytes = {}};
  for (int unit = 0; unit < shape.units(); ++unit) {
    auto const flat =
        request.spec.layout(UnitId{unit}).shard_elements(request.ranks) * request.ranks;
    bool const lends = TieredStore::lends(placement[static_cast<std::size_t>(unit)], request.ranks);
    shape.gathered_bytes.push_back(
        lends ? 0 : static_cast<std::size_t>(flat) * request.types.bytes(StateKind::hi));
  }
  return shape;
}

/// Of the rank that commits; all ranks plan alike.
std::uint64_t index_bytes(PlanRequest const& request) {
  std::uint64_t tensors = 0;
  for (auto const& unit : request.spec.units) tensors += unit.tensors.size();
  // A shard border may cut a tensor in each unit.
  auto const cuts = request.spec.units.size() * static_cast<std::size_t>(request.ranks - 1);
  return request.types.weights_only ? 0 : (tensors + cuts / 4) * kIndexBytesPerTensor;
}

/// Everything of a plan but the choice of placement: sizes that follow from placement and choice.
Plan size_up(PlanRequest const& request, Choice const& choice, Placement placement) {
  Plan plan;
  plan.placement = std::move(placement);
  plan.engine = request.engine;
  plan.engine.keep = choice.keep;
  plan.engine.waves = choice.waves;
  plan.tile_elements =
      std::min(choice.slots.tile_elements, round_up(largest_shard(request), io::kChecksumElements));
  plan.slots = choice.slots.slots;
  plan.engine_bytes =
      train::engine_sizes(request.spec, request.decoder, plan.engine, request.ranks);
  plan.shape = schedule_shape(request, plan.placement, choice.waves);
  for (bool pending : {false, true})
    plan.store_bytes.window =
        std::max({plan.store_bytes.window, train::train_schedule(plan.shape, pending).window_bytes,
                  train::forward_schedule(plan.shape, pending).window_bytes});
  auto const geometry = make_geometry({.spec = request.spec,
                                       .types = request.types,
                                       .placement = plan.placement,
                                       .tile_elements = plan.tile_elements,
                                       .rank = request.rank,
                                       .ranks = request.ranks,
                                       .directory_weights = request.directory_weights});
  plan.store_bytes.states = host_state_bytes(geometry);
  plan.store_bytes.slots =
      static_cast<std::size_t>(plan.slots) * slot_bytes(plan.tile_elements, request.types);
  for (auto bytes : geometry.file_bytes) plan.nvme_bytes += bytes;
  plan.scratch_bytes = request.decoder.scratch_bytes(request.engine.micro, request.threads);

  std::uint64_t const tokens = static_cast<std::uint64_t>(request.engine.micro.rows()) *
                               static_cast<std::uint64_t>(request.engine.micro_batches) * 8;
  plan.host = {{"program, libraries, MPI", request.base_bytes},
               {"reserve", kReserve},
               {"index of a checkpoint", index_bytes(request)},
               {"states", plan.store_bytes.states},
               {"slots", plan.store_bytes.slots},
               {"window of gathered units", plan.store_bytes.window},
               {"gradients of a unit", plan.engine_bytes.gradients},
               {"activations between units", plan.engine_bytes.boundaries},
               {"activations kept in units", plan.engine_bytes.kept},
               {"workspace", plan.engine_bytes.workspace},
               {"scratch", plan.scratch_bytes + kWorkerScratch},
               {"tokens", tokens}};
  for (auto const& item : plan.host) plan.host_bytes += item.bytes;
  plan.host_memory = request.host_memory;
  return plan;
}

std::vector<Keep> keeps(RecomputeWant want) {
  switch (want) {
    case RecomputeWant::none: return {Keep::everything};
    case RecomputeWant::selective: return {Keep::selection};
    case RecomputeWant::full: return {Keep::nothing};
    case RecomputeWant::automatic: break;
  }
  return {Keep::everything, Keep::selection, Keep::nothing};
}

std::vector<int> wave_counts(PlanRequest const& request) {
  if (request.waves > 0) return {request.waves};
  std::vector<int> counts;
  for (int waves = 1; waves <= request.engine.micro_batches; ++waves)
    if (request.engine.micro_batches % waves == 0) counts.push_back(waves);
  return counts;
}

std::string suggestion(PlanRequest const& request, Plan const& plan) {
  bool const spills = has_nvme(request);
  if (!spills && plan.store_bytes.states > 0)
    return "Give --offload.nvme=DIRECTORY, so that states need not stay in memory?";
  if (plan.store_bytes.states > plan.host_bytes / 4)
    return "Let offload.params, offload.optimizer and offload.gradients be auto or nvme?";
  if (plan.engine_bytes.boundaries + plan.engine_bytes.workspace > plan.host_bytes / 3)
    return "Lower train.micro_batch or data.seq_len?";
  return "Raise offload.host_memory, or use more ranks?";
}

[[noreturn]] void refuse(PlanRequest const& request, Plan const& plan) {
  std::string items;
  for (auto const& item : plan.host)
    if (item.bytes > 0)
      items +=
          fmt::format("{}{} {}", items.empty() ? "" : ", ", item.name, format_bytes(item.bytes));
  fail(Fault::no_room,
       fmt::format(
           "offload.host_memory = {} is too small: {} bytes are missing (rank {} needs {}: {}). {}",
           format_bytes(request.host_memory), plan.host_bytes - request.host_memory,
           request.rank.get(), format_bytes(plan.host_bytes), items, suggestion(request, plan)));
}

/// The best choice whose smallest plan fits. Waves are numeric (they change the order of sums), so
/// they depend on activations alone and never on a placement: fewer waves come first whatever else
/// has to shrink.
Choice choose(PlanRequest const& request, Placement const& least) {
  std::optional<Plan> smallest;
  for (int waves : wave_counts(request)) {
    for (SlotChoice const& slots : kSlotChoices) {
      if (request.slot_bytes > 0 && &slots != &kSlotChoices[std::size(kSlotChoices) - 1] &&
          slot_bytes(slots.tile_elements, request.types) > request.slot_bytes)
        continue;
      for (Keep keep : keeps(request.recompute)) {
        Choice const choice{keep, waves, slots};
        Plan plan = size_up(request, choice, least);
        if (plan.host_bytes <= request.host_memory) return choice;
        if (!smallest || plan.host_bytes < smallest->host_bytes) smallest = std::move(plan);
      }
    }
  }
  refuse(request, *smallest);
}

// Touches a step per byte: hi is read twice and written once, everything else is read once and
// written once.
constexpr StateKind kByValue[] = {StateKind::hi, StateKind::grad, StateKind::m, StateKind::v,
                                  StateKind::lo};

void count_traffic(PlanRequest const& request, Plan& plan) {
  auto const geometry = make_geometry({.spec = request.spec,
                                       .types = request.types,
                                       .placement = plan.placement,
                                       .tile_elements = plan.tile_elements,
                                       .rank = request.rank,
                                       .ranks = request.ranks,
                                       .directory_weights = request.directory_weights});
  for (auto const& fetch : train::train_schedule(plan.shape, true).fetches) {
    auto const& unit = geometry.units[static_cast<std::size_t>(fetch.unit.get())];
    auto const n = unit.elements;
    if (fetch.use == train::Use::update) {
      plan.read_bytes += unit.spilled_bytes(n, request.types);
      plan.written_bytes += unit.spilled_prefix(StateKind::grad, n, request.types);
    } else if (unit.spills(StateKind::hi, request.types)) {
      plan.read_bytes += static_cast<std::uint64_t>(n) * request.types.bytes(StateKind::hi);
    }
  }
  for (std::size_t at = 0; at < geometry.units.size(); ++at) {
    auto const& unit = geometry.units[at];
    if (!unit.spills(StateKind::grad, request.types)) continue;
    auto const bytes =
        static_cast<std::uint64_t>(unit.elements) * request.types.bytes(StateKind::grad);
    // A tied embedding gets a second part of its gradient a wave, and every further wave adds one.
    int const parts = plan.shape.waves * (at == 0 && plan.shape.tied_head ? 2 : 1);
    plan.written_bytes += bytes * static_cast<std::uint64_t>(parts);
    plan.read_bytes += bytes * static_cast<std::uint64_t>(parts - 1);
  }
}

}  // namespace

Plan make_plan(PlanRequest const& request) {
  check_wants(request);
  Placement placement = lowest_placement(request);
  Choice const choice = choose(request, placement);
  Plan plan = size_up(request, choice, placement);
  // Greedy by value per byte, as long as the budget holds; a unit that does not fit does not stop
  // smaller ones.
  for (StateKind kind : kByValue) {
    if (want_of(request, kind) != Want::automatic || !has_nvme(request)) continue;
    if (request.types.bytes(kind) == 0) continue;
    for (auto& unit : placement) {
      unit[optim::index(kind)] = Tier::host;
      Plan better = size_up(request, choice, placement);
      if (better.host_bytes <= request.host_memory) {
        plan = std::move(better);
      } else {
        unit[optim::index(kind)] = Tier::nvme;
      }
    }
  }
  count_traffic(request, plan);
  return plan;
}

std::string describe(Plan const& plan, PlanRequest const& request) {
  std::string text = "state kind       host             nvme   (bytes of this rank)\n";
  for (StateKind kind : optim::kStateKinds) {
    std::uint64_t bytes[2] = {0, 0};
    for (int unit = 0; unit < narrow<int>(plan.placement.size()); ++unit) {
      auto const n = request.spec.layout(UnitId{unit}).shard_elements(request.ranks);
      bool const spilled =
          plan.placement[static_cast<std::size_t>(unit)][optim::index(kind)] == Tier::nvme;
      bytes[spilled] += static_cast<std::uint64_t>(n) * request.types.bytes(kind);
    }
    constexpr std::string_view kNames[] = {"hi", "lo", "m", "v", "grad"};
    text += fmt::format("{:<10} {:>16} {:>16}\n", kNames[optim::index(kind)], bytes[0], bytes[1]);
  }
  text += "host memory by purpose\n";
  for (auto const& item : plan.host)
    text += fmt::format("  {:<28} {:>12}\n", item.name, format_bytes(item.bytes));
  text += fmt::format("  {:<28} {:>12} of {}\n", "sum", format_bytes(plan.host_bytes),
                      format_bytes(plan.host_memory));
  text +=
      fmt::format("a step reads {} and writes {} on NVMe; {} slots of {}; {} wave(s)\n",
                  format_bytes(plan.read_bytes), format_bytes(plan.written_bytes), plan.slots,
                  format_bytes(slot_bytes(plan.tile_elements, request.types)), plan.engine.waves);
  return text;
}

}  // namespace spillway::offload
