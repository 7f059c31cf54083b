// The step line on stderr: one that updates itself on a terminal, else one line every few steps.
#pragma once

#include <cstdint>
#include <string>

#include "lib/train/step_report.hpp"

namespace spillway::app {

struct ProgressOptions {
  std::int64_t steps = 0;      // of the run
  std::int64_t log_every = 1;  // where `updating` is false
  bool updating = false;       // the line overwrites itself
};

/// Updating where stderr is a terminal that can; NO_COLOR and TERM=dumb ask for plain lines.
bool stderr_can_update();

/// "step 12/100 | loss 3.21450 | norm 1.2345 | lr 3.000e-04 | 12.3k tokens/s | MFU 41.2% |
/// memory 3.2 GiB | disk 1.05 GB/s | stalled 3% | 0:12:33 left"
std::string progress_text(train::StepReport const& report, std::int64_t steps,
                          double seconds_per_step);

class Progress {
 public:
  explicit Progress(ProgressOptions options) : options_(options) {}
  ~Progress();

  void show(train::StepReport const& report);
  /// Ends the updating line, so that other text may follow.
  void finish();

 private:
  ProgressOptions options_;
  double seconds_per_step_ = 0;  // smoothed
  bool open_ = false;
};

}  // namespace spillway::app
