// Rates and amounts of a run: what was moved, what was computed, and what this machine could
// compute.
#pragma once

#include <cstdint>

#include "lib/comm/communicator.hpp"
#include "lib/core/dtype.hpp"
#include "lib/model/spec.hpp"
#include "lib/train/state_store.hpp"

namespace spillway::app {

struct Meters {
  double stall_s = 0;
  std::uint64_t read_bytes = 0, written_bytes = 0, sent_bytes = 0;
  std::uint64_t rss_bytes = 0;  // peak resident
  Meters since(Meters const& before) const;
};

/// Of this rank, since the start.
Meters meters(train::StateStore const& store, comm::Communicator const& comm);
/// Over all ranks: bytes added up, this run's slowest stall and largest memory.
Meters exchange(comm::Communicator& comm, Meters const& mine);

/// 6 N + 6 L h T (PaLM's count with causal attention): N weights of matrix products, the head's
/// too. A window makes T smaller, and of experts only those that a token
/// sees count.
double training_flops_per_token(model::ModelSpec const& spec, std::int64_t T);

/// FLOP/s of this rank's matrix products, measured in a few milliseconds on a square one of 512.
double measure_peak_flops(DType type, device::Stream& stream);

}  // namespace spillway::app
