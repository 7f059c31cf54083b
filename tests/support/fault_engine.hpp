// A real engine whose results are disturbed by a seed: for tests of everything that stands on
// transfers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "io/engine.hpp"
#include "io/uring/dispatcher.hpp"

namespace spillway::test {

/// Which results are disturbed is a function of seed, place in the file and attempt, not of time or
/// threads. Counted faults (`shot`, `flipped_read`) hit one request each; with depth 1 it is the
/// same one every time.
struct FaultPlan {
  std::uint64_t seed = 1;
  double again = 0;                // share of results that become EAGAIN
  double interrupted = 0;          // share that become EINTR
  double shortened = 0;            // share that lose their second half
  std::uint32_t delay_us_max = 0;  // each result is held back for up to this long

  struct Shot {
    io::Direction direction = io::Direction::write;
    std::uint64_t from = 1;                // the first result of this direction that fails, from 1
    std::uint64_t to = ~std::uint64_t{0};  // the last
    int error = 5;                         // errno, EIO unless said
  };
  std::optional<Shot> shot;
  std::uint64_t flipped_read = 0;  // this read result, from 1, has one bit flipped in its memory
};

io::detail::ResultHook fault_hook(FaultPlan const& plan);

/// `kind` automatic: threads. A self-test of the ring is not disturbed by counted faults.
std::unique_ptr<io::Engine> make_fault_engine(FaultPlan const& plan,
                                              io::EngineOptions const& options = {},
                                              io::EngineKind kind = io::EngineKind::threads);

}  // namespace spillway::test
