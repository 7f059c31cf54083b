#include "lib/train/balance.hpp"

#include <algorithm>

#include "lib/model/balance.hpp"

namespace spillway::train {

double balance_experts(model::ModelConfig const& config, model::Decoder& decoder,
                       comm::Communicator& comm, std::int64_t step_tokens) {
  auto const sums = decoder.expert_loads();
  if (sums.empty()) return 0;
  auto const all = comm.all_gather_values(sums);
  std::fill(sums.begin(), sums.end(), 0.0);
  for (std::size_t at = 0; at < all.size(); ++at) sums[at % sums.size()] += all[at];
  // Every position of every layer has chosen so many experts.
  double choices = 0;
  for (double chosen : sums.first(sums.size() / 2)) choices += chosen;
  model::ExpertLoads const loads{sums, choices / static_cast<double>(config.experts_per_token)};
  double const step_positions =
      static_cast<double>(config.layers) * static_cast<double>(step_tokens) * comm.size();
  model::balance_gradient(loads, config.balance_coefficient * loads.positions / step_positions,
                          decoder.balance_gradient());
  return model::balance_loss(loads);
}

}  // namespace spillway::train
