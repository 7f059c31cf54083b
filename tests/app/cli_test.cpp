// The program itself: exit codes, messages and outputs of the commands that need no MPI.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/app/process.hpp"

namespace spillway::app {
namespace {

using test::Finished;

Finished spillway(std::string const& words) {
  return test::run_shell(std::string("'" SPILLWAY_PROGRAM "' ") + words);
}

bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

TEST(cli, version_names_the_libraries) {
  Finished const finished = spillway("--version");
  EXPECT_EQ(finished.code, 0);
  EXPECT_EQ(finished.out.find("spillway "), 0u);
  for (char const* name : {"compiler", "MPI", "HDF5", "liburing", "oneDNN", "Boost", "fmt", "CUDA"})
    EXPECT_TRUE(contains(finished.out, name)) << name;
}

TEST(cli, versions_are_those_of_the_installed_packages) {
  Finished const finished = spillway("--version");
  auto const hdf5 =
      test::run_shell("/usr/bin/python3 -c 'import h5py; print(h5py.version.hdf5_version)'");
  ASSERT_EQ(hdf5.code, 0) << hdf5.err;
  EXPECT_TRUE(contains(finished.out, hdf5.out.substr(0, hdf5.out.size() - 1))) << finished.out;
  auto const mpi = test::run_shell("ompi_info --version | head -1");
  ASSERT_TRUE(contains(mpi.out, "Open MPI v"));
  EXPECT_TRUE(contains(finished.out, mpi.out.substr(0, mpi.out.size() - 1))) << finished.out;
}

TEST(cli, help_lists_the_commands_and_no_command_is_a_usage_error) {
  Finished const help = spillway("--help");
  EXPECT_EQ(help.code, 0);
  for (char const* name : {"train", "plan", "tokenize", "generate", "ckpt", "bench", "doctor"})
    EXPECT_TRUE(contains(help.out, name)) << name;
  EXPECT_EQ(spillway("").code, 2);
}

TEST(cli, an_unknown_command_names_the_closest) {
  Finished const finished = spillway("dokter");
  EXPECT_EQ(finished.code, 2);
  EXPECT_TRUE(contains(finished.err, "error: unknown command 'dokter'")) << finished.err;
  EXPECT_TRUE(contains(finished.err, "'doctor'")) << finished.err;
  EXPECT_TRUE(contains(spillway("ckpt verfy x").err, "'ckpt verify'"));
}

TEST(cli, errors_name_the_rank_under_a_launcher) {
  Finished const finished = test::run_shell("OMPI_COMM_WORLD_RANK=3 '" SPILLWAY_PROGRAM "' dokter");
  EXPECT_TRUE(contains(finished.err, "[r3] error:")) << finished.err;
}

TEST(cli, output_that_cannot_be_written_is_an_error_but_a_closed_pipe_is_not) {
  EXPECT_EQ(spillway("--version >/dev/full").code, 5);
  Finished const piped = test::run_shell(
      "/usr/bin/python3 -c \"import os, subprocess; r, w = os.pipe(); os.close(r); "
      "print(subprocess.run(['" SPILLWAY_PROGRAM "', '--help'], stdout=w).returncode)\"");
  EXPECT_EQ(piped.out, "0\n") << piped.err;
  EXPECT_EQ(piped.err, "");
}

TEST(cli, doctor_says_what_is_there_as_text_and_as_json) {
  test::TempDir const temp;
  Finished const text = spillway("doctor '" + temp.path().string() + "' --bytes=4MiB");
  EXPECT_EQ(text.code, 0) << text.err;
  for (char const* name : {"[cpu]", "AMX BF16", "affinity", "cgroup limit", "locked memory",
                           "engine", "MPI", "GPUs", "huge pages", "direct I/O", "read", "write"})
    EXPECT_TRUE(contains(text.out, name)) << name;
  EXPECT_TRUE(std::filesystem::is_empty(temp.path()));

  Finished const json =
      spillway("doctor --json --bytes=0 --offload.nvme='" + temp.path().string() + "'");
  EXPECT_EQ(json.code, 0) << json.err;
  auto const all = nlohmann::json::parse(json.out);
  EXPECT_EQ(all["disk " + temp.path().string()]["usable"]["value"], "yes");
  auto const kernel = test::run_shell("uname -sr");
  EXPECT_EQ(all["system"]["kernel"]["value"].get<std::string>() + "\n", kernel.out);
  auto const processors = test::run_shell("getconf _NPROCESSORS_ONLN");
  EXPECT_EQ(std::atoi(all["cpu"]["processors"]["value"].get<std::string>().c_str()),
            std::atoi(processors.out.c_str()));
}

TEST(cli, doctor_sees_the_affinity_mask) {
  auto const cpu = test::run_shell(
      "/usr/bin/python3 -c 'import os; print(min(os.sched_getaffinity(0)), end=\"\")'");
  Finished const bound =
      test::run_shell("taskset -c " + cpu.out + " '" SPILLWAY_PROGRAM "' doctor --json");
  auto const all = nlohmann::json::parse(bound.out);
  EXPECT_EQ(all["cpu"]["affinity"]["value"], "1 (" + cpu.out + ")");
}

TEST(cli, doctor_refuses_a_directory_that_cannot_be_used) {
  Finished const finished = spillway("doctor /no/such/place");
  EXPECT_EQ(finished.code, 3);
  EXPECT_TRUE(contains(finished.out, "disk /no/such/place"));
  EXPECT_TRUE(contains(finished.out, "usable")) << finished.out;
}

TEST(cli, bench_io_measures_and_verifies) {
  test::TempDir const temp;
  Finished const finished =
      spillway("bench io '" + temp.path().string() + "' --bytes=8MiB --depth=4 --verify --json");
  EXPECT_EQ(finished.code, 0) << finished.err;
  auto const all = nlohmann::json::parse(finished.out);
  EXPECT_EQ(all["bytes"], 8 << 20);
  EXPECT_GT(all["read_gb_per_s"].get<double>(), 0);
  EXPECT_GT(all["write_gb_per_s"].get<double>(), 0);
  EXPECT_GE(all["verified_bytes"].get<std::int64_t>(), 8 << 20);
  EXPECT_TRUE(std::filesystem::is_empty(temp.path()));
  EXPECT_EQ(spillway("bench io --depth=0").code, 2);
  EXPECT_EQ(spillway("bench io --block=5000").code, 2);
  EXPECT_EQ(spillway("bench io --bytes=many").code, 2);
}

TEST(cli, bench_memory_and_adam_count_what_they_move) {
  auto const memory = nlohmann::json::parse(spillway("bench memory --mib=4 --json").out);
  for (char const* key :
       {"read_gb_per_s", "copy_gb_per_s", "triad_gb_per_s", "triad_past_caches_gb_per_s"})
    EXPECT_GT(memory[key].get<double>(), 0) << key;
  EXPECT_EQ(memory["mib"], 4);
  EXPECT_NEAR(memory["triad_moved_gb_per_s"].get<double>() / memory["triad_gb_per_s"].get<double>(),
              4.0 / 3, 1e-9);
  auto const adam = nlohmann::json::parse(spillway("bench adam --parameters=1 --json").out);
  double const limit = std::max(adam["triad_gb_per_s"].get<double>() * 4 / 3,
                                adam["triad_past_caches_gb_per_s"].get<double>());
  for (std::string const type : {"bf16", "fp32"}) {
    double const moved = adam[type + "_gb_per_s"].get<double>();
    EXPECT_GT(moved, 0) << type;
    EXPECT_NEAR(adam[type + "_of_triad"].get<double>(), moved / limit, 1e-9) << type;
  }
  EXPECT_EQ(adam["parameters"], 1'000'000);
  EXPECT_EQ(spillway("bench memory --mib=0").code, 2);
  EXPECT_EQ(spillway("bench adam --threads=none").code, 2);
}

TEST(cli, bench_gemm_has_every_product_of_a_step) {
  test::TempDir const temp;
  std::string const config = temp.path() / "config.json";
  test::write_file(config, R"({"model_type": "llama", "vocab_size": 3000, "hidden_size": 32,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "intermediate_size": 48, "max_position_embeddings": 64})");
  Finished const finished = spillway("bench gemm --config='" + config +
                                     "' --batch=2 --seq=16 --dtype=fp32 --rounds=1 --json");
  ASSERT_EQ(finished.code, 0) << finished.err;
  auto const all = nlohmann::json::parse(finished.out);
  // q|k|v, out, gate, up, down and the head, three products each: 6 flops a weight and token.
  EXPECT_EQ(all["products"].size(), 18u);
  double flops = 0, seconds = 0;
  for (auto const& product : all["products"]) {
    double const once =
        2 * product["M"].get<double>() * product["N"].get<double>() * product["K"].get<double>();
    flops += product["count"].get<double>() * once;
    seconds +=
        product["count"].get<double>() * once * 1e-9 / product["onednn_gflops"].get<double>();
    EXPECT_NEAR(product["ratio"].get<double>(),
                product["spillway_gflops"].get<double>() / product["onednn_gflops"].get<double>(),
                1e-6);
  }
  double const weights = 2 * (32 * 64 + 32 * 32 + 3 * 32 * 48) + 32 * 3000;
  EXPECT_NEAR(flops, 6 * weights * 32, 1);
  EXPECT_NEAR(all["onednn_s"].get<double>(), seconds, 1e-9);
  EXPECT_NEAR(all["onednn_tokens_per_s"].get<double>(), 32 / seconds, 1e-3 / seconds);
  EXPECT_GT(all["onednn_s"].get<double>(), 0);
  EXPECT_EQ(spillway("bench gemm --dtype=fp16").code, 2);
  EXPECT_EQ(spillway("bench gemm --config=/no/such/file").code, 3);
  EXPECT_EQ(spillway("bench gem").code, 2);
}

TEST(cli, bench_gemm_cuts_a_step_as_the_model_does) {
  test::TempDir const temp;
  auto const products = [&](std::string const& text, std::string const& flags) {
    std::string const config = temp.path() / "config.json";
    test::write_file(config, text);
    Finished const finished =
        spillway("bench gemm --config='" + config + "' --rounds=1 --json " + flags);
    EXPECT_EQ(finished.code, 0) << finished.err;
    auto const all = nlohmann::json::parse(finished.out);
    std::map<std::string, nlohmann::json> named;
    for (auto const& product : all["products"]) named[product["name"]] = product;
    return named;
  };
  // Three projections, one product, with biases too.
  auto const together = products(R"({"model_type": "qwen2", "vocab_size": 300, "hidden_size": 32,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "intermediate_size": 48, "max_position_embeddings": 64})",
                                 "--batch=1 --seq=16 --dtype=fp32");
  EXPECT_EQ(together.at("qkv")["N"], 32 + 2 * 16);
  // 4,096 rows of 50,257 logits are more than may be kept: four times 1,024 rows.
  auto const large = products(R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024,
      "n_embd": 16, "n_layer": 1, "n_head": 2})",
                              "--batch=4 --seq=1024 --dtype=fp32");
  EXPECT_EQ(large.at("head")["M"], 1024);
  EXPECT_EQ(large.at("head dW")["K"], 1024);
  EXPECT_EQ(large.at("up")["M"], 4096);
}

TEST(cli, bench_gemm_refuses_a_mixture_of_experts) {
  test::TempDir const temp;
  std::string const config = temp.path() / "config.json";
  test::write_file(config, R"({"model_type": "mixtral", "vocab_size": 300, "hidden_size": 32,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "intermediate_size": 48, "max_position_embeddings": 64, "num_local_experts": 4,
      "num_experts_per_tok": 2})");
  Finished const finished = spillway("bench gemm --config='" + config + "'");
  EXPECT_EQ(finished.code, 2);
  EXPECT_TRUE(contains(finished.err, "mixture of experts")) << finished.err;
}

TEST(cli, tokenize_writes_bytes_as_tokens) {
  test::TempDir const temp;
  test::write_file(temp.path() / "a.txt", "Hi\n\xff");
  test::write_file(temp.path() / "b.jsonl", "{\"text\": \"x\\u00e4\"}\n{\"text\": \"\"}\n");
  Finished const finished = spillway("tokenize --out='" + temp.file("t.bin") + "' '" +
                                     temp.file("a.txt") + "' '" + temp.file("b.jsonl") + "'");
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(contains(finished.out, "1 empty documents were skipped")) << finished.out;
  auto const tokens = test::run_shell(
      "/usr/bin/python3 -c \"import numpy, sys; print(numpy.fromfile(sys.argv[1], '<u2', "
      "offset=256).tolist())\" '" +
      temp.file("t.bin") + "'");
  EXPECT_EQ(tokens.out, "[72, 105, 10, 255, 256, 120, 195, 164, 256]\n") << tokens.err;
}

TEST(cli, tokenize_refuses_what_it_does_not_have) {
  test::TempDir const temp;
  test::write_file(temp.path() / "a.txt", "Hi");
  std::string const in = " '" + temp.file("a.txt") + "'";
  EXPECT_EQ(spillway("tokenize" + in).code, 2);
  EXPECT_EQ(spillway("tokenize --out=x").code, 2);
  EXPECT_EQ(spillway("tokenize --out=x --tokenizer=gpt2" + in).code, 2);
  EXPECT_EQ(spillway("tokenize --out=x --format=csv" + in).code, 2);
  EXPECT_EQ(spillway("tokenize --out='" + temp.file("t.bin") + "' /no/such/file").code, 3);
  EXPECT_FALSE(std::filesystem::exists(temp.path() / "t.bin"));
}

TEST(cli, train_refuses_bad_options_with_exit_code_2) {
  EXPECT_EQ(spillway("train --optim.lr=fast").code, 2);
  EXPECT_EQ(spillway("train --optim.lrr=1").code, 2);
  Finished const dump = spillway("train --train.steps=7 --dump-options");
  EXPECT_EQ(dump.code, 0) << dump.err;
  EXPECT_TRUE(contains(dump.out, "[train]\nsteps = 7\n")) << dump.out;
  EXPECT_TRUE(contains(spillway("train --help").out, "--optim.beta2"));
}

}  // namespace
}  // namespace spillway::app
