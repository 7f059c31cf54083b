// Every key of the configuration as typed fields with their defaults; from the command line and INI
// files.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/engine.hpp"
#include "lib/core/dtype.hpp"
#include "lib/optim/schedule.hpp"

namespace spillway::app {

enum class Recompute { automatic, none, selective, full };
enum class StateForm { fp32, bf16, int8 };
enum class Master { fp32, none };
/// Where a kind of state is to live.
enum class Residence { automatic, device, host, nvme };
enum class Toggle { automatic, off, on };

// In integers 0 stands for "auto"; where 0 means something, an empty optional does.

struct ModelOptions {
  std::string path;    // Hugging Face folder
  std::string config;  // config.json: random start
  std::uint64_t seed = 1;
  DType dtype = DType::f32;
  bool operator==(ModelOptions const&) const = default;
};

struct DataOptions {
  std::string train;  // token files and globs, separated by commas
  std::string val;
  std::int64_t seq_len = 1024;
  bool shuffle = true;
  std::uint64_t seed = 1;
  bool operator==(DataOptions const&) const = default;
};

struct TrainOptions {
  std::int64_t steps = 0;   // 0: from tokens
  std::int64_t tokens = 0;  // 0: from steps
  std::int64_t global_batch = 8;
  std::int64_t micro_batch = 0;
  std::int64_t wave = 0;
  Recompute recompute = Recompute::automatic;
  std::int64_t eval_every = 0;  // 0: never
  std::int64_t log_every = 1;
  std::int64_t max_skipped = 10;
  int threads = 0;
  bool operator==(TrainOptions const&) const = default;
};

struct OptimOptions {
  double lr = 3e-4;
  std::optional<double> min_lr;  // a tenth of lr
  optim::ScheduleKind schedule = optim::ScheduleKind::cosine;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;  // wsd
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;  // 0: off
  StateForm state = StateForm::fp32;
  Master master = Master::fp32;
  DType grad_dtype = DType::f32;
  bool operator==(OptimOptions const&) const = default;
};

struct ZeroOptions {
  int stage = 3;
  int shard_group = 0;
  bool quantize_weights = false;
  int secondary_shard = 0;  // 0: none
  bool quantize_gradients = false;
  bool operator==(ZeroOptions const&) const = default;
};

struct OffloadOptions {
  std::optional<std::uint64_t> device_memory;
  std::optional<std::uint64_t> host_memory;
  std::vector<std::string> nvme;
  Residence params = Residence::automatic;
  Residence optimizer = Residence::automatic;
  Residence gradients = Residence::automatic;
  Residence activations = Residence::automatic;
  Toggle checksums = Toggle::automatic;
  io::EngineKind engine = io::EngineKind::automatic;
  std::uint64_t slot = 0;
  bool operator==(OffloadOptions const&) const = default;
};

struct CheckpointOptions {
  std::string dir;              // empty: RUN/checkpoints
  std::int64_t every = 0;       // steps, 0: only at the end and when asked
  double every_minutes = 0;     // 0: off
  std::int64_t keep = 3;        // 0: all
  std::string resume = "auto";  // auto, never, or a path
  bool operator==(CheckpointOptions const&) const = default;
};

/// A limit on the wall time of a run.
struct TimeLimit {
  enum class Kind { automatic, none, seconds };
  Kind kind = Kind::automatic;  // automatic: from Slurm's job end, else none
  double seconds = 0;
  bool operator==(TimeLimit const&) const = default;
};

struct RunOptions {
  std::string dir = "run";
  std::string name;
  TimeLimit max_time;
  std::vector<int> stop_signals = {10, 15, 2};  // USR1, TERM, INT
  double peer_timeout = 10;                     // seconds
  bool operator==(RunOptions const&) const = default;
};

struct Options {
  ModelOptions model;
  DataOptions data;
  TrainOptions train;
  OptimOptions optim;
  ZeroOptions zero;
  OffloadOptions offload;
  CheckpointOptions checkpoint;
  RunOptions run;
  bool operator==(Options const&) const = default;

  double min_lr() const { return optim.min_lr.value_or(0.1 * optim.lr); }
  /// train.steps, or the steps that train.tokens take.
  std::int64_t steps() const;
  std::string checkpoint_dir() const;
};

/// A flag of one command that is not a key of the configuration, e.g. --json or --out=FILE.
struct Flag {
  std::string name;
  std::string value = {};  // name of its value in the help; empty for a yes/no flag
  std::string help;
};

/// What a command accepts; the source of its parser and of its --help.
struct Syntax {
  std::string usage;  // "spillway ckpt ls DIR"
  std::string summary;
  std::vector<Flag> flags;
  std::vector<std::string> sections;  // of the configuration that it reads; empty: none
  std::size_t positional_max = 0;
};

struct CommandLine {
  Options options;
  std::map<std::string, std::string> flags;  // given ones; yes/no flags hold "true"
  std::vector<std::string> positional;
  std::map<std::string, std::string>
      origins;  // of each key that was set: "run.cfg:12", "command line"

  bool has(std::string const& flag) const { return flags.count(flag) > 0; }
  std::string flag(std::string const& name, std::string const& otherwise = "") const;
};

/// Reads --config files first, then the command line over them. `words` are what follows the
/// command.
/// --help, --config and --dump-options are known to every command that reads keys. Throws
/// Fault::usage.
CommandLine parse_command_line(Syntax const& syntax, std::vector<std::string> const& words);

/// Sets keys from INI text; `origin` names it in errors.
void read_config(std::string const& text, std::string const& origin, CommandLine& into);

/// The whole configuration as INI text: read_config of it gives equal Options.
std::string config_text(Options const& options);

/// Text of --help.
std::string help_text(Syntax const& syntax);

/// Prints --help or --dump-options where asked for; true if the command has nothing more to do.
bool answer_questions(CommandLine const& line, Syntax const& syntax);

/// What cannot be seen from one key alone, and what this version does not have. Throws
/// Fault::usage.
void validate(Options const& options, int world_size);

/// The part of it that does not need data and the length of the run.
void validate_plan(Options const& options, int world_size);

/// Version of the parser's library.
std::string boost_version();

}  // namespace spillway::app
