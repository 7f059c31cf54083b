// Reading of well-formed safetensors: values against files that numpy wrote.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <thread>
#include <vector>

#include "io/plain_file.hpp"
#include "io/safetensors/safetensors.hpp"
#include "tests/io/safetensors/raw_safetensors.hpp"

namespace spillway {
namespace {

using io::SafetensorsFolder;

float pattern(std::int64_t i) { return static_cast<float>(i % 255 - 127) / 8; }

std::vector<float> whole(SafetensorsFolder const& folder, std::string_view name) {
  std::size_t elements = 1;
  for (auto size : folder.find(name)->shape) elements *= static_cast<std::size_t>(size);
  std::vector<float> values(elements);
  folder.read(name, 0, values);
  return values;
}

class SafetensorsRead : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    scratch_ = new test::ScratchFolder;
    test::python(SPILLWAY_REFERENCE, "write '" + scratch_->path().string() + "'");
  }
  static void TearDownTestSuite() { delete scratch_; }

  SafetensorsFolder folder{scratch_->path()};

 private:
  static inline test::ScratchFolder* scratch_ = nullptr;
};

TEST_F(SafetensorsRead, values_of_all_three_types_are_those_that_numpy_wrote) {
  for (auto name : {"f32", "f16", "bf16"}) {
    auto const values = whole(folder, name);
    ASSERT_GE(values.size(), 300u);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_EQ(values[i], pattern(static_cast<std::int64_t>(i))) << name << " " << i;
  }
}

TEST_F(SafetensorsRead, shapes_and_types_are_listed_by_name) {
  std::vector<std::string> names;
  for (auto const& tensor : folder.tensors()) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"all_halves", "all_halves_wide", "bf16", "empty",
                                             "f16", "f32", "scalar"}));
  EXPECT_EQ(folder.find("f32")->shape, (std::vector<std::int64_t>{5, 7, 11}));
  EXPECT_EQ(folder.find("bf16")->type, DType::bf16);
  EXPECT_EQ(folder.find("f16")->type, DType::f16);
  EXPECT_EQ(folder.find("nothing"), nullptr);
}

TEST_F(SafetensorsRead, every_half_becomes_the_float_that_numpy_makes_of_it) {
  auto const halves = whole(folder, "all_halves");
  auto const expected = whole(folder, "all_halves_wide");
  for (std::size_t i = 0; i < 65536; ++i) {
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(halves[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(halves[i]), std::bit_cast<std::uint32_t>(expected[i]))
          << i;
    }
  }
}

TEST_F(SafetensorsRead, any_range_of_elements_can_be_read_alone) {
  for (std::int64_t begin : {0, 1, 63, 384}) {
    for (std::int64_t count : {0, 1, 2, 321}) {
      if (begin + count > 385) continue;
      std::vector<float> values(static_cast<std::size_t>(count));
      folder.read("f32", begin, values);
      for (std::int64_t i = 0; i < count; ++i)
        ASSERT_EQ(values[static_cast<std::size_t>(i)], pattern(begin + i)) << begin;
    }
  }
}

TEST_F(SafetensorsRead, a_scalar_has_no_dimension_and_one_element) {
  EXPECT_TRUE(folder.find("scalar")->shape.empty());
  EXPECT_EQ(whole(folder, "scalar"), std::vector<float>{4.5f});
}

TEST_F(SafetensorsRead, an_empty_tensor_is_there_and_reads_nothing) {
  EXPECT_EQ(folder.find("empty")->shape, (std::vector<std::int64_t>{0, 9}));
  std::vector<float> none;
  folder.read("empty", 0, none);
}

TEST_F(SafetensorsRead, a_range_beyond_the_tensor_is_refused) {
  std::vector<float> two(2);
  auto const text = test::error_of([&] { folder.read("f32", 384, two); }, Fault::internal);
  test::expect_parts(text, {"384", "386", "f32", "385"});
  test::error_of([&] { folder.read("f32", -1, two); }, Fault::internal);
}

TEST_F(SafetensorsRead, types_that_are_no_weights_are_an_error_only_when_read) {
  ASSERT_EQ(folder.others().size(), 2u);
  EXPECT_EQ(folder.others()[0].name, "ids");
  EXPECT_EQ(folder.others()[0].type, "I64");
  EXPECT_EQ(folder.others()[1].type, "BOOL");
  std::vector<float> one(1);
  test::expect_parts(test::error_of([&] { folder.read("ids", 0, one); }),
                     {"model.safetensors", "'ids'", "I64"});
}

TEST_F(SafetensorsRead, an_absent_tensor_is_named) {
  std::vector<float> one(1);
  test::expect_parts(test::error_of([&] { folder.read("wte", 0, one); }), {"'wte'"});
}

TEST_F(SafetensorsRead, threads_read_at_the_same_time) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int k = 0; k < 200; ++k)
        if (whole(folder, "f32")[384] != pattern(384) || whole(folder, "bf16")[7] != pattern(7))
          ++wrong;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(SafetensorsFiles, order_of_names_in_the_header_does_not_matter) {
  test::ScratchFolder scratch;
  std::string const header = test::object({test::entry("late", "F32", "[1]", 4, 8),
                                           test::entry("early", "F32", "[1]", 0, 4)}) +
                             "   ";
  test::write_file(scratch / "model.safetensors",
                   test::raw_safetensors(header, test::bytes_of(1.0f, 2.0f)));
  SafetensorsFolder const folder(scratch.path());
  EXPECT_EQ(whole(folder, "early"), std::vector<float>{1});
  EXPECT_EQ(whole(folder, "late"), std::vector<float>{2});
}

TEST(SafetensorsFiles, one_file_can_be_opened_by_its_own_path) {
  test::ScratchFolder scratch;
  test::write_file(scratch / "other.safetensors", test::pairs({"a", "b"}));
  EXPECT_EQ(whole(SafetensorsFolder(scratch / "other.safetensors"), "b"),
            (std::vector<float>{3, 4}));
}

TEST(SafetensorsFiles, shards_are_read_through_their_index) {
  test::ScratchFolder scratch;
  test::write_file(scratch / "one.safetensors", test::pairs({"a", "b"}));
  test::write_file(scratch / "two.safetensors", test::pairs({"c"}));
  test::write_file(
      scratch / "model.safetensors.index.json",
      R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors","c":"two.safetensors"}})");
  SafetensorsFolder const folder(scratch.path());
  EXPECT_EQ(folder.tensors().size(), 3u);
  EXPECT_EQ(whole(folder, "b"), (std::vector<float>{3, 4}));
  EXPECT_EQ(whole(folder, "c"), (std::vector<float>{1, 2}));
}

std::size_t resident_pages(std::filesystem::path const& path) {
  std::size_t const size = std::filesystem::file_size(path);
  int const fd = ::open(path.c_str(), O_RDONLY);
  void* const map = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
  std::vector<unsigned char> pages((size + 4095) / 4096);
  EXPECT_EQ(::mincore(map, size, pages.data()), 0);
  ::munmap(map, size);
  ::close(fd);
  std::size_t resident = 0;
  for (auto page : pages) resident += page & 1u;
  return resident;
}

TEST(SafetensorsFiles, reading_leaves_the_page_cache_as_it_was) {
  test::ScratchFolder scratch;
  std::uint64_t const bytes = 64u << 20;
  std::filesystem::path const path = scratch / "model.safetensors";
  test::write_file(
      path, test::raw_safetensors(test::object({test::entry("big", "F32", "[16777216]", 0, bytes)}),
                                  std::string(bytes, '\0')));
  ::sync();
  io::PlainReader(path).drop_cache();
  std::size_t const before = resident_pages(path);  // all of them where files live in memory only
  SafetensorsFolder const folder(scratch.path());
  EXPECT_EQ(whole(folder, "big").size(), 16777216u);
  EXPECT_LE(resident_pages(path), before + 512);
}

}  // namespace
}  // namespace spillway
