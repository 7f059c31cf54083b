#include "app/training.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/batches.hpp"
#include "app/collectively.hpp"
#include "app/commands.hpp"
#include "app/host.hpp"
#include "app/metrics.hpp"
#include "app/progress.hpp"
#include "app/resume.hpp"
#include "app/run.hpp"
#include "app/run_directory.hpp"
#include "app/saver.hpp"
#include "app/speed.hpp"
#include "app/start_checks.hpp"
#include "app/state_fill.hpp"
#include "app/time_limit.hpp"
#include "io/safetensors/safetensors_weights.hpp"
#include "io/tokens/token_files.hpp"
#include "lib/comm/mpi/mpi_runtime.hpp"
#include "lib/core/bytes.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::app {
namespace {

using Json = nlohmann::json;
constexpr int kExitRequeue = 85;

/// One rank's run. Members in order of dependence; built by stages that all ranks pass together.
class Training {
 public:
  Training(Options const& options, comm::Communicator& comm, StopSignals& signals,
           Oversight& oversight)
      : options_(options),
        comm_(comm),
        signals_(signals),
        oversight_(oversight),
        log_(comm.rank()) {}
  ~Training() { oversight_.io = nullptr; }

  int run();

 private:
  bool root() const { return comm_.rank() == Rank{0}; }
  // Claimed by the communicator, but not resident until the first exchange.
  std::uint64_t exchange_bytes() const {
    return comm_.size() > 1 ? comm::MpiOptions{}.staging_bytes : 0;
  }
  Ranks ranks() const { return {comm_.rank(), comm_.size(), comm_.local_size()}; }
  std::int64_t steps() const { return options_.steps(); }

  void open_run_directory();
  void open_inputs();
  HostMemory agree_on_memory();
  void plan_memory(HostMemory memory);
  void load_state();
  void open_saver();
  void start_weights();
  void say_what_runs();
  int loop();
  void one_step(std::int64_t step);
  void report(std::int64_t step, train::StepResult const& result, double seconds);
  void begin_save();
  void save_now();
  void finish_save();
  double validation_loss();
  bool stop_wanted(bool& save_wanted);
  bool save_due(std::int64_t step) const;
  io::TrainingState training_state() const;

  Options const& options_;
  comm::Communicator& comm_;
  StopSignals& signals_;
  Oversight& oversight_;
  Log log_;
  std::unique_ptr<RunDirectory> directory_;
  std::unique_ptr<data::TokenSource> tokens_, validation_;
  Planned planned_;
  BatchShape batch_shape_;
  ResumePoint resume_;
  std::unique_ptr<Machinery> machinery_;
  std::unique_ptr<train::Engine> engine_;
  std::unique_ptr<Batches> batches_, validation_batches_;
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<Progress> progress_;
  std::int64_t next_position_ = 0;
  double flops_per_token_ = 0;
  double peak_flops_ = 0;  // of all ranks
  Meters before_;
  std::chrono::steady_clock::time_point last_save_ = std::chrono::steady_clock::now();
  std::optional<Clock::time_point> deadline_;
};

int Training::run() {
  collectively(comm_, [&] { validate(options_, comm_.size()); });
  collectively(comm_, [&] { open_run_directory(); });
  collectively(comm_, [&] { open_inputs(); });
  resume_ = find_resume_point(options_, comm_, log_);
  if (resume_.reader && resume_.reader->state().step >= steps()) {
    log_.root("nothing left to do: {} has step {} of {}", resume_.reader->directory().string(),
              resume_.reader->state().step, steps());
    return 0;
  }
  HostMemory const memory = agree_on_memory();
  collectively(comm_, [&] { plan_memory(memory); });
  engine_ = machinery_->make_engine(planned_, comm_, oversight_.set_phase);
  load_state();
  open_saver();
  collectively(comm_, [&] {
    batches_ = std::make_unique<Batches>(
        *tokens_,
        data::Sampler(data::sequence_count(tokens_->size(), options_.data.seq_len),
                      options_.data.seed, options_.data.shuffle),
        batch_shape_);
    if (validation_)
      validation_batches_ = std::make_unique<Batches>(
          *validation_,
          data::Sampler(data::sequence_count(validation_->size(), options_.data.seq_len), 0, false),
          batch_shape_);
    if (root()) {
      metrics_ = std::make_unique<Metrics>(directory_->metrics_path());
      metrics_->cut_back(engine_->progress().step);
      progress_ = std::make_unique<Progress>(ProgressOptions{.steps = steps(),
                                                             .log_every = options_.train.log_every,
                                                             .updating = stderr_can_update()});
    }
  });
  say_what_runs();
  return loop();
}

void Training::open_run_directory() {
  if (!root()) return;
  directory_ = std::make_unique<RunDirectory>(options_.run.dir);
  if (!directory_->warning().empty()) log_.root(Level::warning, "{}", directory_->warning());
  directory_->write_config(options_);
  deadline_ = deadline(options_.run.max_time, Clock::now());
}

void Training::open_inputs() {
  optim::StateTypes const types{.compute = options_.model.dtype, .grad = options_.optim.grad_dtype};
  planned_ = prepare_plan(options_, read_model(options_.model), types, comm_.local_size());
  auto const vocabulary = planned_.spec.config.vocab_size;
  auto const open = [&](std::string const& paths, char const* key) {
    auto source = io::open_tokens(paths, vocabulary);
    if (data::sequence_count(source->size(), options_.data.seq_len) < 1)
      fail(Fault::bad_input,
           fmt::format("{} = {} has {} tokens (one sequence needs data.seq_len + 1 = {}). Use more "
                       "text or a smaller data.seq_len?",
                       key, paths, source->size(), options_.data.seq_len + 1));
    return source;
  };
  if (options_.data.train.empty())
    fail(Fault::usage, "no training data is given (data.train is empty). Add --data.train=FILE?");
  tokens_ = open(options_.data.train, "data.train");
  if (!options_.data.val.empty()) validation_ = open(options_.data.val, "data.val");
  std::int64_t const micro = micro_batch_size(options_, comm_.size());
  batch_shape_ = {.micro = {.B = micro, .T = options_.data.seq_len},
                  .micro_batches = narrow<int>(options_.train.global_batch / comm_.size() / micro),
                  .rank = comm_.rank(),
                  .ranks = comm_.size()};
}

// Ranks that planned from different numbers would walk different schedules.
HostMemory Training::agree_on_memory() {
  double const mine[2] = {static_cast<double>(resident_bytes() + exchange_bytes()),
                          static_cast<double>(options_.offload.host_memory.value_or(
                              default_host_memory(comm_.local_size())))};
  auto const all = comm_.all_gather_values(mine);
  double base = all[0];
  double budget = all[1];
  for (std::size_t at = 2; at < all.size(); at += 2) {
    base = std::max(base, all[at]);
    budget = std::min(budget, all[at + 1]);
  }
  return {static_cast<std::uint64_t>(base), static_cast<std::uint64_t>(budget)};
}

void Training::plan_memory(HostMemory memory) {
  // Waves change the order of sums: a resumed run keeps those of its checkpoint, whatever the
  // budget is now.
  int const wanted = options_.train.wave > 0
                         ? waves_of(batch_shape_.micro_batches, options_.train.wave)
                         : resume_.waves_for(batch_shape_.micro_batches);
  auto const request = planned_.request(options_, ranks(), memory, batch_shape_.micro_batches,
                                        batch_shape_.micro, wanted);
  offload::Plan plan = offload::make_plan(request);
  log_.root(Level::debug, "\n{}", offload::describe(plan, request));
  std::string const probe =
      options_.offload.nvme.empty() ? options_.run.dir : options_.offload.nvme.front();
  machinery_ = std::make_unique<Machinery>(options_, planned_, std::move(plan), ranks(), probe);
  oversight_.io = &machinery_->io();
}

void Training::start_weights() {
  if (options_.model.path.empty() || !options_.model.config.empty()) {
    model::RandomWeights source(options_.model.seed);
    fill_weights(machinery_->store(), planned_.spec, planned_.types, source, machinery_->stream());
    return;
  }
  io::SafetensorsWeights source(options_.model.path, planned_.spec);
  fill_weights(machinery_->store(), planned_.spec, planned_.types, source, machinery_->stream());
}

void Training::load_state() {
  auto const schema = checkpoint_schema(planned_.spec, planned_.types.compute);
  for (;;) {
    if (!resume_.reader) {
      collectively(comm_, [&] { start_weights(); });
      break;
    }
    collectively(comm_, [&] { resume_.reader->check_model(schema); });
    auto const outcome = try_collectively(comm_, [&] {
      fill_state(machinery_->store(), planned_.types, *resume_.reader, machinery_->io());
    });
    if (!outcome.fault) {
      engine_->resume(resume_.progress());
      next_position_ = resume_.reader->state().next_position;
      break;
    }
    fall_back(options_, comm_, log_, outcome.text, *outcome.fault, resume_);
  }
  if (resume_.reader) compare_data_order(resume_.reader->state().json, training_state().json, log_);
}

void Training::open_saver() {
  auto const schema = checkpoint_schema(planned_.spec, planned_.types.compute);
  SaverOptions saver{.directory = options_.checkpoint_dir(),
                     .keep = options_.checkpoint.keep,
                     .owns_directory = options_.checkpoint.dir.empty()};
  if (resume_.reader) saver.resumed_from = resume_.reader->directory();
  collectively(comm_, [&] {
    if (root()) prepare_checkpoints(options_.checkpoint_dir(), log_);
  });
  saver_ =
      std::make_unique<Saver>(saver, schema, comm_, machinery_->io(), machinery_->store(), log_);
  std::string const host = host_name();
  auto const hosts = comm_.gather(std::as_bytes(std::span(host)), Rank{0});
  collectively(comm_, [&] {
    if (!root()) return;
    check_room(
        options_.checkpoint_dir(),
        io::shard_file_bytes(schema, comm_.size()) * static_cast<std::uint64_t>(comm_.size()),
        resume_.reader != nullptr, log_);
    Start start{.mpi = comm::mpi_library_version(),
                .resumed_step = resume_.reader ? resume_.reader->state().step : 0};
    for (auto const& name : hosts)
      start.hosts.emplace_back(reinterpret_cast<char const*>(name.data()), name.size());
    directory_->write_provenance(options_, start);
  });
}

void Training::say_what_runs() {
  auto const& plan = machinery_->plan();
  peak_flops_ = 0;
  double const mine = measure_peak_flops(planned_.types.compute, machinery_->stream());
  for (double peak : comm_.all_gather_values({&mine, 1})) peak_flops_ += peak;
  flops_per_token_ = training_flops_per_token(planned_.spec, options_.data.seq_len);
  log_.root("{}, {}: {}, {}, {}, {} rank(s) x {} thread(s)", program_version(),
            model::name_of(planned_.spec.config.family), describe_parameters(planned_.spec),
            name_of(planned_.types.compute),
            plan.nvme_bytes > 0 ? "with state on NVMe" : "all in memory", comm_.size(),
            planned_.threads);
  log_.root("a step: {} sequences of {} tokens ({} tokens), micro-batches of {}, {} wave(s)",
            batch_shape_.global_batch(), options_.data.seq_len,
            batch_shape_.global_batch() * options_.data.seq_len, batch_shape_.micro.B,
            plan.engine.waves);
  log_.root("memory of a rank: {} planned of {}; NVMe {}; I/O by {}", format_bytes(plan.host_bytes),
            format_bytes(plan.host_memory), format_bytes(machinery_->swap_bytes()),
            machinery_->io().description());
  for (auto const& note : planned_.spec.config.notes) log_.root(Level::warning, "{}", note);
  if (planned_.threads < online_processors() / comm_.local_size() && options_.train.threads == 0)
    log_.root(Level::warning,
              "each rank may use {} of {} processors (the launcher binds it). Start with mpirun "
              "--bind-to none, or --map-by ppr:1:node:pe={}?",
              planned_.threads, online_processors(), online_processors() / comm_.local_size());
  if (resume_.reader)
    log_.root("goes on from {} (step {})", resume_.reader->directory().string(),
              engine_->progress().step);
}

bool Training::save_due(std::int64_t step) const {
  auto const& o = options_.checkpoint;
  if (o.every > 0 && step % o.every == 0) return true;
  double const minutes =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - last_save_).count() / 60;
  return o.every_minutes > 0 && minutes >= o.every_minutes;
}

// Clocks, files and signals may differ between ranks for a moment: rank 0's view and any rank's
// signal count.
bool Training::stop_wanted(bool& save_wanted) {
  Request request = Request::none;
  double stop = signals_.stop_requested() ? 1 : 0;
  double save = 0;
  if (root()) {
    request = directory_->take_request();
    if (request == Request::stop || (deadline_ && Clock::now() >= *deadline_)) stop = 1;
    if (request == Request::save || save_due(engine_->progress().step)) save = 1;
  }
  double const mine[2] = {stop, save};
  auto const all = comm_.all_gather_values(mine);
  bool any = false;
  for (std::size_t at = 0; at < all.size(); at += 2) any = any || all[at] > 0;
  save_wanted = all[1] > 0;
  return any;
}

io::TrainingState Training::training_state() const {
  auto const& progress = engine_->progress();
  Json const json = {
      {"updates", progress.updates},
      {"skipped_in_a_row", progress.skipped_in_a_row},
      {"waves", machinery_->plan().engine.waves},
      {"micro_batches", batch_shape_.micro_batches},
      {"model_seed", options_.model.seed},
      {"data_seed", options_.data.seed},
      {"data_shuffle", options_.data.shuffle},
      {"data_seq_len", options_.data.seq_len},
      {"data_sequences", data::sequence_count(tokens_->size(), options_.data.seq_len)},
      {"global_batch", options_.train.global_batch}};
  return {.step = progress.step,
          .tokens = progress.tokens,
          .next_position = next_position_,
          .json = json.dump()};
}

// The pass that follows applies the pending updates and so writes the state of this step to the
// checkpoint as well.
void Training::begin_save() {
  finish_save();
  last_save_ = std::chrono::steady_clock::now();
  if (saver_->begin(training_state()) && !engine_->pending()) {
    engine_->flush(true);
    finish_save();
  }
}

// For the end of a run, which must not leave without what it has reached.
void Training::save_now() {
  finish_save();
  if (!saver_->begin(training_state()))
    throw CollectiveError(
        Fault::no_room,
        "the run ends without its last checkpoint, because there is no room for it "
        "(see the warning above). Make room and start again: it goes on from the "
        "checkpoint before?");
  engine_->flush(true);
  finish_save();
}

void Training::finish_save() {
  if (saver_->active()) saver_->finish();
}

int Training::loop() {
  before_ = meters(machinery_->store(), comm_);
  for (std::int64_t step = engine_->progress().step + 1; step <= steps(); ++step) {
    one_step(step);
    finish_save();  // begun at the end of the step before; its bytes went out during this one
    bool save = false;
    bool const stop = stop_wanted(save);
    if (stop && step < steps()) {
      if (progress_) progress_->finish();
      log_.root("stopping after step {}: saving a checkpoint", step);
      save_now();
      comm_.barrier();  // durable everywhere before any rank leaves
      return kExitRequeue;
    }
    if (save && step < steps()) begin_save();
  }
  if (progress_) progress_->finish();
  save_now();
  comm_.barrier();
  return 0;
}

void Training::one_step(std::int64_t step) {
  auto const start = std::chrono::steady_clock::now();
  auto const micro_batches = batches_->load(next_position_);
  double const lr = optim::learning_rate({.kind = options_.optim.schedule,
                                          .lr = options_.optim.lr,
                                          .min_lr = options_.min_lr(),
                                          .steps = steps(),
                                          .warmup_steps = options_.optim.warmup_steps,
                                          .decay_steps = options_.optim.decay_steps},
                                         step);
  auto const result = engine_->step(micro_batches, lr);
  next_position_ += batch_shape_.global_batch();
  report(step, result,
         std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (result.skipped) {
    log_.root(Level::warning,
              "step {}: loss {} or gradient norm {} is not finite; the update is skipped on all "
              "ranks ({} in a row)",
              step, result.loss, result.grad_norm, engine_->progress().skipped_in_a_row);
    if (engine_->progress().skipped_in_a_row > options_.train.max_skipped)
      throw CollectiveError(
          Fault::diverged,
          fmt::format(
              "training has diverged: {} steps in a row were not finite (train.max_skipped = "
              "{}). The last good checkpoint stays; lower optim.lr?",
              engine_->progress().skipped_in_a_row, options_.train.max_skipped));
  }
}

double Training::validation_loss() {
  return engine_->evaluate(validation_batches_->load_first(batch_shape_.global_batch()));
}

void Training::report(std::int64_t step, train::StepResult const& result, double seconds) {
  Meters const now = meters(machinery_->store(), comm_);
  Meters const spent = exchange(comm_, now.since(before_));
  before_ = now;
  ExtraMetrics extra;
  if (result.aux_loss) extra.push_back({"aux_loss", *result.aux_loss});
  if (validation_batches_ && options_.train.eval_every > 0 &&
      (step % options_.train.eval_every == 0 || step == steps()))
    extra.push_back({"val_loss", validation_loss()});
  if (!root()) return;
  double const rate = static_cast<double>(result.targets) / seconds;
  train::StepReport report{.step = step,
                           .loss = result.loss,
                           .grad_norm = result.grad_norm,
                           .lr = optim::learning_rate({.kind = options_.optim.schedule,
                                                       .lr = options_.optim.lr,
                                                       .min_lr = options_.min_lr(),
                                                       .steps = steps(),
                                                       .warmup_steps = options_.optim.warmup_steps,
                                                       .decay_steps = options_.optim.decay_steps},
                                                      step),
                           .tokens = engine_->progress().tokens,
                           .tokens_per_s = rate,
                           .step_ms = seconds * 1e3,
                           .stall_ms = spent.stall_s * 1e3,
                           .mfu = peak_flops_ > 0 ? rate * flops_per_token_ / peak_flops_ : 0.0,
                           .read_bytes = spent.read_bytes,
                           .written_bytes = spent.written_bytes,
                           .sent_bytes = spent.sent_bytes,
                           .rss_bytes = spent.rss_bytes,
                           .skipped = result.skipped ? 1 : 0};
  metrics_->write(report, extra);
  progress_->show(report);
}

}  // namespace

int train_run(Options const& options, comm::Communicator& comm, StopSignals& signals,
              Oversight& oversight) {
  return Training(options, comm, signals, oversight).run();
}

}  // namespace spillway::app
