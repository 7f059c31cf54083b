// The swap files of one rank: reserved at the start, nameless at once, one a directory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/file.hpp"

namespace spillway::offload {

class SwapSpace {
 public:
  /// Makes directories that are missing, reserves bytes[i] in directories[i] and removes the names,
  /// so that two runs in one directory never meet and a killed run leaves nothing. Throws
  /// Fault::no_room or Fault::io with the path.
  SwapSpace(std::vector<std::filesystem::path> const& directories,
            std::vector<std::uint64_t> const& bytes, std::string const& tag);

  io::File const& file(std::size_t index) const { return files_.at(index); }
  std::uint64_t total_bytes() const { return total_; }
  void drop_caches() const;

 private:
  std::vector<io::File> files_;
  std::uint64_t total_ = 0;
};

}  // namespace spillway::offload
