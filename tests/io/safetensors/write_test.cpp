// Writing of safetensors: files are read back by numpy and by our reader.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "io/safetensors/safetensors.hpp"
#include "tests/io/safetensors/test_files.hpp"

namespace spillway {
namespace {

using io::TensorInfo;

/// Multiples of 1/8 that all three types hold exactly; numpy knows the same formula (reference.py).
class Pattern : public io::TensorReader {
 public:
  void read(TensorInfo const& tensor, std::int64_t begin, std::span<float> out) override {
    most = std::max(most, out.size());
    if (tensor.name == fail_at) fail(Fault::io, "the disk of the source died");
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>((begin + static_cast<std::int64_t>(i)) % 255 - 127) / 8;
  }
  std::string fail_at;
  std::size_t most = 0;  // elements asked for at once
};

std::string check(test::ScratchFolder const& scratch) {
  return test::python(SPILLWAY_REFERENCE, "check '" + scratch.path().string() + "'");
}

std::vector<std::string> files_in(std::filesystem::path const& folder) {
  std::set<std::string> names;
  for (auto const& file : std::filesystem::directory_iterator(folder))
    names.insert(file.path().filename());
  return {names.begin(), names.end()};
}

std::vector<TensorInfo> const kMixed{{"wte", DType::bf16, {5, 3}},    {"norm", DType::f32, {7}},
                                     {"half", DType::f16, {3, 1, 3}}, {"scale", DType::f32, {}},
                                     {"none", DType::bf16, {0, 4}},   {"last", DType::bf16, {1}}};

TEST(SafetensorsWrite, numpy_reads_names_shapes_and_values_back_aligned) {
  test::ScratchFolder scratch;
  Pattern pattern;
  io::write_safetensors(scratch.path(), kMixed, pattern);
  EXPECT_EQ(check(scratch),
            "norm F32 7\nscale F32 \nwte BF16 5x3\nhalf F16 3x1x3\nnone BF16 0x4\nlast BF16 1\n");
  EXPECT_EQ(files_in(scratch.path()), std::vector<std::string>{"model.safetensors"});
}

TEST(SafetensorsWrite, our_reader_finds_what_was_written) {
  test::ScratchFolder scratch;
  Pattern pattern;
  io::write_safetensors(scratch.path(), kMixed, pattern, 20);
  io::SafetensorsFolder const folder(scratch.path());
  ASSERT_EQ(folder.tensors().size(), kMixed.size());
  for (auto const& tensor : kMixed) {
    TensorInfo const* found = folder.find(tensor.name);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_EQ(found->type, tensor.type);
  }
}

TEST(SafetensorsWrite, shards_stay_below_the_limit_and_keep_the_order_given) {
  test::ScratchFolder scratch;
  std::vector<TensorInfo> tensors;
  for (int i = 0; i < 10; ++i) tensors.push_back({"t" + std::to_string(i), DType::f32, {25}});
  tensors.push_back({"large", DType::f32, {100}});  // alone more than a shard
  Pattern pattern;
  io::write_safetensors(scratch.path(), tensors, pattern, 300);
  check(scratch);
  EXPECT_EQ(files_in(scratch.path()),
            (std::vector<std::string>{
                "model-00001-of-00005.safetensors", "model-00002-of-00005.safetensors",
                "model-00003-of-00005.safetensors", "model-00004-of-00005.safetensors",
                "model-00005-of-00005.safetensors", "model.safetensors.index.json"}));
  io::SafetensorsFolder const second(scratch / "model-00002-of-00005.safetensors");
  EXPECT_EQ(second.tensors()[0].name, "t3");
  EXPECT_EQ(second.tensors()[2].name, "t5");
}

TEST(SafetensorsWrite, an_odd_vocabulary_is_exported_with_just_its_rows) {
  test::ScratchFolder scratch;
  Pattern pattern;
  io::write_safetensors(scratch.path(), std::vector<TensorInfo>{{"wte", DType::bf16, {50257, 3}}},
                        pattern);
  EXPECT_EQ(check(scratch), "wte BF16 50257x3\n");
}

TEST(SafetensorsWrite, large_tensors_are_streamed_in_pieces) {
  test::ScratchFolder scratch;
  Pattern pattern;
  io::write_safetensors(scratch.path(), std::vector<TensorInfo>{{"big", DType::bf16, {3, 1 << 20}}},
                        pattern);
  EXPECT_EQ(check(scratch), "big BF16 3x1048576\n");
  EXPECT_LE(pattern.most, std::size_t{1} << 20);
}

TEST(SafetensorsWrite, rounding_is_that_of_numpy_for_all_kinds_of_values) {
  struct Values : io::TensorReader {
    void read(TensorInfo const&, std::int64_t begin, std::span<float> out) override {
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = values[static_cast<std::size_t>(begin) + i];
    }
    std::vector<float> values;
  } source;
  // Every sign, every exponent up to fp16's largest, and fractions around ties.
  for (std::uint32_t exponent = 0; exponent <= 0x8e; ++exponent)
    for (std::uint32_t fraction :
         {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x3001u, 0x7fffu, 0x8000u, 0x8001u,
          0x17fffu, 0x18000u, 0x18001u, 0x3fffffu, 0x400000u, 0x555555u, 0x7fdfffu, 0x7fefffu})
      for (std::uint32_t sign : {0u, 0x80000000u})
        source.values.push_back(std::bit_cast<float>(sign | exponent << 23 | fraction));
  for (int i = 1; i < 4096; ++i)
    source.values.push_back(std::ldexp(static_cast<float>(i), -25));  // denormal halves and ties
  source.values.push_back(std::numeric_limits<float>::infinity());
  source.values.push_back(-std::numeric_limits<float>::infinity());
  auto const count = static_cast<std::int64_t>(source.values.size());
  test::ScratchFolder scratch;
  io::write_safetensors(scratch.path(),
                        std::vector<TensorInfo>{{"wide", DType::f32, {count}},
                                                {"half", DType::f16, {count}},
                                                {"brain", DType::bf16, {count}}},
                        source);
  EXPECT_EQ(test::python(SPILLWAY_REFERENCE, "rounding '" + scratch.path().string() + "'"),
            "equal " + std::to_string(count) + "\n");
}

/// Writes one element of this value; the error that gives, or nothing.
void write_value(float value, DType type) {
  struct One : io::TensorReader {
    float value = 0;
    void read(TensorInfo const&, std::int64_t, std::span<float> out) override {
      out.back() = value;
    }
  } source;
  source.value = value;
  test::ScratchFolder scratch;
  io::write_safetensors(scratch.path(), std::vector<TensorInfo>{{"w", type, {3}}}, source);
}

TEST(SafetensorsWrite, a_finite_value_never_becomes_infinite) {
  write_value(65519, DType::f16);
  write_value(std::numeric_limits<float>::infinity(), DType::f16);
  write_value(std::numeric_limits<float>::quiet_NaN(), DType::f16);
  test::expect_parts(test::error_of([] { write_value(65520, DType::f16); }),
                     {"element 2", "'w'", "65520", "fp16"});
  test::expect_parts(
      test::error_of([] { write_value(std::numeric_limits<float>::max(), DType::bf16); }),
      {"element 2", "bf16"});
}

TEST(SafetensorsWrite, a_failing_source_leaves_no_file_and_no_harm) {
  test::ScratchFolder scratch;
  Pattern pattern;
  std::vector<TensorInfo> const old{{"a", DType::f32, {2}}};
  io::write_safetensors(scratch.path(), old, pattern);
  std::string const before = test::read_file(scratch / "model.safetensors");
  pattern.fail_at = "half";
  test::error_of([&] { io::write_safetensors(scratch.path(), kMixed, pattern); }, Fault::io);
  EXPECT_EQ(test::read_file(scratch / "model.safetensors"), before);
  EXPECT_EQ(files_in(scratch.path()), std::vector<std::string>{"model.safetensors"});
}

TEST(SafetensorsWrite, weights_are_replaced_in_the_same_form_only) {
  test::ScratchFolder scratch;
  Pattern pattern;
  std::vector<TensorInfo> const two{{"a", DType::f32, {4}}, {"b", DType::f32, {4}}};
  io::write_safetensors(scratch.path(), two, pattern, 16);
  io::write_safetensors(scratch.path(), two, pattern, 16);
  EXPECT_EQ(check(scratch), "a F32 4\nb F32 4\n");
  test::expect_parts(test::error_of([&] { io::write_safetensors(scratch.path(), two, pattern); }),
                     {"index.json exists already"});
  EXPECT_EQ(check(scratch), "a F32 4\nb F32 4\n");
}

TEST(SafetensorsWrite, a_second_writer_of_the_same_file_is_refused) {
  test::ScratchFolder scratch;
  struct Nested : Pattern {
    std::filesystem::path folder;
    std::string refused;
    void read(TensorInfo const& tensor, std::int64_t begin, std::span<float> out) override {
      Pattern other;
      if (refused.empty())
        refused = test::error_of([&] {
          io::write_safetensors(folder, std::vector<TensorInfo>{{"x", DType::f32, {1}}}, other);
        });
      Pattern::read(tensor, begin, out);
    }
  } source;
  source.folder = scratch.path();
  io::write_safetensors(scratch.path(), std::vector<TensorInfo>{{"a", DType::f32, {4}}}, source);
  test::expect_parts(source.refused, {"being written by another"});
  EXPECT_EQ(check(scratch), "a F32 4\n");
}

TEST(SafetensorsWrite, more_than_the_disk_holds_is_refused_before_anything_is_written) {
  test::ScratchFolder scratch;
  Pattern pattern;
  std::vector<TensorInfo> const huge{{"a", DType::f32, {1 << 20, 1 << 20, 1 << 10}}};
  auto const text =
      test::error_of([&] { io::write_safetensors(scratch.path(), huge, pattern); }, Fault::no_room);
  test::expect_parts(text, {"45035996273706", "free"});
  EXPECT_EQ(pattern.most, 0u);
  EXPECT_TRUE(files_in(scratch.path()).empty());
}

TEST(SafetensorsWrite, the_same_name_twice_is_refused) {
  test::ScratchFolder scratch;
  Pattern pattern;
  std::vector<TensorInfo> const twice{{"a", DType::f32, {1}}, {"a", DType::f32, {1}}};
  test::expect_parts(test::error_of([&] { io::write_safetensors(scratch.path(), twice, pattern); },
                                    Fault::internal),
                     {"'a'", "twice"});
}

TEST(SafetensorsWrite, names_with_quotes_and_other_scripts_come_back) {
  test::ScratchFolder scratch;
  Pattern pattern;
  std::string const name = "quote\" back\\slash \u00fc\u4e2d";
  io::write_safetensors(scratch.path(), std::vector<TensorInfo>{{name, DType::f32, {2}}}, pattern);
  EXPECT_EQ(io::SafetensorsFolder(scratch.path()).tensors()[0].name, name);
  EXPECT_EQ(check(scratch), name + " F32 2\n");
}

}  // namespace
}  // namespace spillway
