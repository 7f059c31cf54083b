// Scratch folders, errors as values and foreign programs, for tests of file formats.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "lib/core/error.hpp"

namespace spillway::test {

/// A new folder under the working directory (the build tree: a real disk), removed at the end.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::current_path() / "scratch-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) fail(Fault::io, "cannot make a scratch folder");
    path_ = name;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(ScratchFolder const&) = delete;
  ScratchFolder& operator=(ScratchFolder const&) = delete;

  std::filesystem::path const& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_file(std::filesystem::path const& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string read_file(std::filesystem::path const& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The bytes of any trivially copyable values, one after the other.
template <class... Values>
std::string bytes_of(Values const&... values) {
  std::string bytes;
  (bytes.append(reinterpret_cast<char const*>(&values), sizeof(values)), ...);
  return bytes;
}

/// Text of the Error that `action` throws; also checks its kind.
template <class Action>
std::string error_of(Action&& action, Fault fault = Fault::bad_input) {
  try {
    action();
  } catch (Error const& error) {
    EXPECT_EQ(static_cast<int>(error.fault()), static_cast<int>(fault)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error was thrown";
  return {};
}

/// Every part must be in the text.
inline void expect_parts(std::string const& text, std::initializer_list<std::string_view> parts) {
  for (auto part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

/// What a shell command prints, both streams; a status other than 0 fails the test.
inline std::string output_of(std::string const& command) {
  std::string text;
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) fail(Fault::io, "cannot start: " + command);
  std::array<char, 4096> block;
  for (std::size_t got = 1; got > 0;) {
    got = std::fread(block.data(), 1, block.size(), pipe);
    text.append(block.data(), got);
  }
  EXPECT_EQ(::pclose(pipe), 0) << command << "\n" << text;
  return text;
}

/// Debian's own Python: the one with numpy.
inline std::string python(std::string const& script, std::string const& arguments) {
  return output_of("/usr/bin/python3 '" + script + "' " + arguments);
}

}  // namespace spillway::test
