// Facts from /proc and /sys, as text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spillway::app {

/// The file's text, or nothing where it cannot be read.
std::optional<std::string> system_text(std::string const& path);
/// Value of "key : value" or "key value" in a file of such lines, the first one.
std::optional<std::string> system_value(std::string const& path, std::string const& key);

/// The least memory limit of this process's cgroup and those above it (version 2 or 1); nothing:
/// none.
std::optional<std::uint64_t> cgroup_memory_limit();

/// "0-3,8" of {0, 1, 2, 3, 8}.
std::string ranges_text(std::vector<int> const& ascending);

/// Type of the file system that holds `path` ("ext4"), by the longest mount point in mountinfo
/// text.
std::string file_system_of(std::string const& path, std::string const& mountinfo);

}  // namespace spillway::app
