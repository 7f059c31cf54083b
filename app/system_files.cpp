#include "app/system_files.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sstream>

#include "app/small_file.hpp"
#include "lib/core/error.hpp"

namespace spillway::app {
namespace {

std::string trimmed(std::string const& text) {
  auto const first = text.find_first_not_of(" \t\n");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

std::optional<std::uint64_t> number_in(std::string const& path) {
  auto const text = system_text(path);
  if (!text) return std::nullopt;
  std::uint64_t value = 0;
  auto const [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc{}) return std::nullopt;  // "max"
  return value;
}

/// Least of the limits in `file` of `folder` and the folders above it, down to `root`.
std::optional<std::uint64_t> least_limit(std::filesystem::path folder,
                                         std::filesystem::path const& root, char const* file) {
  std::optional<std::uint64_t> least;
  while (true) {
    auto const limit = number_in((folder / file).string());
    if (limit && (!least || *limit < *least)) least = limit;
    if (folder == root || !folder.has_relative_path()) return least;
    folder = folder.parent_path();
  }
}

/// mountinfo writes blanks and backslashes of a path as octal numbers.
std::string unescaped(std::string const& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      plain += static_cast<char>(std::stoi(text.substr(i + 1, 3), nullptr, 8));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool holds(std::string const& mount, std::string const& path) {
  if (mount == "/") return true;
  return path.rfind(mount, 0) == 0 && (path.size() == mount.size() || path[mount.size()] == '/');
}

}  // namespace

std::optional<std::string> system_text(std::string const& path) {
  try {
    return trimmed(read_small_file(path));
  } catch (Error const&) {
    return std::nullopt;
  }
}

std::optional<std::string> system_value(std::string const& path, std::string const& key) {
  auto const text = system_text(path);
  if (!text) return std::nullopt;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(key, 0) != 0) continue;
    auto const value = line.find_first_not_of(" \t:", key.size());
    bool const same_key = line.size() > key.size() && line.find_first_of(" \t:") == key.size();
    if (same_key && value != std::string::npos) return line.substr(value);
    if (line.find(':') != std::string::npos && trimmed(line.substr(0, line.find(':'))) == key)
      return trimmed(line.substr(line.find(':') + 1));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> cgroup_memory_limit() {
  std::filesystem::path const root = "/sys/fs/cgroup";
  std::istringstream lines(system_text("/proc/self/cgroup").value_or(""));
  std::optional<std::uint64_t> least;
  for (std::string line; std::getline(lines, line);) {
    auto const last = line.rfind(':');
    if (last == std::string::npos || last + 2 > line.size()) continue;
    std::string const below = line.substr(last + 2);  // without its slash
    std::optional<std::uint64_t> limit;
    if (line.rfind("0::", 0) == 0)
      limit = least_limit(root / below, root, "memory.max");
    else if (line.find(":memory:") != std::string::npos)
      limit = least_limit(root / "memory" / below, root / "memory", "memory.limit_in_bytes");
    // Version 1 writes "no limit" as the largest number of pages.
    if (limit && *limit < (std::uint64_t{1} << 62) && (!least || *limit < *least)) least = limit;
  }
  return least;
}

std::string ranges_text(std::vector<int> const& ascending) {
  std::string text;
  for (std::size_t i = 0; i < ascending.size();) {
    std::size_t last = i;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ascending[i]);
    if (last > i) text += fmt::format("-{}", ascending[last]);
    i = last + 1;
  }
  return text;
}

std::string file_system_of(std::string const& path, std::string const& mountinfo) {
  std::istringstream lines(mountinfo);
  std::string type = "unknown";
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) {
    // id parent major:minor root mount-point options [optional ...] - type source options
    auto const separator = line.find(" - ");
    if (separator == std::string::npos) continue;
    std::istringstream fields(line);
    std::string field;
    for (int i = 0; i < 5; ++i) fields >> field;
    std::string const mount = unescaped(field);
    // Of two mounts on one point the later one is seen.
    if (!holds(mount, path) || mount.size() < longest) continue;
    longest = mount.size();
    type = line.substr(separator + 3, line.find(' ', separator + 3) - separator - 3);
  }
  return type;
}

}  // namespace spillway::app
