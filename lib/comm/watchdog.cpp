// The watching thread: sends beats, reads those of others, raises alarms.
#include "lib/comm/watchdog.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "lib/comm/side_channel.hpp"
#include "lib/core/error.hpp"

namespace spillway::comm {
namespace {

using detail::Address;
using detail::Frame;
using detail::FrameKind;
using detail::Link;
using detail::Listener;
using detail::Reach;
using detail::Token;
using std::chrono::milliseconds;

double seconds_since(WatchClock::time_point start) {
  return std::chrono::duration<double>(WatchClock::now() - start).count();
}

/// What rank 0 tells the others before the side channel stands.
struct Invitation {
  Token token{};
  std::uint32_t count = 0;
  std::array<Address, 32> addresses{};
};

}  // namespace

class Watchdog::Watcher {
 public:
  Watcher(Communicator& communicator, WatchdogOptions const& options, Callbacks callbacks);
  ~Watcher() { end(Farewell::none); }

  enum class Farewell { said, none };
  void end(Farewell farewell);
  void set_phase(std::string_view phase);

 private:
  void start();
  void run();
  Frame make_frame(FrameKind kind) const;
  void send_to_all(FrameKind kind);
  void sleep_until(WatchClock::time_point end);
  void receive_all(WatchClock::time_point now);
  void admit();
  void greet(WatchClock::time_point now);
  void raise_alarms(WatchClock::time_point now);
  void part();

  Rank rank_;
  WatchdogOptions options_;
  Callbacks callbacks_;
  std::string host_ = detail::host_name();
  Token token_{};
  std::optional<Listener> listener_;  // on rank 0
  std::map<Rank, Link> links_;
  std::vector<Link> strangers_;  // accepted, but have not yet said who they are
  PulseMonitor monitor_;
  Fd wakeup_;
  std::atomic<bool> ending_ = false;
  std::atomic<bool> says_goodbye_ = false;
  std::mutex mutable phase_mutex_;
  std::string phase_;
  WatchClock::time_point phase_start_ = WatchClock::now();
  std::thread thread_;
};

namespace {

std::vector<Rank> watched_by(Rank rank, int size) {
  if (rank != Rank{0}) return {Rank{0}};
  std::vector<Rank> all;
  for (int peer = 0; peer < size; ++peer) all.push_back(Rank{peer});  // itself too, for stalls
  return all;
}

WatchdogOptions options_of(Rank rank, WatchdogOptions options) {
  if (rank == Rank{0}) return options;
  options.stall = {};  // rank 0 reports for all
  // When rank 0 dies everybody notices at once: rank 1 speaks first, its abort silences the rest.
  if (rank != Rank{1}) {
    options.timeout += options.grace;
    options.grace *= 2;
  }
  return options;
}

}  // namespace

Watchdog::Watcher::Watcher(Communicator& communicator, WatchdogOptions const& options,
                           Callbacks callbacks)
    : rank_(communicator.rank()),
      options_(options_of(rank_, options)),
      callbacks_(std::move(callbacks)),
      monitor_(watched_by(rank_, communicator.size()), options_, WatchClock::now()),
      wakeup_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!wakeup_) fail(Fault::peer, "cannot make an eventfd (" + errno_text(errno) + ")");
  Invitation invitation;
  if (rank_ == Rank{0}) {
    bool const one_host = communicator.local_size() == communicator.size();
    listener_.emplace(one_host ? Reach::host : Reach::network);
    invitation.token = detail::random_token();
    for (Address const& address : listener_->addresses()) {
      if (invitation.count < invitation.addresses.size())
        invitation.addresses[invitation.count++] = address;
    }
    monitor_.introduced(rank_, host_);
    token_ = invitation.token;
    start();  // before the others can knock
  }
  try {
    communicator.broadcast(std::as_writable_bytes(std::span(&invitation, 1)), Rank{0});
  } catch (...) {
    end(Farewell::none);
    throw;
  }
  if (rank_ == Rank{0}) return;
  token_ = invitation.token;
  std::vector<Address> const addresses(invitation.addresses.begin(),
                                       invitation.addresses.begin() + invitation.count);
  auto [link, frame] = detail::connect(addresses, make_frame(FrameKind::hello), options_.timeout);
  monitor_.introduced(Rank{0}, detail::get_text(frame.host));
  monitor_.heard(Rank{0}, {}, WatchClock::now());
  monitor_.awake(WatchClock::now());
  links_.emplace(Rank{0}, std::move(link));
  start();
}

void Watchdog::Watcher::start() {
  // Signals are for the program's own threads.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Watchdog::Watcher::end(Farewell farewell) {
  if (!thread_.joinable()) return;
  says_goodbye_ = farewell == Farewell::said;
  ending_ = true;
  std::uint64_t const one = 1;
  static_cast<void>(::write(wakeup_.get(), &one, sizeof one));  // else the thread wakes at its beat
  thread_.join();
}

void Watchdog::Watcher::set_phase(std::string_view phase) {
  std::lock_guard lock(phase_mutex_);
  phase_.assign(phase);
  phase_start_ = WatchClock::now();
}

Frame Watchdog::Watcher::make_frame(FrameKind kind) const {
  Frame frame{};
  frame.token = token_;
  frame.kind = kind;
  frame.rank = rank_.get();
  {
    std::lock_guard lock(phase_mutex_);
    detail::put_text(phase_, frame.phase);
    frame.phase_seconds = seconds_since(phase_start_);
  }
  if (kind == FrameKind::beat && callbacks_.oldest_request) {
    Request const request = callbacks_.oldest_request();
    detail::put_text(request.name, frame.request);
    frame.request_seconds = request.seconds;
  }
  detail::put_text(host_, frame.host);
  return frame;
}

namespace {

Pulse pulse_of(Frame const& frame) {
  return {detail::get_text(frame.phase), frame.phase_seconds, detail::get_text(frame.request),
          frame.request_seconds};
}

}  // namespace

void Watchdog::Watcher::run() {
  auto next_beat = WatchClock::now();
  while (!ending_) {
    if (WatchClock::now() >= next_beat) {
      send_to_all(FrameKind::beat);
      next_beat = WatchClock::now() + options_.beat;
    }
    sleep_until(next_beat);
    auto const now = WatchClock::now();
    monitor_.awake(now);
    receive_all(now);
    raise_alarms(now);
  }
  if (says_goodbye_) part();
}

void Watchdog::Watcher::send_to_all(FrameKind kind) {
  Frame const frame = make_frame(kind);
  for (auto& [rank, link] : links_) link.send(frame);
  if (rank_ == Rank{0}) monitor_.heard(rank_, pulse_of(frame), WatchClock::now());
}

void Watchdog::Watcher::sleep_until(WatchClock::time_point end) {
  std::vector<pollfd> entries{{wakeup_.get(), POLLIN, 0}};
  if (listener_) entries.push_back({listener_->descriptor(), POLLIN, 0});
  for (auto const& [rank, link] : links_) {
    if (!link.closed()) entries.push_back({link.descriptor(), POLLIN, 0});
  }
  for (Link const& link : strangers_) entries.push_back({link.descriptor(), POLLIN, 0});
  auto const left = std::chrono::ceil<milliseconds>(end - WatchClock::now()).count();
  // Any result, an interruption included, is followed by a look at all links.
  static_cast<void>(
      ::poll(entries.data(), entries.size(), static_cast<int>(std::max<long>(left, 0))));
}

void Watchdog::Watcher::receive_all(WatchClock::time_point now) {
  if (listener_) {
    admit();
    greet(now);
  }
  for (auto entry = links_.begin(); entry != links_.end();) {
    auto& [rank, link] = *entry;
    bool parted = false;
    while (std::optional<Frame> const frame = link.receive()) {
      monitor_.heard(rank, pulse_of(*frame), now);
      parted = parted || frame->kind == FrameKind::goodbye;
    }
    if (parted) {
      monitor_.departed(rank);
      entry = links_.erase(entry);  // the end of the connection answers the goodbye
      continue;
    }
    if (link.closed()) monitor_.closed(rank, now);
    ++entry;
  }
}

void Watchdog::Watcher::admit() {
  constexpr std::size_t strangers_max = 4096;  // others than our ranks may knock, but not for ever
  while (std::optional<Link> link = listener_->accept()) {
    if (strangers_.size() < strangers_max) strangers_.push_back(std::move(*link));
  }
}

void Watchdog::Watcher::greet(WatchClock::time_point now) {
  for (std::size_t i = 0; i < strangers_.size();) {
    std::optional<Frame> const frame = strangers_[i].receive();
    if (!frame && !strangers_[i].closed()) {
      ++i;
      continue;
    }
    if (frame && frame->kind == FrameKind::hello && frame->token == token_) {
      Rank const rank{frame->rank};
      monitor_.introduced(rank, detail::get_text(frame->host));
      monitor_.heard(rank, pulse_of(*frame), now);
      auto const [entry, is_new] = links_.insert_or_assign(rank, std::move(strangers_[i]));
      entry->second.send(make_frame(FrameKind::welcome));
    }
    strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

void Watchdog::Watcher::raise_alarms(WatchClock::time_point now) {
  for (PeerReport const& report : monitor_.due(now)) {
    try {
      callbacks_.on_alarm(report);
    } catch (std::exception const&) {
      // The alarm has been raised once; this thread has nobody to pass the failure on to.
      continue;
    }
  }
}

void Watchdog::Watcher::part() {
  send_to_all(FrameKind::goodbye);
  for (auto& [rank, link] : links_) link.finish_sending();
  // Closing with unread beats in the buffer would reset the connection and might destroy the
  // goodbye.
  auto const end = WatchClock::now() + options_.grace;
  while (!links_.empty() && WatchClock::now() < end) {
    std::vector<pollfd> entries;
    for (auto const& [rank, link] : links_) entries.push_back({link.descriptor(), POLLIN, 0});
    static_cast<void>(::poll(entries.data(), entries.size(), 20));
    for (auto entry = links_.begin(); entry != links_.end();) {
      while (entry->second.receive()) continue;
      entry = entry->second.closed() ? links_.erase(entry) : std::next(entry);
    }
  }
}

Watchdog::Watchdog(Communicator& communicator, WatchdogOptions const& options, Callbacks callbacks)
    : exceptions_at_start_(std::uncaught_exceptions()) {
  if (communicator.size() == 1) return;
  communicator.barrier();  // from here on a rank that does not connect in time is missing
  watcher_ = std::make_unique<Watcher>(communicator, options, std::move(callbacks));
}

Watchdog::~Watchdog() {
  if (!watcher_) return;
  bool const unwinding = std::uncaught_exceptions() > exceptions_at_start_;
  watcher_->end(unwinding ? Watcher::Farewell::none : Watcher::Farewell::said);
}

void Watchdog::set_phase(std::string_view phase) {
  if (watcher_) watcher_->set_phase(phase);
}

void Watchdog::stop() {
  if (watcher_) watcher_->end(Watcher::Farewell::said);
}

}  // namespace spillway::comm
