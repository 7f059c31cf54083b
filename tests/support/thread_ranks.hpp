// Runs a body once per rank, each in its own thread with a communicator that shares memory.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "lib/comm/communicator.hpp"

namespace spillway::test {

/// Returns what each rank has thrown, null where nothing. A rank that throws gives up its
/// communicator, so the others do not wait for it for ever.
inline std::vector<std::exception_ptr> outcomes_on_threads(
    int ranks, std::function<void(comm::Communicator&)> const& body) {
  auto communicators = comm::make_thread_communicators(ranks);
  std::vector<std::exception_ptr> outcomes(communicators.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < communicators.size(); ++i) {
    threads.emplace_back([&, i, mine = std::move(communicators[i])]() mutable {
      auto const communicator = std::move(mine);
      try {
        body(*communicator);
      } catch (...) {
        outcomes[i] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

/// The same, and rethrows the failure of the lowest rank that has one.
inline void run_on_threads(int ranks, std::function<void(comm::Communicator&)> const& body) {
  for (std::exception_ptr const& outcome : outcomes_on_threads(ranks, body)) {
    if (outcome) std::rethrow_exception(outcome);
  }
}

}  // namespace spillway::test
