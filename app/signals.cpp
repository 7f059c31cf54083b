#include "app/signals.hpp"

#include <fmt/core.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "lib/core/error.hpp"

namespace spillway::app {

void ignore_write_signals() {
  for (int number : {SIGPIPE, SIGXFSZ})
    if (std::signal(number, SIG_IGN) == SIG_ERR)
      fail(Fault::internal, fmt::format("cannot ignore a signal ({}).", errno_text(errno)));
}

StopSignals::StopSignals(std::vector<int> const& numbers) {
  sigset_t wanted;
  sigset_t before;
  sigemptyset(&wanted);
  for (int number : numbers) sigaddset(&wanted, number);
  int const code = pthread_sigmask(SIG_BLOCK, &wanted, &before);
  if (code != 0)
    fail(Fault::internal, fmt::format("cannot hold signals back ({}).", errno_text(code)));
  for (int number : numbers)
    if (sigismember(&before, number) == 0) held_.push_back(number);
  fd_.reset(::signalfd(-1, &wanted, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!fd_) fail(Fault::internal, fmt::format("cannot watch signals ({}).", errno_text(errno)));
}

StopSignals::~StopSignals() {
  // Those that came and were not read would kill the process when let through.
  stop_requested();
  sigset_t held;
  sigemptyset(&held);
  for (int number : held_) sigaddset(&held, number);
  pthread_sigmask(SIG_UNBLOCK, &held, nullptr);
}

bool StopSignals::stop_requested() {
  signalfd_siginfo info;
  while (::read(fd_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
    char const* name = ::sigabbrev_np(static_cast<int>(info.ssi_signo));
    if (first_.empty()) first_ = name ? name : std::to_string(info.ssi_signo);
  }
  return !first_.empty();
}

}  // namespace spillway::app
