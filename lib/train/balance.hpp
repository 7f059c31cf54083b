// Load balance of experts over all ranks, between a wave's last forward and its first backward.
#pragma once

#include <cstdint>

#include "lib/comm/communicator.hpp"
#include "lib/model/decoder.hpp"

namespace spillway::train {

/// Exchanges what each rank's decoder counted in the wave and sets the gradient that its backward
/// passes add. The balance is that of all tokens of the wave, so neither micro-batches nor ranks
/// show in it; a step of several waves has the mean of theirs. Returns the wave's loss without
/// coefficient; 0 without experts. `step_tokens`: of this rank and step.
double balance_experts(model::ModelConfig const& config, model::Decoder& decoder,
                       comm::Communicator& comm, std::int64_t step_tokens);

}  // namespace spillway::train
