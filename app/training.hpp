// A training run on one rank: set-up, resume, the loop of steps, and how it ends.
#pragma once

#include <atomic>
#include <functional>
#include <string_view>

#include "app/options.hpp"
#include "app/signals.hpp"
#include "lib/comm/communicator.hpp"

namespace spillway::app {

/// Ties to what watches over the rank: it hears phases, and asks for the age of the oldest I/O
/// request.
struct Oversight {
  std::function<void(std::string_view)> set_phase;
  std::atomic<io::Engine const*> io{nullptr};
};

/// Returns the exit code: 0 done, 85 checkpointed on request. Throws Error for this rank alone,
/// CollectiveError for a fault that every rank has agreed on.
int train_run(Options const& options, comm::Communicator& comm, StopSignals& signals,
              Oversight& oversight);

}  // namespace spillway::app
