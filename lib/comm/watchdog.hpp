// Notices ranks that are dead or stopped, whether or not MPI would, and calls for the end of the
// run.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lib/comm/communicator.hpp"
#include "lib/comm/pulse_monitor.hpp"

namespace spillway::comm {

/// A thread on each rank sends beats over a side channel: rank 0 watches all others, they watch
/// rank 0. With one rank there is neither thread nor socket.
class Watchdog {
 public:
  struct Request {
    std::string name;
    double seconds = 0;
  };
  /// Both run on the watching thread. `on_alarm` prints describe(report) and, unless the peer is
  /// only stalled, aborts the job. `oldest_request` must not block: it is called at every beat.
  struct Callbacks {
    std::function<void(PeerReport const&)> on_alarm;
    std::function<Request()> oldest_request;  // may be empty
  };

  /// Collective. Throws Fault::peer if rank 0 cannot be reached within the timeout.
  Watchdog(Communicator& communicator, WatchdogOptions const& options, Callbacks callbacks);
  /// stop(), unless an exception is on its way: then the others shall hear no goodbye.
  ~Watchdog();
  Watchdog(Watchdog const&) = delete;
  Watchdog& operator=(Watchdog const&) = delete;

  /// What this rank does from now on, for example "step 12, backward of block.3". Cheap; any
  /// thread.
  void set_phase(std::string_view phase);
  /// Says goodbye and joins the thread. Before it all ranks should have passed a barrier.
  void stop();

 private:
  class Watcher;
  std::unique_ptr<Watcher> watcher_;
  int exceptions_at_start_;
};

}  // namespace spillway::comm
