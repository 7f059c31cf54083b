#include "io/tokens/token_paths.hpp"

#include <fmt/core.h>
#include <glob.h>

#include <algorithm>
#include <filesystem>

namespace spillway::io {
namespace {

/// Sorted by bytes, so that the order is the same on every rank whatever its locale.
std::vector<std::string> expand_glob(std::string const& pattern) {
  ::glob_t found{};
  std::vector<std::string> matches;
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    matches.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::sort(matches.begin(), matches.end());
  return matches;
}

}  // namespace

std::vector<std::string> expand_paths(std::string const& paths,
                                      std::vector<std::string>& problems) {
  std::vector<std::string> files;
  for (std::size_t begin = 0; begin <= paths.size();) {
    std::size_t const end = std::min(paths.find(',', begin), paths.size());
    std::string const item = paths.substr(begin, end - begin);
    begin = end + 1;
    std::error_code ignored;
    bool const is_glob = item.find_first_of("*?[") != std::string::npos;
    if (item.empty()) {
      problems.push_back(fmt::format("'{}' has an empty path in it. A comma too many?", paths));
    } else if (!is_glob || std::filesystem::exists(item, ignored)) {
      files.push_back(item);
    } else {
      auto const matches = expand_glob(item);
      if (matches.empty()) problems.push_back(fmt::format("'{}' matches no file", item));
      files.insert(files.end(), matches.begin(), matches.end());
    }
  }
  return files;
}

}  // namespace spillway::io
