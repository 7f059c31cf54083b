// Signals are noted and not acted on; afterwards they work as before.
#include "app/signals.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <thread>

#include "tests/app/process.hpp"

namespace spillway::app {
namespace {

TEST(stop_signals, nothing_is_requested_before_a_signal_comes) {
  StopSignals signals({SIGUSR1, SIGTERM});
  EXPECT_FALSE(signals.stop_requested());
  EXPECT_EQ(signals.first(), "");
}

TEST(stop_signals, the_first_signal_is_kept_through_later_ones) {
  StopSignals signals({SIGUSR1, SIGTERM, SIGINT});
  ::kill(::getpid(), SIGTERM);
  EXPECT_TRUE(signals.stop_requested());
  for (int i = 0; i < 1000; ++i) ::kill(::getpid(), i % 2 == 0 ? SIGUSR1 : SIGINT);
  EXPECT_TRUE(signals.stop_requested());
  EXPECT_EQ(signals.first(), "TERM");
}

TEST(stop_signals, a_thread_made_later_is_never_interrupted) {
  StopSignals signals({SIGUSR1});
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  ssize_t got = -1;
  std::thread reader([&] {
    char byte = 0;
    got = ::read(pipe[0], &byte, 1);
  });
  for (int i = 0; i < 100; ++i) ::kill(::getpid(), SIGUSR1);
  ASSERT_EQ(::write(pipe[1], "x", 1), 1);
  reader.join();
  EXPECT_EQ(got, 1);
  EXPECT_TRUE(signals.stop_requested());
  for (int fd : pipe) ::close(fd);
}

TEST(stop_signals, only_those_asked_for_are_held_back) {
  StopSignals signals({SIGUSR2});
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGUSR2), 1);
  EXPECT_EQ(sigismember(&blocked, SIGUSR1), 0);
  EXPECT_EQ(sigismember(&blocked, SIGTERM), 0);
}

TEST(stop_signals, the_mask_is_as_before_at_the_end_and_late_signals_do_not_kill) {
  {
    StopSignals signals({SIGUSR1});
    ::kill(::getpid(), SIGUSR1);
  }
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGUSR1), 0);
}

TEST(write_signals, a_closed_pipe_is_an_error_of_write) {
  ignore_write_signals();
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  ::close(pipe[0]);
  EXPECT_EQ(::write(pipe[1], "x", 1), -1);
  EXPECT_EQ(errno, EPIPE);
  ::close(pipe[1]);
}

}  // namespace
}  // namespace spillway::app
