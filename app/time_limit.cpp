#include "app/time_limit.hpp"

#include <cstdlib>

namespace spillway::app {

std::optional<Clock::time_point> deadline(TimeLimit const& limit, Clock::time_point start) {
  using Seconds = std::chrono::duration<double>;
  if (limit.kind == TimeLimit::Kind::none) return std::nullopt;
  if (limit.kind == TimeLimit::Kind::seconds)
    return start + std::chrono::duration_cast<Clock::duration>(Seconds(limit.seconds));
  char const* end = std::getenv("SLURM_JOB_END_TIME");
  long long const seconds = end == nullptr ? 0 : std::atoll(end);
  if (seconds <= 0) return std::nullopt;
  return Clock::time_point(std::chrono::seconds(seconds));
}

}  // namespace spillway::app
