// Everything a run computes with, built from options in order of dependence: the composition root.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "app/options.hpp"
#include "io/engine.hpp"
#include "lib/comm/communicator.hpp"
#include "lib/core/log.hpp"
#include "lib/device/device.hpp"
#include "lib/model/decoder.hpp"
#include "lib/train/engine.hpp"
#include "offload/plan.hpp"
#include "offload/swap_space.hpp"
#include "offload/tiered_store.hpp"

namespace spillway::app {

/// A model's config.json: the file model.config, or the one in the folder model.path. Throws
/// Fault::usage where neither is given, Fault::bad_input where it cannot be read.
model::ModelSpec read_model(ModelOptions const& options);
/// "124439808 parameters", and of a mixture of experts how many a token sees.
std::string describe_parameters(model::ModelSpec const& spec);

/// Who this rank is, for planning: real for train, imagined for plan.
struct Ranks {
  Rank rank;
  int size = 1;
  int local_size = 1;
};

/// Threads of this rank's engine: train.threads, or the processors it may use, shared fairly by the
/// ranks of the host.
int engine_threads(TrainOptions const& options, int local_ranks);

/// Host memory of one rank, in bytes. Plans must agree between ranks, so it is the same on all.
struct HostMemory {
  std::uint64_t base = 0;    // what the process holds before the engine is there
  std::uint64_t budget = 0;  // offload.host_memory, or what the host leaves
};

/// What the planner is asked, from options. Keeps the decoder that it refers to.

struct Planned {
  model::ModelSpec spec;
  std::unique_ptr<model::Decoder> decoder;
  optim::StateTypes types;
  int threads = 1;
  offload::PlanRequest request(Options const& options, Ranks ranks, HostMemory memory,
                               int micro_batches, model::Shape micro, int waves) const;
};
Planned prepare_plan(Options const& options, model::ModelSpec spec, optim::StateTypes types,
                     int local_ranks);

/// Waves of at most `wave` micro-batches that divide a step evenly.
int waves_of(int micro_batches, std::int64_t wave);

/// Sequences of a micro-batch: train.micro_batch, or the largest divisor of this rank's share whose
/// tokens stay below 4,096.
std::int64_t micro_batch_size(Options const& options, int ranks);

/// The parts of one rank, alive together. Memory is claimed here and not later.
class Machinery {
 public:
  Machinery(Options const& options, Planned const& planned, offload::Plan plan, Ranks ranks,
            std::string const& probe_directory);
  ~Machinery();

  offload::Plan const& plan() const { return plan_; }
  io::Engine& io() { return *io_; }
  offload::TieredStore& store() { return *store_; }
  device::Stream& stream() { return *stream_; }
  /// Made once the communicator is there.
  std::unique_ptr<train::Engine> make_engine(Planned const& planned, comm::Communicator& comm,
                                             std::function<void(std::string_view)> set_phase);
  std::uint64_t swap_bytes() const { return swap_ ? swap_->total_bytes() : 0; }

 private:
  offload::Plan plan_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<device::Stream> stream_, background_;
  std::unique_ptr<device::Block> memory_;
  std::unique_ptr<io::Engine> io_;
  std::unique_ptr<offload::SwapSpace> swap_;
  std::unique_ptr<offload::TieredStore> store_;
};

}  // namespace spillway::app
