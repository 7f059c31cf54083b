// Keeps signals away from a thread for the duration of a scope.
#pragma once

#include <signal.h>

#include <ctime>

namespace spillway::io::detail {

/// All signals: a thread started within inherits it, so that signals reach the program's own
/// threads and SIGXFSZ (a write beyond ulimit -f) never kills the process; the write says EFBIG.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(SignalsBlocked const&) = delete;
  SignalsBlocked& operator=(SignalsBlocked const&) = delete;

 private:
  sigset_t before_;
};

/// Only SIGXFSZ, and what came of it is taken away at the end.
class FileSizeSignalBlocked {
 public:
  FileSizeSignalBlocked() {
    ::sigemptyset(&only_);
    ::sigaddset(&only_, SIGXFSZ);
    ::pthread_sigmask(SIG_BLOCK, &only_, &before_);
  }
  ~FileSizeSignalBlocked() {
    timespec const at_once{};
    if (!::sigismember(&before_, SIGXFSZ))
      while (::sigtimedwait(&only_, nullptr, &at_once) > 0) {
      }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  FileSizeSignalBlocked(FileSizeSignalBlocked const&) = delete;
  FileSizeSignalBlocked& operator=(FileSizeSignalBlocked const&) = delete;

 private:
  sigset_t only_;
  sigset_t before_;
};

}  // namespace spillway::io::detail
