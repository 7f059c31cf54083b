// From sizes and budgets to a placement, before anything is allocated. A pure function.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lib/model/decoder.hpp"
#include "lib/model/spec.hpp"
#include "lib/optim/state.hpp"
#include "lib/train/engine.hpp"
#include "offload/geometry.hpp"
#include "offload/tier.hpp"
#include "offload/tiered_store.hpp"

namespace spillway::offload {

enum class RecomputeWant : std::uint8_t { automatic, none, selective, full };

struct PlanRequest {
  model::ModelSpec const& spec;
  model::Decoder const& decoder;
  optim::StateTypes types;
  train::EngineOptions engine;  // keep and waves are chosen here
  Rank rank;
  int ranks = 1;
  int waves = 0;  // 0: as few as fit
  RecomputeWant recompute = RecomputeWant::automatic;
  Want params = Want::automatic, optimizer = Want::automatic, gradients = Want::automatic;
  std::vector<double> directory_weights;  // empty: no NVMe
  std::uint64_t host_memory = 0;          // of this rank, as VmHWM counts it
  std::uint64_t base_bytes = 0;  // what the process holds without the engine: code, libraries, MPI
  int threads = 1;               // of the engine
  std::size_t slot_bytes = 0;    // wanted size of a slot; 0: automatic
};

/// One line of the table that `spillway plan` prints.
struct PlanItem {
  std::string name;
  std::uint64_t bytes = 0;
};

struct Plan {
  Placement placement;
  std::int64_t tile_elements = 0;
  int slots = 0;
  train::EngineOptions engine;
  train::EngineSizes engine_bytes;
  StoreSizes store_bytes;
  std::size_t scratch_bytes = 0;
  train::ScheduleShape shape;
  std::vector<PlanItem> host;     // adds up to host_bytes
  std::uint64_t host_bytes = 0;   // peak of the process, predicted
  std::uint64_t host_memory = 0;  // the budget
  std::uint64_t nvme_bytes = 0;   // of this rank
  std::uint64_t read_bytes = 0;   // NVMe, of this rank, a step with update
  std::uint64_t written_bytes = 0;
};

/// Throws Fault::no_room naming the missing bytes, the largest items and the cheapest change that
/// helps.
Plan make_plan(PlanRequest const& request);

/// The table: bytes of each state kind on each tier, host memory by purpose, bytes moved a step.
std::string describe(Plan const& plan, PlanRequest const& request);

}  // namespace spillway::offload
