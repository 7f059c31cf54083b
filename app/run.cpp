#include "app/run.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "app/host.hpp"
#include "app/small_file.hpp"
#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::app {
namespace {

offload::Want want_of(Residence residence) {
  switch (residence) {
    case Residence::device: return offload::Want::device;
    case Residence::host: return offload::Want::host;
    case Residence::nvme: return offload::Want::nvme;
    case Residence::automatic: break;
  }
  return offload::Want::automatic;
}

offload::RecomputeWant want_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::none: return offload::RecomputeWant::none;
    case Recompute::selective: return offload::RecomputeWant::selective;
    case Recompute::full: return offload::RecomputeWant::full;
    case Recompute::automatic: break;
  }
  return offload::RecomputeWant::automatic;
}

// XXH3 passes about 10 GB/s a thread, a disk 1 to 3: below eight threads a rank it would take more
// than 2 % of the processor.
bool spill_checksums(OffloadOptions const& options, int threads) {
  constexpr int kEnoughThreads = 8;
  if (options.checksums == Toggle::automatic) return threads >= kEnoughThreads;
  return options.checksums == Toggle::on;
}

std::vector<std::filesystem::path> paths_of(std::vector<std::string> const& names) {
  return {names.begin(), names.end()};
}

}  // namespace

model::ModelSpec read_model(ModelOptions const& options) {
  if (options.path.empty() && options.config.empty())
    fail(Fault::usage,
         "no model is given (model.path and model.config are both empty). Add "
         "--model.config=config.json "
         "for a random start, or --model.path=FOLDER?");
  std::filesystem::path const file = options.config.empty()
                                         ? std::filesystem::path(options.path) / "config.json"
                                         : std::filesystem::path(options.config);
  return model::make_spec(model::parse_config(read_small_file(file), file.string()));
}

std::string describe_parameters(model::ModelSpec const& spec) {
  if (spec.parameters_per_token == spec.parameters)
    return fmt::format("{} parameters", spec.parameters);
  return fmt::format("{} parameters ({} of them for a token)", spec.parameters,
                     spec.parameters_per_token);
}

int engine_threads(TrainOptions const& options, int local_ranks) {
  if (options.threads > 0) return options.threads;
  return std::max(1, std::min(allowed_processors(), online_processors() / local_ranks));
}

std::int64_t micro_batch_size(Options const& options, int ranks) {
  if (options.train.micro_batch > 0) return options.train.micro_batch;
  std::int64_t const local = std::max<std::int64_t>(1, options.train.global_batch / ranks);
  std::int64_t best = 1;
  for (std::int64_t size = 1; size <= local; ++size)
    if (local % size == 0 && size * options.data.seq_len <= 4096) best = size;
  return best;
}

int waves_of(int micro_batches, std::int64_t wave) {
  for (int waves = 1; waves < micro_batches; ++waves)
    if (micro_batches % waves == 0 && micro_batches / waves <= wave) return waves;
  return micro_batches;
}

Planned prepare_plan(Options const& options, model::ModelSpec spec, optim::StateTypes types,
                     int local_ranks) {
  Planned planned{.spec = std::move(spec), .decoder = nullptr, .types = types};
  planned.threads = engine_threads(options.train, local_ranks);
  if (planned.spec.config.positions == model::Positions::learned &&
      options.data.seq_len > planned.spec.config.max_positions)
    fail(Fault::bad_input,
         fmt::format("data.seq_len = {} is longer than the model's {} learned positions. Use "
                     "--data.seq_len={}?",
                     options.data.seq_len, planned.spec.config.max_positions,
                     planned.spec.config.max_positions));
  planned.decoder = model::make_decoder(planned.spec, types.compute, options.data.seq_len);
  return planned;
}

offload::PlanRequest Planned::request(Options const& options, Ranks ranks, HostMemory memory,
                                      int micro_batches, model::Shape micro, int waves) const {
  train::EngineOptions engine{.micro = micro,
                              .micro_batches = micro_batches,
                              .beta1 = options.optim.beta1,
                              .beta2 = options.optim.beta2,
                              .eps = options.optim.eps,
                              .weight_decay = options.optim.weight_decay,
                              .clip = options.optim.clip};
  offload::PlanRequest request{.spec = spec, .decoder = *decoder, .types = types, .engine = engine};
  request.rank = ranks.rank;
  request.ranks = ranks.size;
  request.waves = waves;
  request.recompute = want_of(options.train.recompute);
  request.params = want_of(options.offload.params);
  request.optimizer = want_of(options.offload.optimizer);
  request.gradients = want_of(options.offload.gradients);
  request.directory_weights.assign(options.offload.nvme.size(), 1.0);
  request.host_memory = memory.budget;
  request.base_bytes = memory.base;
  request.threads = threads;
  request.slot_bytes = options.offload.slot;
  return request;
}

Machinery::Machinery(Options const& options, Planned const& planned, offload::Plan plan,
                     Ranks ranks, std::string const& probe_directory)
    : plan_(std::move(plan)), device_(device::make_cpu_device()) {
  stream_ = device_->make_stream(plan_.scratch_bytes, planned.threads);
  background_ = device_->make_stream(0, 1);
  memory_ = device_->allocate(plan_.store_bytes.total() + plan_.engine_bytes.total());
  auto const store_memory = memory_->bytes().first(plan_.store_bytes.total());

  auto geometry = offload::make_geometry(
      {.spec = planned.spec,
       .types = planned.types,
       .placement = plan_.placement,
       .tile_elements = plan_.tile_elements,
       .rank = ranks.rank,
       .ranks = ranks.size,
       .directory_weights = std::vector<double>(options.offload.nvme.size(), 1.0)});
  if (plan_.nvme_bytes > 0)
    swap_ =
        std::make_unique<offload::SwapSpace>(paths_of(options.offload.nvme), geometry.file_bytes,
                                             fmt::format("rank{}", ranks.rank.get()));
  io::EngineOptions engine;
  engine.buffers = {store_memory.first(plan_.store_bytes.slots + plan_.store_bytes.window)};
  io_ = io::make_engine(options.offload.engine, std::move(engine), probe_directory);
  store_ = std::make_unique<offload::TieredStore>(
      offload::TieredStore::Parts{.geometry = std::move(geometry),
                                  .ranks = ranks.size,
                                  .slots = plan_.slots,
                                  .tile_elements = plan_.tile_elements,
                                  .window_bytes = plan_.store_bytes.window,
                                  .checksums = spill_checksums(options.offload, planned.threads),
                                  .engine = io_.get(),
                                  .swap = swap_.get(),
                                  .stream = *stream_,
                                  .background = *background_},
      store_memory);
}

Machinery::~Machinery() = default;

std::unique_ptr<train::Engine> Machinery::make_engine(
    Planned const& planned, comm::Communicator& comm,
    std::function<void(std::string_view)> set_phase) {
  return std::make_unique<train::Engine>(
      train::Engine::Parts{.spec = planned.spec,
                           .decoder = *planned.decoder,
                           .comm = comm,
                           .store = *store_,
                           .stream = *stream_,
                           .set_phase = std::move(set_phase)},
      plan_.engine, plan_.shape,
      memory_->bytes().subspan(plan_.store_bytes.total(), plan_.engine_bytes.total()));
}

}  // namespace spillway::app
