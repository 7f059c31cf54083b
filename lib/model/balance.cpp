#include "lib/model/balance.hpp"

namespace spillway::model {

double balance_loss(ExpertLoads const& loads) {
  std::size_t const experts = loads.sums.size() / 2;
  double sum = 0;
  for (std::size_t e = 0; e < experts; ++e)
    sum += (loads.sums[e] / loads.positions) * (loads.sums[experts + e] / loads.positions);
  return static_cast<double>(experts) * sum;
}

void balance_gradient(ExpertLoads const& loads, double scale, std::span<float> gradient) {
  double const factor = scale * static_cast<double>(gradient.size()) / loads.positions;
  for (std::size_t e = 0; e < gradient.size(); ++e)
    gradient[e] = static_cast<float>(factor * loads.sums[e] / loads.positions);
}

}  // namespace spillway::model
