// Checks across keys, and refusal of what this version does not have.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "app/options.hpp"
#include "app/time_limit.hpp"
#include "lib/core/error.hpp"

namespace spillway::app {
namespace {

Options good() {
  Options options;
  options.model.config = "config.json";
  options.data.train = "train.bin";
  options.train.steps = 10;
  return options;
}

std::string problem_with(std::function<void(Options&)> const& change, int world_size = 1) {
  Options options = good();
  change(options);
  try {
    validate(options, world_size);
  } catch (Error const& error) {
    EXPECT_EQ(error.fault(), Fault::usage);
    return error.problem();
  }
  return "";
}

void expect_problem(std::string const& part, std::function<void(Options&)> const& change,
                    int world_size = 1) {
  std::string const problem = problem_with(change, world_size);
  EXPECT_NE(problem.find(part), std::string::npos) << "'" << problem << "' lacks " << part;
}

TEST(option_checks, good_options_pass) {
  EXPECT_EQ(problem_with([](Options&) {}, 1), "");
  EXPECT_EQ(problem_with([](Options& o) { o.train.micro_batch = 2; }, 4), "");
}

TEST(option_checks, global_batch_has_to_divide_over_ranks_and_micro_batches) {
  expect_problem(
      "train.global_batch = 8", [](Options&) {}, 3);
  expect_problem(
      "Use 9?", [](Options&) {}, 3);
  expect_problem(
      "= 12", [](Options& o) { o.train.micro_batch = 3; }, 4);
  expect_problem(
      "train.global_batch", [](Options& o) { o.train.micro_batch = 16; }, 1);
  expect_problem(
      "train.global_batch", [](Options&) {}, 16);
}

TEST(option_checks, what_this_version_does_not_have_is_refused_by_name) {
  expect_problem("zero.stage = 2 is not available yet", [](Options& o) { o.zero.stage = 2; });
  expect_problem("zero.stage = 0", [](Options& o) { o.zero.stage = 0; });
  expect_problem("zero.quantize_weights", [](Options& o) { o.zero.quantize_weights = true; });
  expect_problem("zero.quantize_gradients", [](Options& o) { o.zero.quantize_gradients = true; });
  expect_problem("zero.secondary_shard = 2", [](Options& o) { o.zero.secondary_shard = 2; });
  expect_problem(
      "zero.shard_group = 2", [](Options& o) { o.zero.shard_group = 2; }, 4);
  EXPECT_EQ(problem_with([](Options& o) { o.zero.shard_group = 4; }, 4), "");
  expect_problem("optim.state = bf16", [](Options& o) { o.optim.state = StateForm::bf16; });
  expect_problem("optim.state = int8", [](Options& o) { o.optim.state = StateForm::int8; });
  expect_problem("optim.master = none", [](Options& o) { o.optim.master = Master::none; });
}

TEST(option_checks, model_data_and_length_are_each_given_once) {
  expect_problem("the model is missing", [](Options& o) { o.model.config = ""; });
  expect_problem("both given", [](Options& o) { o.model.path = "folder"; });
  expect_problem("data.train is empty", [](Options& o) { o.data.train = ""; });
  expect_problem("neither train.steps", [](Options& o) { o.train.steps = 0; });
  expect_problem("both given", [](Options& o) { o.train.tokens = 5; });
  expect_problem("data.val is empty", [](Options& o) { o.train.eval_every = 5; });
  expect_problem("optim.min_lr", [](Options& o) { o.optim.min_lr = 1.0; });
}

TEST(option_checks, a_plan_needs_neither_data_nor_length) {
  Options options = good();
  options.data.train = "";
  options.train.steps = 0;
  EXPECT_NO_THROW(validate_plan(options, 2));
  EXPECT_THROW(validate_plan(options, 3), Error);
}

TEST(option_checks, nvme_needs_a_directory_and_device_a_gpu) {
  expect_problem("offload.optimizer = nvme",
                 [](Options& o) { o.offload.optimizer = Residence::nvme; });
  EXPECT_EQ(problem_with([](Options& o) {
              o.offload.optimizer = Residence::nvme;
              o.offload.nvme = {"/swap"};
            }),
            "");
}

TEST(option_checks, steps_follow_from_tokens_rounded_up) {
  Options options = good();
  options.train.steps = 0;
  options.train.global_batch = 4;
  options.data.seq_len = 100;
  options.train.tokens = 1201;
  EXPECT_EQ(options.steps(), 4);
  options.train.tokens = 1200;
  EXPECT_EQ(options.steps(), 3);
}

TEST(time_limit, comes_from_the_key_or_from_slurm) {
  Clock::time_point const start = Clock::from_time_t(1000);
  ::unsetenv("SLURM_JOB_END_TIME");
  EXPECT_FALSE(deadline({TimeLimit::Kind::automatic, 0}, start));
  EXPECT_EQ(deadline({TimeLimit::Kind::seconds, 30}, start), Clock::from_time_t(1030));
  ::setenv("SLURM_JOB_END_TIME", "5000", 1);
  EXPECT_EQ(deadline({TimeLimit::Kind::automatic, 0}, start), Clock::from_time_t(5000));
  EXPECT_EQ(deadline({TimeLimit::Kind::seconds, 30}, start), Clock::from_time_t(1030));
  EXPECT_FALSE(deadline({TimeLimit::Kind::none, 0}, start));
  ::setenv("SLURM_JOB_END_TIME", "garbage", 1);
  EXPECT_FALSE(deadline({TimeLimit::Kind::automatic, 0}, start));
  ::unsetenv("SLURM_JOB_END_TIME");
}

}  // namespace
}  // namespace spillway::app
