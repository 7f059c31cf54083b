// A directory that is gone at the end of the test, and files read and written without the code
// under test.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace spillway::test {

class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "spillway-io-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr) << name;
    path_ = name;
    // Children that gave up being root write here too.
    std::filesystem::permissions(path_, std::filesystem::perms::all);
  }
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchDirectory(ScratchDirectory const&) = delete;
  ScratchDirectory& operator=(ScratchDirectory const&) = delete;

  std::string path() const { return path_.string(); }
  std::string operator/(std::string const& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::vector<std::byte> bytes_of_file(std::string const& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> const text(std::istreambuf_iterator<char>(file), {});
  auto const* data = reinterpret_cast<std::byte const*>(text.data());
  return {data, data + text.size()};
}

inline void write_file(std::string const& path, std::vector<std::byte> const& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<char const*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

inline std::vector<std::byte> random_bytes(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random() >> 56);
  return bytes;
}

}  // namespace spillway::test
