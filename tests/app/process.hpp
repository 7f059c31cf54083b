// Helpers of the app tests: a temporary directory, other programs with their output, whole files.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace spillway::test {

/// A directory of its own, gone at the end.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "spillway-app-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(TempDir const&) = delete;
  TempDir& operator=(TempDir const&) = delete;

  std::filesystem::path const& path() const { return path_; }
  std::string file(std::string const& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(std::filesystem::path const& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_file(std::filesystem::path const& path, std::string const& text) {
  std::ofstream(path, std::ios::binary) << text;
}

struct Finished {
  int code = -1;    // exit code, or 128 + signal
  std::string out;  // stdout
  std::string err;  // stderr
};

/// Runs a shell command to its end.
inline Finished run_shell(std::string const& command) {
  TempDir const scratch;
  std::string const error_file = scratch.file("stderr");
  Finished finished;
  FILE* pipe = ::popen(("{ " + command + "\n} 2>" + error_file).c_str(), "r");
  if (pipe == nullptr) return finished;
  std::array<char, 4096> buffer;
  while (std::size_t const got = std::fread(buffer.data(), 1, buffer.size(), pipe))
    finished.out.append(buffer.data(), got);
  int const status = ::pclose(pipe);
  finished.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  finished.err = read_file(error_file);
  return finished;
}

}  // namespace spillway::test
