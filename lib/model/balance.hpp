// The load-balancing loss of a mixture of experts (Fedus et al. 2021), in transformers' form: of
// all layers together, E * sum over experts of F_e P_e, where F_e is how often a position chose e
// and P_e its mean probability. Only P carries a gradient.
#pragma once

#include <span>

namespace spillway::model {

/// What Decoder::expert_loads counted, over all ranks.
struct ExpertLoads {
  std::span<double const> sums;  // [2, experts]
  double positions = 0;          // layers * tokens
};

double balance_loss(ExpertLoads const& loads);
/// gradient[e] of `scale` times the loss by the probability of e at any position.
void balance_gradient(ExpertLoads const& loads, double scale, std::span<float> gradient);

}  // namespace spillway::model
