// Learning rate by step, and the clipping factor of a global gradient norm.
#pragma once

#include <cstdint>

namespace spillway::optim {

enum class ScheduleKind { constant, cosine, wsd };

struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::cosine;
  double lr = 3e-4;
  double min_lr = 3e-5;
  std::int64_t steps = 1;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;  // wsd: length of the final linear decay; 0: a fifth of the steps
};

/// Learning rate of step 1, 2, ..., steps. Warm-up is linear and reaches lr at step warmup_steps;
/// cosine falls to min_lr at the last step (Loshchilov & Hutter 2017); wsd stays at lr and falls
/// linearly (Hu et al. 2024).
double learning_rate(ScheduleOptions const& options, std::int64_t step);

/// min(1, clip / (norm + 1e-6)), as PyTorch's clip_grad_norm_; 1 where clip is 0 (off).
double clip_factor(double norm, double clip);

}  // namespace spillway::optim
