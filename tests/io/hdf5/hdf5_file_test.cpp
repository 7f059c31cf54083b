// The wrapper against h5dump, and its errors.
#include "io/hdf5/hdf5_file.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace spillway::io {

namespace fs = std::filesystem;

namespace {

class Hdf5FileTest : public testing::Test {
 protected:
  Hdf5FileTest() {
    std::string pattern = (fs::temp_directory_path() / "spillway-hdf5-XXXXXX").string();
    dir = ::mkdtemp(pattern.data());
  }
  ~Hdf5FileTest() override { fs::remove_all(dir); }

  fs::path dir;
};

Fd new_file(fs::path const& path) {
  return Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
}

/// Writes fp32 values at an offset, as the checkpoint's engine does.
void put(fs::path const& path, std::uint64_t offset, void const* data, std::size_t bytes) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset));
  file.write(static_cast<char const*>(data), static_cast<std::streamsize>(bytes));
}

std::string output_of(std::string const& command) {
  std::string text;
  std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) text += static_cast<char>(c);
  text += "exit " + std::to_string(::pclose(pipe));
  return text;
}

bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != text.npos;
}

}  // namespace

TEST_F(Hdf5FileTest, bytes_written_at_the_offset_of_an_extent_are_its_elements) {
  auto const path = dir / "a.h5";
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  {
    Hdf5Session const session;
    auto const fd = new_file(path);
    auto file = Hdf5File::create_in(fd.get());
    first = file.create_extent("/unit.0/weight", DType::bf16, 4096);
    second = file.create_extent("/unit.0/m", DType::f32, 4096);
    EXPECT_EQ(file.create_extent("/unit.1/m", DType::f32, 0), 0u);
    file.close();
  }
  EXPECT_EQ(first % 4096, 0u);
  EXPECT_EQ(second % 4096, 0u);
  EXPECT_GE(second, first + 8192);
  EXPECT_GE(fs::file_size(path), second + 16384);
  std::vector<std::uint16_t> const narrow{0x3f80, 0xc000, 0x4049,
                                          0x7f7f};  // 1, -2, 3.140625, the largest
  std::vector<float> const wide{0.1f, -7.25f};
  put(path, first, narrow.data(), 8);
  put(path, second, wide.data(), 8);

  auto const narrow_dump = output_of("h5dump -d /unit.0/weight -s 0 -c 4 " + path.string());
  EXPECT_TRUE(contains(narrow_dump, "(0): 1, -2, 3.14062, 3.38953e+38")) << narrow_dump;
  auto const wide_dump = output_of("h5dump -d /unit.0/m -s 0 -c 2 " + path.string());
  EXPECT_TRUE(contains(wide_dump, "(0): 0.1, -7.25")) << wide_dump;
}

TEST_F(Hdf5FileTest, a_virtual_dataset_shows_boxes_of_its_sources_and_nan_elsewhere) {
  std::uint64_t offset = 0;
  Hdf5Session const session;
  {
    auto const fd = new_file(dir / "so%urce.h5");
    auto file = Hdf5File::create_in(fd.get());
    offset = file.create_extent("/un%it/w", DType::f32, 2048);
    file.close();
  }
  std::vector<float> values(2048);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  put(dir / "so%urce.h5", offset, values.data(), 8192);
  auto index = Hdf5File::create_in_memory();
  std::vector<std::uint64_t> const shape{3, 4};
  std::vector<VirtualBox> const boxes{{{0, 1}, {1, 3}, "so%urce.h5", "/un%it/w", 2048, 5},
                                      {{1, 0}, {1, 4}, "so%urce.h5", "/un%it/w", 2048, 8},
                                      {{2, 0}, {1, 2}, "not there.h5", "/un%it/w", 2048, 12}};
  index.create_virtual("/model/a.b.weight", DType::f32, shape, boxes);
  auto const image = index.image();
  index.close();
  std::ofstream(dir / "index.h5", std::ios::binary)
      .write(reinterpret_cast<char const*>(image.data()),
             static_cast<std::streamsize>(image.size()));
  auto const dump = output_of("h5dump -d /model/a.b.weight " + (dir / "index.h5").string());
  for (char const* row :
       {"(0,0): nan, 5, 6, 7", "(1,0): 8, 9, 10, 11", "(2,0): nan, nan, nan, nan"})
    EXPECT_TRUE(contains(dump, row)) << dump;
  EXPECT_TRUE(contains(dump, "exit 0")) << dump;
}

TEST_F(Hdf5FileTest, texts_numbers_and_attributes_come_back_through_an_image) {
  Hdf5Session const session;
  auto file = Hdf5File::create_in_memory();
  std::string const text(100'000, 'x');
  std::vector<std::uint64_t> const numbers{0, 1, 0xffffffffffffffffu};
  std::vector<std::byte> const bytes{std::byte{0}, std::byte{255}};
  file.write_text("/text", text);
  file.write_text("/empty", "");
  file.write("/group/numbers", std::span<std::uint64_t const>(numbers));
  file.write("/group/bytes", std::span<std::byte const>(bytes));
  file.set_attribute("step", std::int64_t{-9'007'199'254'740'993});
  file.set_attribute("created", std::string_view("größer"));
  file.set_attribute("nothing", std::string_view(""));
  auto const image = file.image();
  file.close();
  auto const read = Hdf5File::open_image(image);
  EXPECT_EQ(read.read_text("/text"), text);
  EXPECT_EQ(read.read_text("/empty"), "");
  EXPECT_EQ(read.read_u64("/group/numbers"), numbers);
  EXPECT_EQ(read.read_bytes("/group/bytes"), bytes);
  EXPECT_EQ(read.integer_attribute("step"), -9'007'199'254'740'993);
  EXPECT_EQ(read.text_attribute("created"), "größer");
  EXPECT_EQ(read.text_attribute("nothing"), "");
}

TEST_F(Hdf5FileTest, errors_carry_the_library_s_reason_and_print_nothing) {
  Hdf5Session const session;
  testing::internal::CaptureStderr();
  auto const image = std::as_bytes(std::span("this is not HDF5, however one looks at it"));
  try {
    Hdf5File::open_image(image);
    ADD_FAILURE() << "opened a text";
  } catch (Error const& error) {
    EXPECT_EQ(error.fault(), Fault::io);
    EXPECT_TRUE(contains(error.what(), "opening a file image")) << error.what();
    EXPECT_TRUE(contains(error.what(), "file signature not found")) << error.what();
  }
  EXPECT_THROW(Hdf5File::create_in(-1), Error);
  auto file = Hdf5File::create_in_memory();
  EXPECT_THROW(file.read_bytes("/absent"), Error);
  EXPECT_THROW(file.integer_attribute("absent"), Error);
  EXPECT_THROW(file.create_extent("", DType::f32, 1), Error);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace spillway::io
