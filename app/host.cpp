#include "app/host.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

namespace spillway::app {
namespace {

/// A "Key:   123 kB" line of a /proc file, in bytes; 0 if it is not there.
std::uint64_t kilobytes_of(char const* file, std::string const& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind(key + ":", 0) != 0) continue;
    std::istringstream words(line.substr(key.size() + 1));
    std::uint64_t value = 0;
    words >> value;
    return value * 1024;
  }
  return 0;
}

std::optional<std::uint64_t> number_in(std::string const& file) {
  std::ifstream in(file);
  std::uint64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;  // absent, or "max"
}

/// Bytes that the cgroup of this process leaves; the largest number where there is no limit.
std::uint64_t cgroup_room() {
  std::uint64_t room = std::numeric_limits<std::uint64_t>::max();
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    auto const colon = line.rfind(':');
    if (colon == std::string::npos) continue;
    bool const second = line.rfind("0::", 0) == 0;
    if (!second && line.find(":memory:") == std::string::npos) continue;
    std::string const base = second ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    char const* const limit = second ? "/memory.max" : "/memory.limit_in_bytes";
    char const* const usage = second ? "/memory.current" : "/memory.usage_in_bytes";
    for (std::string path = line.substr(colon + 1);; path = path.substr(0, path.rfind('/'))) {
      if (auto const most = number_in(base + path + limit)) {
        std::uint64_t const used = number_in(base + path + usage).value_or(0);
        room = std::min(room, *most > used ? *most - used : 0);
      }
      if (path.empty() || path == "/") break;
    }
  }
  return room;
}

}  // namespace

std::uint64_t resident_bytes() { return kilobytes_of("/proc/self/status", "VmRSS"); }
std::uint64_t peak_resident_bytes() { return kilobytes_of("/proc/self/status", "VmHWM"); }

std::uint64_t default_host_memory(int local_ranks) {
  std::uint64_t const left = std::min(kilobytes_of("/proc/meminfo", "MemAvailable"), cgroup_room());
  std::uint64_t const share = left / static_cast<std::uint64_t>(local_ranks);
  return share - share / 16;
}

int allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return online_processors();
  return std::max(1, CPU_COUNT(&set));
}

int online_processors() { return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))); }

}  // namespace spillway::app
