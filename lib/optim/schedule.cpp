#include "lib/optim/schedule.hpp"

#include <algorithm>
#include <cmath>

namespace spillway::optim {
namespace {

double progress(std::int64_t done, std::int64_t all) {
  return all <= 0 ? 1.0
                  : std::clamp(static_cast<double>(done) / static_cast<double>(all), 0.0, 1.0);
}

double cosine(ScheduleOptions const& o, std::int64_t step) {
  double const part = progress(step - o.warmup_steps, o.steps - o.warmup_steps);
  return o.min_lr + 0.5 * (o.lr - o.min_lr) * (1 + std::cos(3.14159265358979323846 * part));
}

double warmup_stable_decay(ScheduleOptions const& o, std::int64_t step) {
  std::int64_t const length =
      o.decay_steps > 0 ? o.decay_steps : std::max<std::int64_t>(1, o.steps / 5);
  std::int64_t const start = o.steps - length;
  if (step <= start) return o.lr;
  return o.lr + (o.min_lr - o.lr) * progress(step - start, length);
}

}  // namespace

double learning_rate(ScheduleOptions const& options, std::int64_t step) {
  if (step <= options.warmup_steps) return options.lr * progress(step, options.warmup_steps);
  switch (options.kind) {
    case ScheduleKind::constant: return options.lr;
    case ScheduleKind::cosine: return cosine(options, step);
    case ScheduleKind::wsd: return warmup_stable_decay(options, step);
  }
  return options.lr;
}

double clip_factor(double norm, double clip) {
  return clip > 0 ? std::min(1.0, clip / (norm + 1e-6)) : 1.0;
}

}  // namespace spillway::optim
