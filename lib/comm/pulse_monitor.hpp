// Decides from the beats of other ranks, and from the lack of them, who is dead. Knows no sockets.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "lib/core/strong.hpp"

namespace spillway::comm {

using WatchClock = std::chrono::steady_clock;

struct WatchdogOptions {
  using Duration = std::chrono::milliseconds;

  Duration beat{500};
  /// A peer without a beat for so long is dead.
  Duration timeout{10'000};
  /// From the end of a peer's connection to the alarm: its own message should come first.
  Duration grace{1'000};
  /// A peer that beats but does not change its phase for so long is reported; zero: never.
  Duration stall{0};
};

/// What a rank says of itself in each beat.
struct Pulse {
  std::string phase;
  double phase_seconds = 0;
  std::string request;  // its oldest outstanding request; empty: none
  double request_seconds = 0;
};

enum class Alarm {
  silent,   // no beat: stopped, or its node hangs
  closed,   // the connection ended without a goodbye: the process is gone
  stalled,  // beats, but does not get on
};

struct PeerReport {
  Rank rank;
  std::string host;
  Alarm alarm;
  double seconds;  // since the last beat, the end of the connection, or the start of the phase
  Pulse last;
};

/// One sentence for the user, with rank, host, phase and oldest request.
std::string describe(PeerReport const& report);

/// Times are passed in, so that it can be tested without waiting.
class PulseMonitor {
 public:
  using Time = WatchClock::time_point;

  PulseMonitor(std::vector<Rank> watched, WatchdogOptions const& options, Time start);

  void introduced(Rank peer, std::string host);
  void heard(Rank peer, Pulse pulse, Time now);
  void closed(Rank peer, Time now);
  /// A goodbye: this peer is not missed.
  void departed(Rank peer);
  /// To be called at each round of the watching thread, at least once a beat. If the thread itself
  /// was late (the whole job was suspended, or starved), silence proves nothing and all clocks
  /// restart.
  void awake(Time now);
  /// New alarms: each death once, each stall once.
  std::vector<PeerReport> due(Time now);

 private:
  struct Peer {
    Rank rank;
    std::string host;
    Pulse last;
    Time heard;
    Time closed_at;
    bool is_closed = false;
    bool is_done = false;  // departed, or reported dead
    bool stall_reported = false;
  };
  Peer* find(Rank rank);

  WatchdogOptions options_;
  std::vector<Peer> peers_;
  Time awake_;
};

}  // namespace spillway::comm
