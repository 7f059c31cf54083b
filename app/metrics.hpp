// metrics.jsonl: one JSON object a step, for machines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lib/core/unique_handle.hpp"
#include "lib/train/step_report.hpp"

namespace spillway::app {

/// Further numbers of a step, e.g. {"val_loss", 3.2}.
using ExtraMetrics = std::vector<std::pair<std::string, double>>;

/// One line with its line end. Numbers read back to the same double; what is not finite is null,
/// with its text beside it: "loss": null, "loss_text": "nan".
std::string metrics_line(train::StepReport const& report, ExtraMetrics const& extra = {});

/// Appends, one write(2) a line. One writer a run: rank 0's.
class Metrics {
 public:
  explicit Metrics(std::filesystem::path path);

  void write(train::StepReport const& report, ExtraMetrics const& extra = {});

  /// Removes the lines after `step`, and what a crash has torn, so that one step stays one line on
  /// resume. Returns the number of lines removed.
  std::int64_t cut_back(std::int64_t step);

 private:
  void open();

  std::filesystem::path path_;
  Fd fd_;
};

}  // namespace spillway::app
