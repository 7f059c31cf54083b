// `spillway ckpt` on checkpoints made from Hugging Face folders, read back by h5py and numpy.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/app/process.hpp"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;
using test::Finished;

constexpr char const* kOracle = SPILLWAY_TEST_DATA "/oracle/";

Finished ckpt(std::string const& words) {
  return test::run_shell(std::string("'" SPILLWAY_PROGRAM "' ckpt ") + words);
}

bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

/// Python that reads safetensors itself: `load(path)` gives name -> array of float32.
constexpr char const* kLoad = R"(
import json, sys, numpy
def load(path):
    data = open(path, 'rb').read()
    length = int.from_bytes(data[:8], 'little')
    tensors = {}
    for name, info in json.loads(data[8:8 + length]).items():
        if name == '__metadata__': continue
        begin, end = info['data_offsets']
        raw = data[8 + length + begin:8 + length + end]
        if info['dtype'] == 'BF16':
            array = (numpy.frombuffer(raw, '<u2').astype('<u4') << 16).view('<f4')
        else:
            assert info['dtype'] == 'F32', info
            array = numpy.frombuffer(raw, '<f4')
        tensors[name] = array.reshape(info['shape'])
    return tensors
def to_bf16(x):  # nearest, ties to even
    bits = numpy.ascontiguousarray(x).view('<u4').astype('<u8')
    return (((bits + 0x7fff + ((bits >> 16) & 1)) >> 16 << 16).astype('<u4')).view('<f4')
)";

Finished python(std::string const& program, std::string const& arguments) {
  return test::run_shell("/usr/bin/python3 - " + arguments + " <<'EOS'\n" + kLoad + program +
                         "\nprint('fine')\nEOS");
}

/// Imports one of the oracle's models; the path of its checkpoint.
std::string import_model(std::string const& name, fs::path const& into,
                         std::string const& flags = "") {
  Finished const finished =
      ckpt("import '" + std::string(kOracle) + name + "' '" + into.string() + "' " + flags);
  EXPECT_EQ(finished.code, 0) << finished.err;
  return (into / "step-000000000").string();
}

/// Changes one byte in the middle of a file.
void spoil(fs::path const& file) {
  std::string bytes = test::read_file(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  test::write_file(file, bytes);
}

/// A copy of a checkpoint under the name of another step, as far as its folder goes.
void copy_checkpoint(std::string const& from, fs::path const& to) {
  fs::copy(from, to, fs::copy_options::recursive);
}

class Models : public testing::TestWithParam<char const*> {};

TEST_P(Models, imported_weights_are_whole_in_the_index_for_h5py) {
  test::TempDir const temp;
  std::string const checkpoint = import_model(GetParam(), temp.path());
  auto const checked = python(R"(
import h5py
expected = load(sys.argv[1])
index = h5py.File(sys.argv[2], 'r')
names = list(index['/model'])
assert names
for name in names:
    values = index['/model/' + name][:]
    assert values.shape == expected[name].shape, name
    assert (values.view('<u4') == expected[name].view('<u4')).all(), name
    assert (index['/optimizer/m/' + name][:] == 0).all()
assert not set(expected) - set(names), set(expected) - set(names)
)",
                              std::string("'") + kOracle + GetParam() + "/model.safetensors' '" +
                                  checkpoint + "/index.h5'");
  EXPECT_EQ(checked.out, "fine\n") << checked.err;
}

TEST_P(Models, an_export_of_an_import_gives_the_same_tensors) {
  test::TempDir const temp;
  std::string const checkpoint = import_model(GetParam(), temp.path() / "in");
  Finished const finished = ckpt("export '" + checkpoint + "' '" + temp.file("out") + "'");
  ASSERT_EQ(finished.code, 0) << finished.err;
  auto const checked =
      python(R"(
expected, found = load(sys.argv[1] + '/model.safetensors'), load(sys.argv[2] + '/model.safetensors')
assert set(expected) == set(found), set(expected) ^ set(found)
for name in expected:
    assert expected[name].shape == found[name].shape, name
    assert (expected[name].view('<u4') == found[name].view('<u4')).all(), name
before, after = (json.load(open(path + '/config.json')) for path in sys.argv[1:3])
assert before == after, (before, after)
)",
             std::string("'") + kOracle + GetParam() + "' '" + temp.file("out") + "'");
  EXPECT_EQ(checked.out, "fine\n") << checked.err;
  EXPECT_EQ(ckpt("export '" + checkpoint + "' '" + temp.file("out") + "'").code, 2)
      << "an export must not replace a model";
}

TEST_P(Models, bf16_is_rounded_to_nearest_and_the_master_keeps_all_bits) {
  test::TempDir const temp;
  std::string const checkpoint = import_model(GetParam(), temp.path() / "in", "--dtype=bf16");
  ASSERT_EQ(ckpt("export '" + checkpoint + "' '" + temp.file("bf16") + "'").code, 0);
  ASSERT_EQ(ckpt("export '" + checkpoint + "' '" + temp.file("fp32") + "' --dtype=fp32").code, 0);
  auto const checked = python(R"(
exact, narrow, wide = (load(path + '/model.safetensors') for path in sys.argv[1:4])
for name in exact:
    assert (to_bf16(exact[name]).view('<u4') == narrow[name].view('<u4')).all(), name
    assert (exact[name].view('<u4') == wide[name].view('<u4')).all(), name
config = json.load(open(sys.argv[2] + '/config.json'))
assert config.get('torch_dtype', config.get('dtype')) == 'bfloat16', config
)",
                              std::string("'") + kOracle + GetParam() + "' '" + temp.file("bf16") +
                                  "' '" + temp.file("fp32") + "'");
  EXPECT_EQ(checked.out, "fine\n") << checked.err;
}

INSTANTIATE_TEST_SUITE_P(Oracle, Models,
                         testing::Values("tiny-gpt2", "tiny-llama", "tiny-llama3-tied"),
                         [](auto const& parameter) {
                           std::string name = parameter.param;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

TEST(ckpt, large_exports_are_split_with_an_index) {
  test::TempDir const temp;
  std::string const checkpoint = import_model("tiny-llama", temp.path() / "in");
  ASSERT_EQ(
      ckpt("export '" + checkpoint + "' '" + temp.file("out") + "' --shard-bytes=100KiB").code, 0);
  auto const checked =
      python(R"(
expected = load(sys.argv[1] + '/model.safetensors')
map = json.load(open(sys.argv[2] + '/model.safetensors.index.json'))['weight_map']
assert set(map) == set(expected) and len(set(map.values())) > 1
for name, file in map.items():
    assert (load(sys.argv[2] + '/' + file)[name] == expected[name]).all(), name
)",
             std::string("'") + kOracle + "tiny-llama' '" + temp.file("out") + "'");
  EXPECT_EQ(checked.out, "fine\n") << checked.err;
}

TEST(ckpt, verify_says_ok_or_names_the_file_with_exit_code_3) {
  test::TempDir const temp;
  std::string const checkpoint = import_model("tiny-gpt2", temp.path());
  Finished const good = ckpt("verify '" + temp.path().string() + "'");
  EXPECT_EQ(good.code, 0) << good.out << good.err;
  EXPECT_TRUE(contains(good.out, "step-000000000 OK")) << good.out;

  spoil(checkpoint + "/shard-00000-of-00001.h5");
  Finished const bad = ckpt("verify '" + temp.path().string() + "'");
  EXPECT_EQ(bad.code, 3) << bad.out;
  EXPECT_TRUE(contains(bad.out, "BROKEN")) << bad.out;
  EXPECT_TRUE(contains(bad.out, "shard-00000-of-00001.h5")) << bad.out;
}

TEST(ckpt, a_missing_shard_is_named_by_every_command) {
  test::TempDir const temp;
  std::string const checkpoint = import_model("tiny-gpt2", temp.path());
  fs::remove(checkpoint + "/shard-00000-of-00001.h5");
  for (std::string const command : {"verify", "show", "ls"}) {
    Finished const finished = ckpt(command + " '" + temp.path().string() + "'");
    EXPECT_EQ(finished.code, command == "ls" ? 0 : 3) << command;
    EXPECT_TRUE(contains(finished.out + finished.err, "shard-00000-of-00001.h5")) << command;
  }
  EXPECT_EQ(ckpt("export '" + checkpoint + "' '" + temp.file("out") + "'").code, 3);
  EXPECT_FALSE(fs::exists(temp.path() / "out" / "config.json"));
}

TEST(ckpt, ls_and_show_print_json_of_what_is_there) {
  test::TempDir const temp;
  import_model("tiny-llama", temp.path() / "checkpoints", "--dtype=bf16");
  auto const rows = nlohmann::json::parse(ckpt("ls --json '" + temp.path().string() + "'").out);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["step"], 0);
  EXPECT_EQ(rows[0]["ranks"], 1);
  EXPECT_EQ(rows[0]["dtype"], "bf16");
  EXPECT_EQ(rows[0]["latest"], true);
  auto const shown = nlohmann::json::parse(ckpt("show --json '" + temp.path().string() + "'").out);
  auto const counted = python(R"(
print(sum(x.size for x in load(sys.argv[1]).values())))",
                              std::string("'") + kOracle + "tiny-llama/model.safetensors'");
  EXPECT_EQ(std::to_string(shown["parameters"].get<long>()) + "\nfine\n", counted.out);
  EXPECT_EQ(shown["config"], nlohmann::json::parse(
                                 test::read_file(std::string(kOracle) + "tiny-llama/config.json")));
  EXPECT_TRUE(
      contains(ckpt("show '" + temp.path().string() + "'").out, "model.embed_tokens.weight"));
  EXPECT_TRUE(contains(ckpt("ls '" + temp.path().string() + "'").out, "latest"));
}

TEST(ckpt, diff_reports_identical_or_the_tensors_that_differ) {
  test::TempDir const temp;
  std::string const a = import_model("tiny-llama", temp.path() / "a");
  std::string const b = import_model("tiny-llama", temp.path() / "b");
  Finished const same = ckpt("diff '" + a + "' '" + b + "'");
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(same.out, "identical\n");

  // One weight of another model, by a byte in the data of its safetensors.
  fs::copy(std::string(kOracle) + "tiny-llama", temp.path() / "changed");
  std::string bytes = test::read_file(temp.path() / "changed" / "model.safetensors");
  bytes[bytes.size() - 4] = static_cast<char>(bytes[bytes.size() - 4] ^ 1);
  test::write_file(temp.path() / "changed" / "model.safetensors", bytes);
  ASSERT_EQ(ckpt("import '" + temp.file("changed") + "' '" + temp.file("c") + "'").code, 0);
  Finished const other = ckpt("diff '" + a + "' '" + temp.file("c") + "'");
  EXPECT_EQ(other.code, 1);
  EXPECT_EQ(std::count(other.out.begin(), other.out.end(), '\n'), 1) << other.out;
}

TEST(ckpt, prune_keeps_the_newest_and_latest) {
  test::TempDir const temp;
  std::string const first = import_model("tiny-gpt2", temp.path());
  for (int step = 1; step <= 4; ++step)
    copy_checkpoint(first, temp.path() / ("step-00000000" + std::to_string(step)));
  Finished const dry = ckpt("prune '" + temp.path().string() + "' --keep=2 --dry-run");
  EXPECT_EQ(dry.code, 0) << dry.err;
  EXPECT_TRUE(fs::exists(temp.path() / "step-000000001"));
  Finished const pruned = ckpt("prune '" + temp.path().string() + "' --keep=2");
  EXPECT_EQ(pruned.code, 0) << pruned.err;
  std::string left;
  for (int step = 0; step <= 4; ++step)
    if (fs::exists(temp.path() / ("step-00000000" + std::to_string(step))))
      left += std::to_string(step);
  EXPECT_EQ(left, "034") << "`latest` is step 0";
  EXPECT_EQ(ckpt("prune '" + temp.path().string() + "'").code, 2);
  EXPECT_EQ(ckpt("prune '" + temp.path().string() + "' --keep=0").code, 2);
}

TEST(ckpt, an_import_refuses_a_folder_that_lacks_a_tensor_of_the_model) {
  test::TempDir const temp;
  auto const changed = test::run_shell(
      "/usr/bin/python3 - '" + std::string(kOracle) + "tiny-gpt2' '" + temp.file("cut") +
      "' <<'EOS'\nimport json, os, sys\n"
      "os.mkdir(sys.argv[2])\n"
      "data = open(sys.argv[1] + '/model.safetensors', 'rb').read()\n"
      "length = int.from_bytes(data[:8], 'little')\n"
      "header = data[8:8 + length].replace(b'.mlp.c_fc.bias', b'.mlp.c_fc.bixs')\n"
      "open(sys.argv[2] + '/model.safetensors', 'wb').write(data[:8] + header + data[8 + "
      "length:])\n"
      "open(sys.argv[2] + '/config.json', 'w').write(open(sys.argv[1] + '/config.json').read())\n"
      "EOS");
  ASSERT_EQ(changed.code, 0) << changed.err;
  Finished const finished = ckpt("import '" + temp.file("cut") + "' '" + temp.file("out") + "'");
  EXPECT_EQ(finished.code, 3);
  EXPECT_TRUE(contains(finished.err, "mlp.c_fc.bias")) << finished.err;
  EXPECT_FALSE(fs::exists(temp.path() / "out" / "step-000000000"));
}

TEST(ckpt, wrong_arguments_are_usage_errors_and_wrong_folders_bad_input) {
  test::TempDir const temp;
  EXPECT_EQ(ckpt("").code, 2);
  EXPECT_EQ(ckpt("ls").code, 2);
  EXPECT_EQ(ckpt("diff a").code, 2);
  EXPECT_EQ(ckpt("ls a b").code, 2);
  EXPECT_EQ(ckpt("verify --jsn x").code, 2);
  EXPECT_EQ(ckpt("--help").code, 0);
  EXPECT_EQ(ckpt("import model.gguf '" + temp.file("x") + "'").code, 2);
  EXPECT_EQ(ckpt("verify '" + temp.path().string() + "'").code, 3);
  EXPECT_EQ(ckpt("verify /no/such/place").code, 3);
  EXPECT_EQ(ckpt("import /no/such/model '" + temp.file("x") + "'").code, 3);
}

}  // namespace
}  // namespace spillway::app
