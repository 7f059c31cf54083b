// Keys from the command line and files: names, defaults, precedence, and what is refused with which
// words.
#include "app/options.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <set>

#include "app/closest.hpp"
#include "app/option_table.hpp"
#include "lib/core/error.hpp"
#include "tests/app/process.hpp"

namespace spillway::app {
namespace {

Syntax all_sections() {
  Syntax syntax;
  syntax.usage = "spillway train";
  syntax.sections = {"model", "data", "train", "optim", "zero", "offload", "checkpoint", "run"};
  return syntax;
}

CommandLine parse(std::vector<std::string> const& words) {
  return parse_command_line(all_sections(), words);
}

/// The problem that parsing ends with; empty if it does not.
std::string problem_of(std::vector<std::string> const& words) {
  try {
    parse(words);
  } catch (Error const& error) {
    EXPECT_EQ(error.fault(), Fault::usage);
    return error.problem();
  }
  return "";
}

bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

TEST(options, table_has_every_key_of_the_design) {
  std::set<std::string> const designed = {"model.path",
                                          "model.config",
                                          "model.seed",
                                          "model.dtype",
                                          "data.train",
                                          "data.val",
                                          "data.seq_len",
                                          "data.shuffle",
                                          "data.seed",
                                          "train.steps",
                                          "train.global_batch",
                                          "train.micro_batch",
                                          "train.wave",
                                          "train.recompute",
                                          "train.eval_every",
                                          "train.log_every",
                                          "train.max_skipped",
                                          "train.threads",
                                          "optim.lr",
                                          "optim.min_lr",
                                          "optim.schedule",
                                          "optim.warmup_steps",
                                          "optim.beta1",
                                          "optim.beta2",
                                          "optim.eps",
                                          "optim.weight_decay",
                                          "optim.clip",
                                          "optim.state",
                                          "optim.master",
                                          "optim.grad_dtype",
                                          "zero.stage",
                                          "zero.shard_group",
                                          "zero.quantize_weights",
                                          "zero.secondary_shard",
                                          "zero.quantize_gradients",
                                          "offload.device_memory",
                                          "offload.host_memory",
                                          "offload.nvme",
                                          "offload.params",
                                          "offload.optimizer",
                                          "offload.gradients",
                                          "offload.activations",
                                          "offload.checksums",
                                          "offload.engine",
                                          "checkpoint.dir",
                                          "checkpoint.every",
                                          "checkpoint.every_minutes",
                                          "checkpoint.keep",
                                          "checkpoint.resume",
                                          "run.dir",
                                          "run.max_time",
                                          "run.stop_signals",
                                          "run.name"};
  std::set<std::string> known;
  for (auto const& key : option_table()) {
    EXPECT_TRUE(known.insert(key.name).second) << key.name << " is there twice";
    EXPECT_FALSE(key.help.empty()) << key.name;
    EXPECT_FALSE(key.allowed.empty()) << key.name;
  }
  for (auto const& name : designed) EXPECT_TRUE(known.contains(name)) << name;
}

TEST(options, defaults_are_those_of_pretraining) {
  Options const options = parse({}).options;
  EXPECT_EQ(options.optim.lr, 3e-4);
  EXPECT_DOUBLE_EQ(options.min_lr(), 3e-5);
  EXPECT_EQ(options.optim.schedule, optim::ScheduleKind::cosine);
  EXPECT_EQ(options.optim.warmup_steps, 0);
  EXPECT_EQ(options.optim.beta1, 0.9);
  EXPECT_EQ(options.optim.beta2, 0.95);
  EXPECT_EQ(options.optim.eps, 1e-8);
  EXPECT_EQ(options.optim.weight_decay, 0.1);
  EXPECT_EQ(options.optim.clip, 1.0);
  EXPECT_EQ(options.zero.stage, 3);
  EXPECT_EQ(options.checkpoint.keep, 3);
  EXPECT_EQ(options.checkpoint.resume, "auto");
  EXPECT_EQ(options.checkpoint_dir(), "run/checkpoints");
  EXPECT_EQ(options.run.peer_timeout, 10);
  EXPECT_EQ(options.run.stop_signals, (std::vector<int>{SIGUSR1, SIGTERM, SIGINT}));
  EXPECT_EQ(options.run.max_time.kind, TimeLimit::Kind::automatic);
  EXPECT_TRUE(options.data.shuffle);
  EXPECT_EQ(options.train.log_every, 1);
}

TEST(options, values_of_every_type_are_read_from_the_command_line) {
  Options const o =
      parse({"--model.dtype=bf16", "--offload.host_memory=1.5GiB", "--offload.nvme=/a, /b",
             "--optim.schedule", "wsd", "--optim.min_lr=1e-5", "--train.micro_batch=auto",
             "--run.max_time=1-02:03:04", "--run.stop_signals=SIGUSR2,TERM",
             "--offload.checksums=true", "--offload.engine=threads", "--offload.params=nvme",
             "--model.seed=18446744073709551615", "--train.recompute=selective"})
          .options;
  EXPECT_EQ(o.model.dtype, DType::bf16);
  EXPECT_EQ(o.offload.host_memory, 1610612736u);
  EXPECT_EQ(o.offload.nvme, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(o.optim.schedule, optim::ScheduleKind::wsd);
  EXPECT_EQ(o.min_lr(), 1e-5);
  EXPECT_EQ(o.train.micro_batch, 0);
  EXPECT_EQ(o.run.max_time, (TimeLimit{TimeLimit::Kind::seconds, 86400 + 7200 + 180 + 4}));
  EXPECT_EQ(o.run.stop_signals, (std::vector<int>{SIGUSR2, SIGTERM}));
  EXPECT_EQ(o.offload.checksums, Toggle::on);
  EXPECT_EQ(o.offload.engine, io::EngineKind::threads);
  EXPECT_EQ(o.offload.params, Residence::nvme);
  EXPECT_EQ(o.model.seed, 18446744073709551615u);
  EXPECT_EQ(o.train.recompute, Recompute::selective);
}

TEST(options, times_are_read_as_people_and_slurm_write_them) {
  auto const seconds = [](std::string const& text) {
    return parse({"--run.max_time=" + text}).options.run.max_time.seconds;
  };
  EXPECT_EQ(seconds("90"), 90);
  EXPECT_EQ(seconds("90s"), 90);
  EXPECT_EQ(seconds("1.5m"), 90);
  EXPECT_EQ(seconds("2h"), 7200);
  EXPECT_EQ(seconds("1d"), 86400);
  EXPECT_EQ(seconds("30:00"), 1800);
  EXPECT_EQ(seconds("04:00:00"), 14400);
  EXPECT_EQ(seconds("2-00"), 172800);
  EXPECT_EQ(seconds("1-12:30"), 86400 + 45000);
  EXPECT_EQ(parse({"--run.max_time=UNLIMITED"}).options.run.max_time.kind, TimeLimit::Kind::none);
  for (char const* bad : {"soon", "-5", "1:2:3:4", "1-2-3", "5x", "nan", ""})
    EXPECT_NE(problem_of({"--run.max_time=" + std::string(bad)}), "") << bad;
}

TEST(options, booleans_take_a_value_or_none) {
  EXPECT_FALSE(parse({"--data.shuffle=false"}).options.data.shuffle);
  EXPECT_TRUE(parse({"--data.shuffle"}).options.data.shuffle);
  EXPECT_TRUE(parse({"--data.shuffle=false", "--data.shuffle=true"}).options.data.shuffle);
  EXPECT_TRUE(contains(problem_of({"--data.shuffle=maybe"}), "true or false"));
}

TEST(options, a_list_given_twice_adds_up_and_a_number_given_twice_is_replaced) {
  EXPECT_EQ(parse({"--offload.nvme=/a", "--offload.nvme=/b"}).options.offload.nvme,
            (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(
      parse({"--offload.nvme=/a", "--offload.nvme=", "--offload.nvme=/c"}).options.offload.nvme,
      std::vector<std::string>{"/c"});
  EXPECT_EQ(parse({"--train.steps=5", "--train.steps=6"}).options.train.steps, 6);
}

TEST(options, command_line_wins_over_the_file_and_origins_are_kept) {
  test::TempDir const directory;
  std::string const file = directory.file("run.cfg");
  test::write_file(file,
                   "\xef\xbb\xbf# a comment\r\n[train]\r\nsteps = 7  # seven\r\n"
                   "[optim]\nlr=0.5\n[offload]\nnvme = /from/file\n");
  CommandLine const line =
      parse({"--optim.lr=0.25", "--offload.nvme=/from/line", "--config", file});
  EXPECT_EQ(line.options.train.steps, 7);
  EXPECT_EQ(line.options.optim.lr, 0.25);
  EXPECT_EQ(line.options.offload.nvme, (std::vector<std::string>{"/from/line"}));
  EXPECT_EQ(line.origins.at("train.steps"), file + ":3");
  EXPECT_EQ(line.origins.at("optim.lr"), "the command line");
}

TEST(options, an_unknown_key_is_refused_with_place_and_closest_key) {
  std::string const problem = problem_of({"--optim.warmup-step=3"});
  EXPECT_TRUE(contains(problem, "--optim.warmup-step'")) << problem;
  EXPECT_TRUE(contains(problem, "the command line")) << problem;
  EXPECT_TRUE(contains(problem, "Did you mean '--optim.warmup_steps'?")) << problem;
  EXPECT_TRUE(contains(problem_of({"--lr=3"}), "'--optim.lr'"));

  test::TempDir const directory;
  std::string const file = directory.file("run.cfg");
  test::write_file(file, "[data]\nseq_len = 8\n\n[train]\nstep = 7\n");
  std::string const in_file = problem_of({"--config=" + file});
  EXPECT_TRUE(contains(in_file, file + ":5")) << in_file;
  EXPECT_TRUE(contains(in_file, "Did you mean 'train.steps'?")) << in_file;
}

TEST(options, files_that_are_not_understood_are_refused_with_their_line) {
  test::TempDir const directory;
  std::string const file = directory.file("run.cfg");
  test::write_file(file, "[train]\nsteps = 7\nthis is no assignment\n");
  EXPECT_TRUE(contains(problem_of({"--config=" + file}), file + ":3"));
  test::write_file(file, "[train]\nsteps = 7\n[optim]\n[train]\nsteps = 8\n");
  std::string const twice = problem_of({"--config=" + file});
  EXPECT_TRUE(contains(twice, file + ":2")) << twice;
  EXPECT_TRUE(contains(twice, file + ":5")) << twice;
  std::string const absent = problem_of({"--config=" + file + ".not"});
  EXPECT_TRUE(contains(absent, "run.cfg.not")) << absent;
  EXPECT_TRUE(contains(absent, "ENOENT")) << absent;
  EXPECT_TRUE(contains(problem_of({"--config=" + directory.path().string()}), "EISDIR"));
  test::write_file(file, "");
  EXPECT_EQ(problem_of({"--config=" + file}), "");
}

TEST(options, bad_values_name_key_value_place_and_what_is_allowed) {
  test::TempDir const directory;
  std::string const file = directory.file("run.cfg");
  test::write_file(file, "[optim]\nbeta1 = 1.0\n");
  std::string const problem = problem_of({"--config=" + file});
  for (auto const& part : {std::string("'1.0'"), std::string("optim.beta1"), file + ":2",
                           std::string("a number in [0, 1)")})
    EXPECT_TRUE(contains(problem, part)) << problem;
  EXPECT_TRUE(contains(problem_of({"--optim.state=fp64"}), "one of fp32, bf16, int8"));
}

TEST(options, values_out_of_range_are_refused) {
  for (char const* word : {"--optim.beta1=-0.1",
                           "--optim.beta2=1",
                           "--optim.lr=-1",
                           "--optim.lr=inf",
                           "--optim.lr=nan",
                           "--optim.lr=1e999",
                           "--optim.lr=",
                           "--optim.lr=3e-4x",
                           "--optim.eps=-1e-9",
                           "--optim.clip=-1",
                           "--optim.weight_decay=nan",
                           "--train.steps=-1",
                           "--train.steps=1.5",
                           "--train.steps=9223372036854775808",
                           "--data.seq_len=0",
                           "--data.seq_len=-8",
                           "--train.global_batch=0",
                           "--train.log_every=0",
                           "--train.threads=-1",
                           "--checkpoint.keep=-1",
                           "--checkpoint.every=-1",
                           "--zero.stage=4",
                           "--model.dtype=fp8",
                           "--model.seed=-1",
                           "--offload.host_memory=lots",
                           "--offload.host_memory=-1GiB",
                           "--offload.nvme=/a,,/b",
                           "--run.stop_signals=KILL",
                           "--run.stop_signals=USR1 TERM",
                           "--run.peer_timeout=0",
                           "--offload.engine=aio",
                           "--run.name=a#b",
                           "--run.dir=a\nb",
                           "--run.name= a"})
    EXPECT_NE(problem_of({word}), "") << word;
}

TEST(options, what_is_written_reads_back_to_equal_options) {
  Options const options = parse({"--model.path=/m",
                                 "--model.dtype=bf16",
                                 "--data.train=a*.bin,b.bin",
                                 "--data.shuffle=false",
                                 "--train.tokens=123456789012",
                                 "--optim.lr=0.1",
                                 "--optim.min_lr=0.30000000000000004",
                                 "--optim.schedule=constant",
                                 "--optim.eps=1e-300",
                                 "--offload.host_memory=1234567891B",
                                 "--offload.device_memory=0",
                                 "--offload.nvme=/a b,/c",
                                 "--offload.activations=host",
                                 "--offload.checksums=false",
                                 "--offload.engine=uring",
                                 "--offload.slot=16MiB",
                                 "--checkpoint.every_minutes=2.5",
                                 "--checkpoint.resume=/p",
                                 "--run.max_time=0.1",
                                 "--run.stop_signals=",
                                 "--run.name=x y",
                                 "--zero.stage=1",
                                 "--zero.quantize_weights",
                                 "--optim.state=int8",
                                 "--optim.master=none",
                                 "--optim.grad_dtype=bf16"})
                              .options;
  CommandLine back;
  read_config(config_text(options), "config.cfg", back);
  EXPECT_EQ(back.options, options);
  EXPECT_EQ(back.origins.size(), option_table().size());
  CommandLine defaults;
  read_config(config_text(Options{}), "config.cfg", defaults);
  EXPECT_EQ(defaults.options, Options{});
}

TEST(options, help_names_every_key_with_its_default) {
  std::string const help = help_text(all_sections());
  for (auto const& key : option_table())
    EXPECT_TRUE(contains(help, "--" + key.name + " ")) << key.name;
  EXPECT_TRUE(contains(help, "[0.0003]"));
  EXPECT_TRUE(contains(help, "--dump-options"));
}

TEST(options, a_command_refuses_keys_of_sections_that_it_does_not_read) {
  Syntax syntax;
  syntax.usage = "spillway ckpt ls DIR";
  syntax.flags = {{"json", "", "print JSON"}, {"keep", "N", "how many"}};
  syntax.positional_max = 1;
  CommandLine const line = parse_command_line(syntax, {"dir", "--json", "--keep=3"});
  EXPECT_EQ(line.positional, std::vector<std::string>{"dir"});
  EXPECT_TRUE(line.has("json"));
  EXPECT_EQ(line.flag("keep"), "3");
  CommandLine const before = parse_command_line(syntax, {"--json", "dir"});
  EXPECT_EQ(before.positional, std::vector<std::string>{"dir"});
  EXPECT_TRUE(before.has("json"));
  EXPECT_FALSE(parse_command_line(syntax, {"--json=false"}).has("json"));
  EXPECT_THROW(parse_command_line(syntax, {"--json=perhaps"}), Error);
  EXPECT_THROW(parse_command_line(syntax, {"--optim.lr=1"}), Error);
  EXPECT_THROW(parse_command_line(syntax, {"a", "b"}), Error);
  EXPECT_THROW(parse_command_line(syntax, {"--keep"}), Error);
}

TEST(options, a_key_of_the_file_can_be_emptied_on_the_command_line) {
  test::TempDir const directory;
  std::string const file = directory.file("run.cfg");
  test::write_file(file, "[data]\nval = v.bin\n[offload]\nnvme = /a\n");
  Options const options =
      parse({"--config=" + file, "--data.val=", "--offload.nvme=", "--train.steps=3"}).options;
  EXPECT_EQ(options.data.val, "");
  EXPECT_TRUE(options.offload.nvme.empty());
  EXPECT_EQ(options.train.steps, 3);
  EXPECT_NE(problem_of({"--data.shuffle="}), "");
  EXPECT_NE(problem_of({"--data.valx="}), "");
}

TEST(options, abbreviated_keys_are_not_guessed) {
  EXPECT_TRUE(contains(problem_of({"--optim.warmup=3"}), "Did you mean"));
}

TEST(closest, distance_counts_single_edits_and_swaps) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("steps", "step"), 1);
  EXPECT_EQ(edit_distance("lr", "rl"), 1);
  EXPECT_EQ(edit_distance("same", "same"), 0);
}

}  // namespace
}  // namespace spillway::app
