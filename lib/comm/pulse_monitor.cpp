// Clocks and alarms of the watchdog.
#include "lib/comm/pulse_monitor.hpp"

#include <fmt/core.h>

#include <utility>

namespace spillway::comm {
namespace {

double seconds(WatchClock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

std::string describe(PeerReport const& report) {
  std::string const who = fmt::format("rank {} on {}", report.rank.get(),
                                      report.host.empty() ? "an unknown host" : report.host);
  std::string const phase =
      report.last.phase.empty()
          ? "before its first phase"
          : fmt::format("in \"{}\" for {:.1f} s", report.last.phase, report.last.phase_seconds);
  std::string const request = report.last.request.empty()
                                  ? "no request outstanding"
                                  : fmt::format("oldest request \"{}\", {:.1f} s",
                                                report.last.request, report.last.request_seconds);
  switch (report.alarm) {
    case Alarm::silent:
      return fmt::format(
          "{} has stopped answering (no heartbeat for {:.1f} s; last known: {}, {}). Was the "
          "process "
          "stopped, or does its node hang?",
          who, report.seconds, phase, request);
    case Alarm::closed:
      return fmt::format(
          "{} has ended without a word (its connection closed {:.1f} s ago; last known: {}, {}). "
          "Was it "
          "killed, for example for want of memory?",
          who, report.seconds, phase, request);
    case Alarm::stalled: break;
  }
  return fmt::format("{} does not get on (alive, but {}, {}). Does its disk or file system hang?",
                     who, phase, request);
}

PulseMonitor::PulseMonitor(std::vector<Rank> watched, WatchdogOptions const& options, Time start)
    : options_(options), awake_(start) {
  for (Rank const rank : watched) {
    Peer peer;
    peer.rank = rank;
    peer.heard = start;
    peers_.push_back(std::move(peer));
  }
}

PulseMonitor::Peer* PulseMonitor::find(Rank rank) {
  for (Peer& peer : peers_) {
    if (peer.rank == rank) return &peer;
  }
  return nullptr;
}

void PulseMonitor::introduced(Rank rank, std::string host) {
  if (Peer* const peer = find(rank)) peer->host = std::move(host);
}

void PulseMonitor::heard(Rank rank, Pulse pulse, Time now) {
  if (Peer* const peer = find(rank)) {
    peer->last = std::move(pulse);
    peer->heard = now;
  }
}

void PulseMonitor::closed(Rank rank, Time now) {
  Peer* const peer = find(rank);
  if (peer == nullptr || peer->is_closed) return;
  peer->is_closed = true;
  peer->closed_at = now;
}

void PulseMonitor::departed(Rank rank) {
  if (Peer* const peer = find(rank)) peer->is_done = true;
}

void PulseMonitor::awake(Time now) {
  bool const late = now - awake_ > options_.beat + options_.timeout / 2;
  awake_ = now;
  if (!late) return;
  for (Peer& peer : peers_) {
    peer.heard = now;
    if (peer.is_closed) peer.closed_at = now;
  }
}

std::vector<PeerReport> PulseMonitor::due(Time now) {
  std::vector<PeerReport> reports;
  for (Peer& peer : peers_) {
    if (peer.is_done) continue;
    bool const gone = peer.is_closed && now - peer.closed_at >= options_.grace;
    bool const silent = !peer.is_closed && now - peer.heard >= options_.timeout;
    if (gone || silent) {
      peer.is_done = true;
      reports.push_back({peer.rank, peer.host, gone ? Alarm::closed : Alarm::silent,
                         seconds(now - (gone ? peer.closed_at : peer.heard)), peer.last});
      continue;
    }
    bool const stalled =
        options_.stall.count() > 0 && peer.last.phase_seconds >= seconds(options_.stall);
    bool const is_new = stalled && !peer.stall_reported;
    peer.stall_reported = stalled;
    if (is_new) {
      reports.push_back({peer.rank, peer.host, Alarm::stalled, peer.last.phase_seconds, peer.last});
    }
  }
  return reports;
}

}  // namespace spillway::comm
