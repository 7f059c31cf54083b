// The directory of a run: one run at a time, its configuration, its history, and the files that ask
// it to stop.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/options.hpp"
#include "lib/core/unique_handle.hpp"

namespace spillway::app {

enum class Request { none, save, stop };

/// What provenance.json keeps of one start of the run.
struct Start {
  std::vector<std::string> hosts;  // one a rank
  std::string mpi;                 // library and version
  std::int64_t resumed_step = 0;   // 0: from the beginning
};

/// Rank 0's. Creates the directory and holds its lock until it is destroyed (or the process dies).
class RunDirectory {
 public:
  /// Throws Fault::usage naming host and process of the run that holds the directory.
  explicit RunDirectory(std::filesystem::path path);

  std::filesystem::path const& path() const { return path_; }
  std::filesystem::path metrics_path() const { return path_ / "metrics.jsonl"; }
  /// Empty, or why the directory could not be locked (the file system refuses locks).
  std::string const& warning() const { return warning_; }

  /// config.cfg.
  void write_config(Options const& options) const;
  /// provenance.json: this start is added to those before it.
  void write_provenance(Options const& options, Start const& start) const;
  /// Looks for SAVE and STOP and takes them away. Stop wins.
  Request take_request() const;

 private:
  void lock();

  std::filesystem::path path_;
  Fd lock_;
  std::string warning_;
};

std::string host_name();

}  // namespace spillway::app
