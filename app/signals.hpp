// Signals that ask a run to checkpoint and stop: only noted when they come, acted on by the main
// loop.
#pragma once

#include <string>
#include <vector>

#include "lib/core/unique_handle.hpp"

namespace spillway::app {

/// A closed pipe and a file size limit are errors of a write, not the end of the process.
void ignore_write_signals();

/// Holds the signals back from the process, whose system calls they therefore never interrupt, and
/// reads them when asked. Threads made later inherit that, so: construct before any other thread is
/// made.
class StopSignals {
 public:
  explicit StopSignals(std::vector<int> const& numbers);
  ~StopSignals();
  StopSignals(StopSignals const&) = delete;
  StopSignals& operator=(StopSignals const&) = delete;

  /// True from the first signal on; never blocks.
  bool stop_requested();
  /// "USR1", the signal that came first; empty if none came.
  std::string const& first() const { return first_; }

 private:
  Fd fd_;
  std::vector<int> held_;  // that were not blocked before
  std::string first_;
};

}  // namespace spillway::app
