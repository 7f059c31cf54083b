// What one optimizer step reports; app writes it to metrics.jsonl.
#pragma once

#include <cstdint>

namespace spillway::train {

struct StepReport {
  std::int64_t step = 0;
  double loss = 0;       // mean over the step's target tokens, all ranks
  double grad_norm = 0;  // global, before clipping
  double lr = 0;
  std::int64_t tokens = 0;  // target tokens of the run so far, all ranks
  double tokens_per_s = 0;
  double step_ms = 0;
  double stall_ms = 0;  // of this rank: waiting for state
  double mfu = 0;
  std::uint64_t read_bytes = 0;  // NVMe, all ranks, this step
  std::uint64_t written_bytes = 0;
  std::uint64_t sent_bytes = 0;
  std::uint64_t rss_bytes = 0;  // largest over the ranks
  std::int64_t skipped = 0;     // 1: the update of this step was dropped
};

}  // namespace spillway::train
