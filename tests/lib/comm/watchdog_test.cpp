// The watchdog between ranks that are threads. Stopped and killed processes: lost_rank_test.py.
#include "lib/comm/watchdog.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "lib/core/error.hpp"
#include "tests/support/thread_ranks.hpp"

namespace spillway::test {
namespace {

using namespace std::chrono_literals;
using comm::Alarm;
using comm::Communicator;
using comm::PeerReport;
using comm::Watchdog;
using comm::WatchdogOptions;

constexpr WatchdogOptions brisk{.beat = 20ms, .timeout = 3000ms, .grace = 100ms};

/// Claims that each rank is on a host of its own, so that the watchdog goes over TCP.
class Scattered final : public Communicator {
 public:
  explicit Scattered(Communicator& inner) : inner_(inner) {}
  Rank rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int local_size() const override { return 1; }
  int local_rank() const override { return 0; }
  void barrier() override { inner_.barrier(); }
  void broadcast(std::span<std::byte> data, Rank root) override { inner_.broadcast(data, root); }
  void all_gather(std::span<std::byte> whole, device::Stream& stream) override {
    inner_.all_gather(whole, stream);
  }
  void reduce_scatter(std::span<float> whole, std::span<float> own,
                      device::Stream& stream) override {
    inner_.reduce_scatter(whole, own, stream);
  }
  std::vector<double> all_gather_values(std::span<double const> mine) override {
    return inner_.all_gather_values(mine);
  }
  std::vector<std::vector<std::byte>> gather(std::span<std::byte const> mine, Rank root) override {
    return inner_.gather(mine, root);
  }
  std::uint64_t sent_bytes() const override { return inner_.sent_bytes(); }
  [[noreturn]] void abort(int exit_code) override {
    inner_.abort(exit_code);
    throw;  // not reached; g++ 12 does not see noreturn through a virtual call
  }

 private:
  Communicator& inner_;
};

/// The alarms of one rank.
class Alarms {
 public:
  Watchdog::Callbacks callbacks() {
    return {.on_alarm =
                [this](PeerReport const& report) {
                  std::lock_guard lock(mutex_);
                  reports_.push_back(report);
                },
            .oldest_request =
                [] {
                  return Watchdog::Request{"read of block.3", 2.5};
                }};
  }
  std::vector<PeerReport> reports() const {
    std::lock_guard lock(mutex_);
    return reports_;
  }
  /// The first report; the test's own time limit ends a wait in vain.
  PeerReport wait() const {
    for (;;) {
      if (auto all = reports(); !all.empty()) return all[0];
      std::this_thread::sleep_for(1ms);
    }
  }

 private:
  std::mutex mutable mutex_;
  std::vector<PeerReport> reports_;
};

enum class Hosts { one, many };

class WatchdogTest : public testing::TestWithParam<Hosts> {
 protected:
  template <class Body>
  void on_ranks(int ranks, Body const& body) {
    run_on_threads(ranks, [&](Communicator& communicator) {
      Scattered scattered(communicator);
      if (GetParam() == Hosts::one) {
        body(communicator);
      } else {
        body(scattered);
      }
    });
  }
};

int threads_of_this_process() {
  using std::filesystem::directory_iterator;
  auto const tasks = directory_iterator("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

TEST_P(WatchdogTest, an_orderly_end_raises_no_alarm_whoever_leaves_first) {
  for (int first = 0; first < 3; ++first) {
    on_ranks(3, [&](Communicator& communicator) {
      Alarms alarms;
      Watchdog watchdog(communicator, brisk, alarms.callbacks());
      watchdog.set_phase("training");
      communicator.barrier();
      if (communicator.rank().get() == first) watchdog.stop();
      std::this_thread::sleep_for(3 * brisk.grace);
      watchdog.stop();
      EXPECT_TRUE(alarms.reports().empty()) << describe(alarms.reports()[0]);
    });
  }
}

TEST_P(WatchdogTest, a_rank_that_ends_without_goodbye_is_reported_by_rank_0_with_its_phase) {
  std::atomic<bool> reported = false;
  on_ranks(3, [&](Communicator& communicator) {
    Alarms alarms;
    try {
      Watchdog watchdog(communicator, brisk, alarms.callbacks());
      watchdog.set_phase("step 12, backward of block.3");
      std::this_thread::sleep_for(5 * brisk.beat);  // some beats carry the phase
      if (communicator.rank() == Rank{2}) throw std::runtime_error("killed");
      if (communicator.rank() == Rank{0}) {
        PeerReport const report = alarms.wait();
        EXPECT_EQ(report.rank, Rank{2});
        EXPECT_EQ(report.alarm, Alarm::closed);
        EXPECT_EQ(report.last.phase, "step 12, backward of block.3");
        EXPECT_EQ(report.last.request, "read of block.3");
        EXPECT_EQ(report.last.request_seconds, 2.5);
        EXPECT_FALSE(report.host.empty());
        reported = true;
      }
      while (!reported) std::this_thread::sleep_for(1ms);
    } catch (std::runtime_error const&) {
      while (!reported) std::this_thread::sleep_for(1ms);
    }
    communicator.barrier();
    EXPECT_EQ(alarms.reports().size(), communicator.rank() == Rank{0} ? 1U : 0U);
  });
}

TEST_P(WatchdogTest, the_end_of_rank_0_is_noticed_by_the_others) {
  std::atomic<int> reported = 0;
  on_ranks(3, [&](Communicator& communicator) {
    Alarms alarms;
    try {
      Watchdog watchdog(communicator, brisk, alarms.callbacks());
      communicator.barrier();
      if (communicator.rank() == Rank{0}) throw std::runtime_error("killed");
      PeerReport const report = alarms.wait();
      EXPECT_EQ(report.rank, Rank{0});
      EXPECT_EQ(report.alarm, Alarm::closed);
      ++reported;
    } catch (std::runtime_error const&) {
      while (reported < 2) std::this_thread::sleep_for(1ms);
    }
    communicator.barrier();
  });
}

TEST_P(WatchdogTest, a_rank_that_is_busy_for_twice_the_timeout_is_not_dead) {
  WatchdogOptions options = brisk;
  options.timeout = 1500ms;
  on_ranks(2, [&](Communicator& communicator) {
    Alarms alarms;
    Watchdog watchdog(communicator, options, alarms.callbacks());
    watchdog.set_phase("writing the checkpoint");
    if (communicator.rank() == Rank{1}) std::this_thread::sleep_for(2 * options.timeout);
    communicator.barrier();
    watchdog.stop();
    EXPECT_TRUE(alarms.reports().empty()) << describe(alarms.reports()[0]);
  });
}

TEST_P(WatchdogTest, a_phase_that_does_not_end_is_reported_as_a_stall_if_asked_for) {
  WatchdogOptions options = brisk;
  options.stall = 200ms;
  std::atomic<bool> reported = false;
  on_ranks(2, [&](Communicator& communicator) {
    Alarms alarms;
    Watchdog watchdog(communicator, options, alarms.callbacks());
    for (int i = 0; !reported; ++i) {
      watchdog.set_phase(communicator.rank() == Rank{1} ? "reading a dead disk"
                                                        : "step " + std::to_string(i));
      while (communicator.rank() == Rank{1} && !reported) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(1ms);
      for (PeerReport const& report : alarms.reports()) {
        if (report.rank != Rank{1}) continue;  // rank 0 itself, on a machine that stood still
        EXPECT_EQ(report.alarm, Alarm::stalled);
        EXPECT_EQ(report.last.phase, "reading a dead disk");
        EXPECT_GE(report.seconds, 0.2);
        reported = true;
      }
    }
    communicator.barrier();
  });
}

TEST_P(WatchdogTest, an_alarm_that_throws_does_not_end_the_program) {
  std::atomic<bool> raised = false;
  on_ranks(2, [&](Communicator& communicator) {
    Watchdog::Callbacks callbacks;
    callbacks.on_alarm = [&](PeerReport const&) {
      raised = true;
      fail(Fault::peer, "the alarm itself fails");
    };
    try {
      Watchdog watchdog(communicator, brisk, callbacks);
      communicator.barrier();
      if (communicator.rank() == Rank{1}) throw std::runtime_error("killed");
      while (!raised) std::this_thread::sleep_for(1ms);
    } catch (std::runtime_error const&) {
      while (!raised) std::this_thread::sleep_for(1ms);
    }
    communicator.barrier();
  });
  EXPECT_TRUE(raised);
}

INSTANTIATE_TEST_SUITE_P(Hosts, WatchdogTest, testing::Values(Hosts::one, Hosts::many),
                         [](auto const& each) {
                           return each.param == Hosts::one ? "one_host" : "many_hosts";
                         });

TEST(Watchdog, one_rank_alone_has_no_thread) {
  auto const communicator = comm::make_self_communicator();
  int const before = threads_of_this_process();
  Watchdog watchdog(*communicator, {}, {});
  watchdog.set_phase("training");
  EXPECT_EQ(threads_of_this_process(), before);
  watchdog.stop();
}

TEST(Watchdog, many_ranks_join_and_part_many_times) {
  for (int round = 0; round < 20; ++round) {
    run_on_threads(8, [&](Communicator& communicator) {
      Alarms alarms;
      Watchdog watchdog(communicator, brisk, alarms.callbacks());
      for (int i = 0; i < 100; ++i) watchdog.set_phase("phase " + std::to_string(i));
      communicator.barrier();
      watchdog.stop();
      EXPECT_TRUE(alarms.reports().empty()) << describe(alarms.reports()[0]);
    });
  }
}

}  // namespace
}  // namespace spillway::test
