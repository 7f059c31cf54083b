// When a run has to stop by itself.
#pragma once

#include <chrono>
#include <optional>

#include "app/options.hpp"

namespace spillway::app {

using Clock = std::chrono::system_clock;

/// End of the time that the run has: run.max_time after `start`, or the end of the Slurm job
/// (SLURM_JOB_END_TIME, 23.02 and later) where run.max_time is auto; nothing where there is no
/// limit.
std::optional<Clock::time_point> deadline(TimeLimit const& limit, Clock::time_point start);

}  // namespace spillway::app
