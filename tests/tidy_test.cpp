// Reads the sources and fails on what no compiler sees: upward includes, foreign headers out of
// place, form.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Include {
  std::string path;
  bool quoted = false;
  std::size_t line = 0;
};

struct Source {
  std::string path;  // from the repository's root
  std::vector<std::string> lines;
  std::vector<Include> includes;
};

bool starts_with_any(std::string_view text, std::vector<std::string> const& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](std::string const& prefix) { return text.starts_with(prefix); });
}

/// The folder of a file; a folder named detail belongs to the one around it.
std::string folder_of(std::string const& path) {
  fs::path const folder = fs::path(path).parent_path();
  return (folder.filename() == "detail" ? folder.parent_path() : folder).generic_string();
}

bool is_header(std::string const& path) { return path.ends_with(".hpp") || path.ends_with(".cuh"); }

std::vector<Include> includes_of(std::vector<std::string> const& lines) {
  std::vector<Include> includes;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    auto const hash = lines[i].find_first_not_of(" \t");
    if (hash == std::string::npos || lines[i].compare(hash, 8, "#include") != 0) continue;
    auto const open = lines[i].find_first_of("<\"", hash);
    if (open == std::string::npos) continue;
    auto const close = lines[i].find_first_of(">\"", open + 1);
    includes.push_back({lines[i].substr(open + 1, close - open - 1), lines[i][open] == '"', i + 1});
  }
  return includes;
}

std::vector<Source> read_sources() {
  fs::path const root = fs::path(SPILLWAY_TEST_DATA).parent_path().parent_path();
  std::set<std::string> const kinds = {".hpp", ".cpp", ".cu", ".cuh", ".py", ".sh"};
  std::vector<Source> sources;
  for (char const* top : {"app", "offload", "io", "lib", "jobs", "tests"}) {
    for (auto const& entry : fs::recursive_directory_iterator(root / top)) {
      if (!entry.is_regular_file() || !kinds.contains(entry.path().extension().string())) continue;
      Source source;
      source.path = fs::relative(entry.path(), root).generic_string();
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) source.lines.push_back(line);
      if (!source.path.ends_with(".py") && !source.path.ends_with(".sh")) {
        source.includes = includes_of(source.lines);
      }
      sources.push_back(std::move(source));
    }
  }
  return sources;
}

std::vector<Source> const& sources() {
  static std::vector<Source> const read = read_sources();
  return read;
}

bool is_cxx(Source const& source) {
  return !source.path.ends_with(".py") && !source.path.ends_with(".sh");
}

std::string place(Source const& source, std::size_t line) {
  return source.path + ":" + std::to_string(line);
}

/// The part of the tree that a file belongs to: lib/<folder>, or one of io, offload, app, tests.
std::string part_of(std::string const& path) {
  auto const first = path.find('/');
  std::string const top = path.substr(0, first);
  return top == "lib" ? path.substr(0, path.find('/', first + 1)) : top;
}

/// What each part may include besides itself. The one direction: app, offload, io, lib; inside lib
/// train, then model and optim, then ops, shard and comm, then data and device, then core. No
/// arrows between neighbours.
std::map<std::string, std::set<std::string>> const& allowed_parts() {
  static std::map<std::string, std::set<std::string>> const allowed = [] {
    std::vector<std::vector<std::string>> const layers = {{"lib/core"},
                                                          {"lib/data", "lib/device"},
                                                          {"lib/ops", "lib/shard", "lib/comm"},
                                                          {"lib/model", "lib/optim"},
                                                          {"lib/train"},
                                                          {"io"},
                                                          {"offload"},
                                                          {"app"},
                                                          {"tests"}};
    std::map<std::string, std::set<std::string>> result;
    std::set<std::string> below;
    for (auto const& layer : layers) {
      for (auto const& part : layer) result[part] = below;
      below.insert(layer.begin(), layer.end());
    }
    return result;
  }();
  return allowed;
}

/// A library's headers and the only places that may name them.
struct Foreign {
  std::vector<std::string> headers;
  std::vector<std::string> places;
};

std::vector<Foreign> const& foreign_libraries() {
  static std::vector<Foreign> const libraries = {
      {{"mpi"}, {"lib/comm/mpi/"}},
      {{"nccl"}, {"lib/comm/nccl/"}},
      {{"cuda", "cublas", "cudnn", "nvtx", "cupti"}, {"lib/device/cuda/"}},
      {{"dnnl", "oneapi/"}, {"lib/ops/"}},
      {{"liburing"}, {"io/uring/"}},
      {{"hdf5", "H5"}, {"io/hdf5/"}},
      {{"boost/"}, {"app/options.cpp"}},
      {{"xxhash.h"}, {"io/", "lib/data/"}},
      {{"omp.h"}, {"lib/device/", "lib/ops/"}},
      {{"nlohmann/"}, {"app/", "io/", "lib/model/", "tests/"}},
      {{"gtest/", "gmock/"}, {"tests/"}},
      {{"benchmark/"}, {"tests/bench/"}},
      {{"fmt/"}, {"app/", "offload/", "io/", "lib/", "tests/"}},
  };
  return libraries;
}

Foreign const* library_of(Include const& include) {
  for (auto const& library : foreign_libraries()) {
    if (starts_with_any(include.path, library.headers)) return &library;
  }
  return nullptr;
}

/// Headers of the operating system and the compiler. (Those of C++ have neither dot nor slash.)
bool is_system_header(std::string const& path) {
  static std::set<std::string> const headers = {
      "cpuid.h",     "dirent.h",  "dlfcn.h", "fcntl.h",    "glob.h",  "grp.h",   "ifaddrs.h",
      "immintrin.h", "netdb.h",   "poll.h",  "pthread.h",  "pwd.h",   "sched.h", "signal.h",
      "spawn.h",     "termios.h", "time.h",  "ucontext.h", "unistd.h"};
  return path.find_first_of("./") == std::string::npos || headers.contains(path) ||
         starts_with_any(path, {"sys/", "net/", "linux/", "netinet/", "arpa/"});
}

bool is_wrapper_of_foreign(Source const& source) {
  static std::vector<std::string> const free_everywhere = {"fmt/", "gtest/", "gmock/", "benchmark/",
                                                           "omp.h"};
  return std::any_of(source.includes.begin(), source.includes.end(), [](Include const& include) {
    return library_of(include) != nullptr && !starts_with_any(include.path, free_everywhere);
  });
}

TEST(tidy, reads_the_whole_tree) {
  std::set<std::string> parts;
  std::size_t includes = 0;
  for (auto const& source : sources()) {
    parts.insert(part_of(source.path));
    includes += source.includes.size();
  }
  for (auto const& [part, below] : allowed_parts()) EXPECT_TRUE(parts.contains(part)) << part;
  EXPECT_GT(includes, 300U);
}

TEST(tidy, includes_point_downwards_only) {
  for (auto const& source : sources()) {
    std::string const part = part_of(source.path);
    for (auto const& include : source.includes) {
      if (!include.quoted) continue;
      std::string const target = part_of(include.path);
      if (target == part) continue;
      auto const allowed = allowed_parts().find(part);
      ASSERT_NE(allowed, allowed_parts().end()) << source.path << " is in no known part";
      EXPECT_TRUE(allowed->second.contains(target))
          << place(source, include.line) << ": " << part << " may not include " << include.path;
    }
  }
}

TEST(tidy, quoted_includes_are_paths_from_the_root) {
  std::set<std::string> known;
  for (auto const& source : sources()) known.insert(source.path);
  for (auto const& source : sources()) {
    for (auto const& include : source.includes) {
      if (!include.quoted) continue;
      EXPECT_TRUE(known.contains(include.path))
          << place(source, include.line) << ": no file " << include.path << " from the root";
    }
  }
}

TEST(tidy, folders_do_not_include_each_other_in_a_circle) {
  using Arrow = std::pair<std::string, std::string>;
  std::set<Arrow> arrows;
  for (auto const& source : sources()) {
    for (auto const& include : source.includes) {
      std::string const from = folder_of(source.path), to = folder_of(include.path);
      if (include.quoted && from != to) arrows.insert({from, to});
    }
  }
  // What starts no other arrow, or ends none, is on no circle. Taken away until nothing changes.
  for (std::size_t before = 0; before != arrows.size();) {
    before = arrows.size();
    std::set<std::string> starts, ends;
    for (auto const& [from, to] : arrows) starts.insert(from), ends.insert(to);
    std::erase_if(arrows, [&](Arrow const& arrow) {
      return !ends.contains(arrow.first) || !starts.contains(arrow.second);
    });
  }
  for (auto const& [from, to] : arrows) ADD_FAILURE() << "circle: " << from << " -> " << to;
}

TEST(tidy, foreign_headers_stay_in_their_folder) {
  for (auto const& source : sources()) {
    for (auto const& include : source.includes) {
      if (include.quoted) continue;
      if (auto const* library = library_of(include)) {
        EXPECT_TRUE(starts_with_any(source.path, library->places))
            << place(source, include.line) << ": <" << include.path << "> belongs elsewhere";
      } else {
        EXPECT_TRUE(is_system_header(include.path))
            << place(source, include.line) << ": <" << include.path
            << "> is of no library that this project knows";
      }
    }
  }
}

TEST(tidy, headers_that_show_foreign_types_are_private_to_their_folder) {
  std::map<std::string, std::string> wrappers;  // path -> folder
  for (auto const& source : sources()) {
    if (!is_header(source.path) || !is_wrapper_of_foreign(source)) continue;
    EXPECT_TRUE(
        std::none_of(source.includes.begin(), source.includes.end(),
                     [](auto const& include) { return include.path.starts_with("nlohmann/"); }))
        << source.path << ": nlohmann/json is for .cpp files";
    wrappers[source.path] = folder_of(source.path);
  }
  for (auto const& source : sources()) {
    for (auto const& include : source.includes) {
      auto const wrapper = wrappers.find(include.path);
      if (wrapper == wrappers.end()) continue;
      EXPECT_EQ(folder_of(source.path), wrapper->second)
          << place(source, include.line) << ": " << include.path << " shows foreign types";
    }
  }
}

TEST(tidy, sources_include_their_own_header_first) {
  std::set<std::string> known;
  for (auto const& source : sources()) known.insert(source.path);
  for (auto const& source : sources()) {
    if (!source.path.ends_with(".cpp") || source.includes.empty()) continue;
    std::string const own = fs::path(source.path).replace_extension(".hpp").generic_string();
    if (!known.contains(own)) continue;
    EXPECT_EQ(source.includes.front().path, own) << source.path;
  }
}

TEST(tidy, headers_are_guarded_and_files_state_their_purpose) {
  for (auto const& source : sources()) {
    if (is_header(source.path)) {
      EXPECT_NE(std::find(source.lines.begin(), source.lines.end(), "#pragma once"),
                source.lines.end())
          << source.path << " lacks #pragma once";
    }
    if (!is_cxx(source)) continue;
    ASSERT_FALSE(source.lines.empty()) << source.path;
    // A source that begins with its own header, or a test with the one under test, has it there.
    bool const header_says_it = !source.includes.empty() && source.includes.front().line == 1 &&
                                source.includes.front().quoted;
    EXPECT_TRUE(header_says_it || source.lines.front().starts_with("// "))
        << source.path << ": the first line says what the file is for";
  }
}

TEST(tidy, lines_end_by_column_100_and_without_blanks) {
  for (auto const& source : sources()) {
    if (source.path.starts_with("tests/data/")) continue;  // how data was made once
    for (std::size_t i = 0; i < source.lines.size(); ++i) {
      // Columns are characters: continuation bytes of UTF-8 do not count.
      auto const columns =
          std::count_if(source.lines[i].begin(), source.lines[i].end(),
                        [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
      EXPECT_LE(columns, 100) << place(source, i + 1);
      bool const blank = !source.lines[i].empty() &&
                         (source.lines[i].back() == ' ' || source.lines[i].back() == '\t');
      EXPECT_FALSE(blank) << place(source, i + 1) << ": blanks at the end of the line";
    }
  }
}

TEST(tidy, files_stay_short) {
  for (auto const& source : sources()) {
    EXPECT_LE(source.lines.size(), 500U) << source.path << " wants to be several files";
  }
}

TEST(tidy, sources_avoid_what_this_project_does_without) {
  // Spelt in two parts, so that this file does not find itself.
  std::vector<std::pair<std::string, std::string>> const unwanted = {
      {std::string("ass") + "ert(", "require or expect throw instead"},
      {std::string("static thread_") + "local", "no caches that outlive their owner"},
      {std::string("TO") + "DO", "what is not done is not left as a note in the code"},
      {std::string("FIX") + "ME", "what is wrong is mended"},
      {std::string("#if") + "def", "another file instead, chosen by CMake"},
  };
  std::set<std::string> const compiler_lacks = {"ranges", "source_location", "format", "expected"};
  for (auto const& source : sources()) {
    if (!is_cxx(source)) continue;
    for (std::size_t i = 0; i < source.lines.size(); ++i) {
      for (auto const& [text, reason] : unwanted) {
        auto const found = source.lines[i].find(text);
        bool const word =
            found != std::string::npos &&
            (found == 0 ||
             (std::isalnum(static_cast<unsigned char>(source.lines[i][found - 1])) == 0 &&
              source.lines[i][found - 1] != '_'));
        EXPECT_FALSE(word) << place(source, i + 1) << ": " << text << " (" << reason << ")";
      }
    }
    for (auto const& include : source.includes) {
      EXPECT_FALSE(!include.quoted && compiler_lacks.contains(include.path))
          << place(source, include.line) << ": <" << include.path << "> is not usable with g++ 12";
    }
  }
}

}  // namespace
