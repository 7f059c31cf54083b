// Comma-separated paths and globs to a list of files.
#pragma once

#include <string>
#include <vector>

namespace spillway::io {

/// In the order given, sorted within a glob. What does not lead to a file is described in
/// `problems`.
std::vector<std::string> expand_paths(std::string const& paths, std::vector<std::string>& problems);

}  // namespace spillway::io
