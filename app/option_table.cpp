#include "app/option_table.hpp"

#include <limits>
#include <type_traits>
#include <utility>

#include "app/option_text.hpp"

namespace spillway::app {
namespace {

constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// `field` gives the field of const and of mutable Options.
template <class Field, class T>
Key key(std::string name, Field field, Codec<T> codec, std::string help) {
  Key made;
  made.name = std::move(name);
  made.help = std::move(help);
  made.allowed = codec.allowed;
  made.yes_no = std::is_same_v<T, bool>;
  made.list = std::is_same_v<T, std::vector<std::string>>;
  made.set = [field, codec](Options& options, std::string_view text) {
    auto value = codec.read(text);
    if (!value) return false;
    field(options) = std::move(*value);
    return true;
  };
  made.get = [field, codec](Options const& options) { return codec.write(field(options)); };
  return made;
}

RealRange at_least_zero() { return {0, kInfinity, Ends::closed, "a finite number >= 0"}; }
RealRange below_one() { return {0, 1, Ends::open_right, "a number in [0, 1)"}; }
Codec<std::int64_t> count() { return integer_codec(0, kNoLimit); }
Codec<std::int64_t> positive() { return integer_codec(1, kNoLimit); }
Codec<std::int64_t> positive_or_auto() { return integer_or_auto_codec(kNoLimit); }

Codec<DType> dtype_codec() {
  return choice_codec<DType>({{"fp32", DType::f32}, {"bf16", DType::bf16}});
}

Codec<Residence> residence_codec() {
  return choice_codec<Residence>({{"auto", Residence::automatic},
                                  {"device", Residence::device},
                                  {"host", Residence::host},
                                  {"nvme", Residence::nvme}});
}

using Keys = std::vector<Key>;

void add_model(Keys& keys) {
  keys.push_back(key(
      "model.path", [](auto& o) -> auto& { return o.model.path; }, text_codec("a folder"),
      "Hugging Face folder to start from: config.json and model*.safetensors"));
  keys.push_back(key(
      "model.config", [](auto& o) -> auto& { return o.model.config; }, text_codec("a file"),
      "config.json of a model to start from random weights"));
  keys.push_back(key(
      "model.seed", [](auto& o) -> auto& { return o.model.seed; }, seed_codec(),
      "seed of the random weights"));
  keys.push_back(key(
      "model.dtype", [](auto& o) -> auto& { return o.model.dtype; }, dtype_codec(),
      "type to compute in; the master weight keeps fp32 precision with both"));
}

void add_data(Keys& keys) {
  keys.push_back(key(
      "data.train", [](auto& o) -> auto& { return o.data.train; }, text_codec("files"),
      "token files to train on: paths and globs separated by commas"));
  keys.push_back(key(
      "data.val", [](auto& o) -> auto& { return o.data.val; }, text_codec("files"),
      "token files to evaluate on"));
  keys.push_back(key(
      "data.seq_len", [](auto& o) -> auto& { return o.data.seq_len; }, positive(),
      "tokens of a sequence"));
  keys.push_back(key(
      "data.shuffle", [](auto& o) -> auto& { return o.data.shuffle; }, boolean_codec(),
      "read sequences in a random order of their own in each epoch"));
  keys.push_back(key(
      "data.seed", [](auto& o) -> auto& { return o.data.seed; }, seed_codec(),
      "seed of that order"));
}

void add_train(Keys& keys) {
  keys.push_back(key(
      "train.steps", [](auto& o) -> auto& { return o.train.steps; }, positive_or_auto(),
      "optimizer steps of the run; auto: as many as train.tokens takes"));
  keys.push_back(key(
      "train.tokens", [](auto& o) -> auto& { return o.train.tokens; }, positive_or_auto(),
      "tokens to train on, instead of train.steps"));
  keys.push_back(key(
      "train.global_batch", [](auto& o) -> auto& { return o.train.global_batch; }, positive(),
      "sequences of a step, over all ranks"));
  keys.push_back(key(
      "train.micro_batch", [](auto& o) -> auto& { return o.train.micro_batch; }, positive_or_auto(),
      "sequences that a rank computes at a time"));
  keys.push_back(key(
      "train.wave", [](auto& o) -> auto& { return o.train.wave; }, positive_or_auto(),
      "micro-batches that go through a unit together before the next unit is fetched"));
  keys.push_back(key(
      "train.recompute", [](auto& o) -> auto& { return o.train.recompute; },
      choice_codec<Recompute>({{"auto", Recompute::automatic},
                               {"none", Recompute::none},
                               {"selective", Recompute::selective},
                               {"full", Recompute::full}}),
      "what the backward pass computes again instead of keeping it"));
  keys.push_back(key(
      "train.eval_every", [](auto& o) -> auto& { return o.train.eval_every; }, count(),
      "steps between evaluations on data.val; 0: never"));
  keys.push_back(key(
      "train.log_every", [](auto& o) -> auto& { return o.train.log_every; }, positive(),
      "steps between progress lines where stderr is not a terminal"));
  keys.push_back(key(
      "train.max_skipped", [](auto& o) -> auto& { return o.train.max_skipped; }, count(),
      "steps in a row that may be skipped for a non-finite gradient before the run ends"));
  keys.push_back(key(
      "train.threads", [](auto& o) -> auto& { return o.train.threads; },
      as_int(integer_or_auto_codec(4096)),
      "threads of a rank; auto: the processors this process may run on"));
}

void add_optim(Keys& keys) {
  keys.push_back(key(
      "optim.lr", [](auto& o) -> auto& { return o.optim.lr; }, real_codec(at_least_zero()),
      "peak learning rate"));
  keys.push_back(key(
      "optim.min_lr", [](auto& o) -> auto& { return o.optim.min_lr; },
      real_or_auto_codec(at_least_zero()), "learning rate at the end; auto: a tenth of optim.lr"));
  keys.push_back(key(
      "optim.schedule", [](auto& o) -> auto& { return o.optim.schedule; },
      choice_codec<optim::ScheduleKind>({{"constant", optim::ScheduleKind::constant},
                                         {"cosine", optim::ScheduleKind::cosine},
                                         {"wsd", optim::ScheduleKind::wsd}}),
      "shape of the learning rate after the warm-up"));
  keys.push_back(key(
      "optim.warmup_steps", [](auto& o) -> auto& { return o.optim.warmup_steps; }, count(),
      "steps over which the learning rate rises from 0"));
  keys.push_back(key(
      "optim.decay_steps", [](auto& o) -> auto& { return o.optim.decay_steps; }, positive_or_auto(),
      "wsd: steps of the final decay; auto: a fifth of the run"));
  keys.push_back(key(
      "optim.beta1", [](auto& o) -> auto& { return o.optim.beta1; }, real_codec(below_one()),
      "decay of AdamW's first moment"));
  keys.push_back(key(
      "optim.beta2", [](auto& o) -> auto& { return o.optim.beta2; }, real_codec(below_one()),
      "decay of AdamW's second moment"));
  keys.push_back(key(
      "optim.eps", [](auto& o) -> auto& { return o.optim.eps; }, real_codec(at_least_zero()),
      "AdamW's epsilon"));
  keys.push_back(key(
      "optim.weight_decay", [](auto& o) -> auto& { return o.optim.weight_decay; },
      real_codec(at_least_zero()), "decoupled weight decay of tensors of two or more dimensions"));
  keys.push_back(key(
      "optim.clip", [](auto& o) -> auto& { return o.optim.clip; }, real_codec(at_least_zero()),
      "global gradient norm to clip at; 0: off"));
  keys.push_back(key(
      "optim.state", [](auto& o) -> auto& { return o.optim.state; },
      choice_codec<StateForm>(
          {{"fp32", StateForm::fp32}, {"bf16", StateForm::bf16}, {"int8", StateForm::int8}}),
      "type of the moments"));
  keys.push_back(key(
      "optim.master", [](auto& o) -> auto& { return o.optim.master; },
      choice_codec<Master>({{"fp32", Master::fp32}, {"none", Master::none}}),
      "precision of the master weight"));
  keys.push_back(key(
      "optim.grad_dtype", [](auto& o) -> auto& { return o.optim.grad_dtype; }, dtype_codec(),
      "type of a gradient shard while it waits for its update; sums are always fp32"));
}

void add_zero(Keys& keys) {
  keys.push_back(key(
      "zero.stage", [](auto& o) -> auto& { return o.zero.stage; }, as_int(integer_codec(0, 3)),
      "what ranks share out: 1 optimizer state, 2 and gradients, 3 and parameters"));
  keys.push_back(key(
      "zero.shard_group", [](auto& o) -> auto& { return o.zero.shard_group; },
      as_int(integer_or_auto_codec(1 << 20)), "ranks that share one copy; auto: all"));
  keys.push_back(key(
      "zero.quantize_weights", [](auto& o) -> auto& { return o.zero.quantize_weights; },
      boolean_codec(), "gather weights as int8"));
  keys.push_back(key(
      "zero.secondary_shard", [](auto& o) -> auto& { return o.zero.secondary_shard; },
      as_int(integer_codec(0, 1 << 20)), "ranks that hold a second copy of the weights; 0: none"));
  keys.push_back(key(
      "zero.quantize_gradients", [](auto& o) -> auto& { return o.zero.quantize_gradients; },
      boolean_codec(), "reduce gradients as int4"));
}

void add_offload(Keys& keys) {
  keys.push_back(key(
      "offload.device_memory", [](auto& o) -> auto& { return o.offload.device_memory; },
      optional_bytes_codec(), "device memory that one rank may use"));
  keys.push_back(key(
      "offload.host_memory", [](auto& o) -> auto& { return o.offload.host_memory; },
      optional_bytes_codec(),
      "host memory that one rank may use, the whole process; auto: its part of what is free"));
  keys.push_back(key(
      "offload.nvme", [](auto& o) -> auto& { return o.offload.nvme; },
      list_codec("directories separated by commas"),
      "directories for state that does not fit in memory, separated by commas"));
  keys.push_back(key(
      "offload.params", [](auto& o) -> auto& { return o.offload.params; }, residence_codec(),
      "where parameters live"));
  keys.push_back(key(
      "offload.optimizer", [](auto& o) -> auto& { return o.offload.optimizer; }, residence_codec(),
      "where optimizer state lives"));
  keys.push_back(key(
      "offload.gradients", [](auto& o) -> auto& { return o.offload.gradients; }, residence_codec(),
      "where gradients wait for their update"));
  keys.push_back(key(
      "offload.activations", [](auto& o) -> auto& { return o.offload.activations; },
      residence_codec(), "where activations wait for the backward pass"));
  keys.push_back(key(
      "offload.checksums", [](auto& o) -> auto& { return o.offload.checksums; }, toggle_codec(),
      "verify every block that comes back from disk"));
  keys.push_back(key(
      "offload.engine", [](auto& o) -> auto& { return o.offload.engine; },
      choice_codec<io::EngineKind>({{"auto", io::EngineKind::automatic},
                                    {"uring", io::EngineKind::uring},
                                    {"threads", io::EngineKind::threads}}),
      "how disks are read and written; auto: io_uring where it is permitted"));
  keys.push_back(key(
      "offload.slot", [](auto& o) -> auto& { return o.offload.slot; }, bytes_or_auto_codec(),
      "size of one buffer that state streams through"));
}

void add_checkpoint(Keys& keys) {
  keys.push_back(key(
      "checkpoint.dir", [](auto& o) -> auto& { return o.checkpoint.dir; },
      text_codec("a directory"), "directory of the checkpoints; default: checkpoints in run.dir"));
  keys.push_back(key(
      "checkpoint.every", [](auto& o) -> auto& { return o.checkpoint.every; }, count(),
      "steps between checkpoints; 0: only at the end and when asked"));
  keys.push_back(key(
      "checkpoint.every_minutes", [](auto& o) -> auto& { return o.checkpoint.every_minutes; },
      real_codec(at_least_zero()), "minutes between checkpoints; 0: off"));
  keys.push_back(key(
      "checkpoint.keep", [](auto& o) -> auto& { return o.checkpoint.keep; }, count(),
      "newest checkpoints to keep; 0: all"));
  keys.push_back(key(
      "checkpoint.resume", [](auto& o) -> auto& { return o.checkpoint.resume; },
      text_codec("auto, never, or a checkpoint"),
      "auto: from the newest good checkpoint, if there is one; never; or PATH"));
}

void add_run(Keys& keys) {
  keys.push_back(key(
      "run.dir", [](auto& o) -> auto& { return o.run.dir; }, text_codec("a directory"),
      "directory of everything that the run writes"));
  keys.push_back(key(
      "run.name", [](auto& o) -> auto& { return o.run.name; }, text_codec("a name"),
      "name of the run in its records"));
  keys.push_back(key(
      "run.max_time", [](auto& o) -> auto& { return o.run.max_time; }, time_limit_codec(),
      "wall time after which to checkpoint and exit with 85; auto: from Slurm, if it says"));
  keys.push_back(key(
      "run.stop_signals", [](auto& o) -> auto& { return o.run.stop_signals; }, signals_codec(),
      "signals that ask for a checkpoint and exit with 85"));
  keys.push_back(key(
      "run.peer_timeout", [](auto& o) -> auto& { return o.run.peer_timeout; },
      real_codec({0.1, 86400, Ends::closed, "seconds from 0.1 to 86400"}),
      "seconds without a sign of life from a rank after which the run ends"));
}

}  // namespace

std::vector<Key> option_table() {
  Keys keys;
  for (auto* add :
       {add_model, add_data, add_train, add_optim, add_zero, add_offload, add_checkpoint, add_run})
    add(keys);
  return keys;
}

}  // namespace spillway::app
