// What cannot be seen from one key alone, and what this version does not have.
#include <fmt/core.h>

#include <algorithm>

#include "app/options.hpp"
#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"
#include "lib/device/device.hpp"

namespace spillway::app {
namespace {

void refuse_if(bool wrong, std::string const& problem) {
  if (wrong) fail(Fault::usage, problem);
}

void check_available(Options const& o) {
  refuse_if(o.zero.stage != 3,
            fmt::format("zero.stage = {} is not available yet (this version shards parameters, "
                        "gradients and optimizer state, which is stage 3; the results would be the "
                        "same). Leave it at 3?",
                        o.zero.stage));
  refuse_if(o.zero.quantize_weights,
            "zero.quantize_weights = true is not available in this version (weights are gathered "
            "in the type they have). Leave it out?");
  refuse_if(o.zero.quantize_gradients,
            "zero.quantize_gradients = true is not available in this version (gradients are "
            "reduced in fp32). Leave it out?");
  refuse_if(o.zero.secondary_shard != 0,
            fmt::format("zero.secondary_shard = {} is not available in this version (there is one "
                        "copy of the weights). Leave it at 0?",
                        o.zero.secondary_shard));
  refuse_if(o.optim.state != StateForm::fp32,
            fmt::format("optim.state = {} is not available in this version (moments are kept in "
                        "fp32). Leave it at fp32?",
                        o.optim.state == StateForm::bf16 ? "bf16" : "int8"));
  refuse_if(o.offload.activations == Residence::nvme,
            "offload.activations = nvme is not available in this version (activations wait in host "
            "memory; train.recompute=full keeps only the inputs of blocks). Leave it at auto?");
  refuse_if(o.optim.master == Master::none,
            "optim.master = none is not available in this version (without an fp32 master small "
            "updates of bf16 weights are lost). Leave it at fp32?");
}

void check_batch(Options const& o, int world_size) {
  std::int64_t const per_rank = std::max<std::int64_t>(o.train.micro_batch, 1);
  refuse_if(per_rank > o.train.global_batch || o.train.global_batch % (world_size * per_rank) != 0,
            fmt::format("train.global_batch = {} cannot be shared out (it must be a multiple of "
                        "{} ranks x micro_batch {} = {}). Use {}?",
                        o.train.global_batch, world_size, per_rank, world_size * per_rank,
                        round_up(o.train.global_batch, world_size * per_rank)));
  refuse_if(o.zero.shard_group != 0 && o.zero.shard_group != world_size,
            fmt::format("zero.shard_group = {} is not available in this version (all {} ranks "
                        "share one copy). Leave it at auto?",
                        o.zero.shard_group, world_size));
}

void check_length(Options const& o) {
  refuse_if(o.train.steps == 0 && o.train.tokens == 0,
            "the length of the run is missing (neither train.steps nor train.tokens is given). "
            "Add --train.steps=N?");
  refuse_if(o.train.steps != 0 && o.train.tokens != 0,
            fmt::format("train.steps = {} and train.tokens = {} are both given (either says how "
                        "long the run is). Leave one out?",
                        o.train.steps, o.train.tokens));
  refuse_if(o.min_lr() > o.optim.lr,
            fmt::format("optim.min_lr = {} is above optim.lr = {} (the learning rate falls to it). "
                        "Use a smaller number?",
                        o.min_lr(), o.optim.lr));
}

void check_residence(char const* key, Residence where, Options const& o) {
  refuse_if(where == Residence::nvme && o.offload.nvme.empty(),
            fmt::format("{} = nvme has no directory to use (offload.nvme is empty). Add "
                        "--offload.nvme=DIR?",
                        key));
  refuse_if(where == Residence::device && device::cuda_device_count() == 0,
            fmt::format("{} = device is not possible here (there is no GPU, or the program was "
                        "built without CUDA). Use host?",
                        key));
}

}  // namespace

std::int64_t Options::steps() const {
  if (train.steps != 0) return train.steps;
  return div_ceil(train.tokens, train.global_batch * data.seq_len);
}

std::string Options::checkpoint_dir() const {
  return checkpoint.dir.empty() ? run.dir + "/checkpoints" : checkpoint.dir;
}

void validate_plan(Options const& options, int world_size) {
  refuse_if(options.model.path.empty() && options.model.config.empty(),
            "the model is missing (neither model.path nor model.config is given). Add "
            "--model.path=FOLDER?");
  refuse_if(!options.model.path.empty() && !options.model.config.empty(),
            fmt::format("model.path = {} and model.config = {} are both given (one starts from "
                        "weights, the other from random ones). Leave one out?",
                        options.model.path, options.model.config));
  check_available(options);
  check_batch(options, world_size);
  check_residence("offload.params", options.offload.params, options);
  check_residence("offload.optimizer", options.offload.optimizer, options);
  check_residence("offload.gradients", options.offload.gradients, options);
  check_residence("offload.activations", options.offload.activations, options);
}

void validate(Options const& options, int world_size) {
  validate_plan(options, world_size);
  check_length(options);
  refuse_if(options.data.train.empty(),
            "the training data is missing (data.train is empty). Add --data.train=FILES?");
  refuse_if(options.train.eval_every > 0 && options.data.val.empty(),
            fmt::format("train.eval_every = {} has nothing to evaluate on (data.val is empty). Add "
                        "--data.val=FILES?",
                        options.train.eval_every));
}

}  // namespace spillway::app
