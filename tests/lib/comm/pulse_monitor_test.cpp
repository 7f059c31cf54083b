// Who is dead and who is only slow, with times made up.
#include "lib/comm/pulse_monitor.hpp"

#include <gtest/gtest.h>

namespace spillway::comm {
namespace {

using std::chrono::milliseconds;
using Time = PulseMonitor::Time;

Time at(double seconds) { return Time{} + milliseconds(static_cast<long>(1000 + seconds * 1000)); }

class PulseMonitorTest : public testing::Test {
 protected:
  /// Rounds of the watching thread from `from` to `to`; the ranks in `beating` beat at each.
  std::vector<PeerReport> rounds(double from, double to, std::vector<int> const& beating) {
    std::vector<PeerReport> reports;
    for (double time = from; time <= to; time += 0.5) {
      monitor_.awake(at(time));
      for (int const rank : beating)
        monitor_.heard(Rank{rank}, {"phase", time - phase_start_}, at(time));
      for (PeerReport& report : monitor_.due(at(time))) reports.push_back(std::move(report));
    }
    return reports;
  }

  WatchdogOptions options_{.stall = milliseconds(60'000)};
  double phase_start_ = 0;
  PulseMonitor monitor_{{Rank{1}, Rank{2}}, options_, at(0)};
};

TEST_F(PulseMonitorTest, peers_that_beat_raise_no_alarm) {
  EXPECT_TRUE(rounds(0, 59, {1, 2}).empty());
}

TEST_F(PulseMonitorTest, a_silent_peer_is_reported_once_after_the_timeout) {
  EXPECT_TRUE(rounds(0, 5, {1, 2}).empty());
  EXPECT_TRUE(rounds(5.5, 14.5, {2}).empty());
  auto const reports = rounds(15, 40, {2});
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].rank, Rank{1});
  EXPECT_EQ(reports[0].alarm, Alarm::silent);
  EXPECT_DOUBLE_EQ(reports[0].seconds, 10.0);
  EXPECT_EQ(reports[0].last.phase, "phase");
}

TEST_F(PulseMonitorTest, a_peer_that_never_beats_is_reported_too) {
  auto const reports = rounds(0, 10, {2});
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].rank, Rank{1});
}

TEST_F(PulseMonitorTest, a_closed_connection_is_reported_after_the_grace) {
  rounds(0, 3, {1, 2});
  monitor_.closed(Rank{2}, at(3));
  EXPECT_TRUE(rounds(3.5, 3.5, {1}).empty());
  auto const reports = rounds(4, 30, {1});
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].rank, Rank{2});
  EXPECT_EQ(reports[0].alarm, Alarm::closed);
  EXPECT_DOUBLE_EQ(reports[0].seconds, 1.0);
}

TEST_F(PulseMonitorTest, a_peer_that_said_goodbye_is_not_missed) {
  rounds(0, 3, {1, 2});
  monitor_.departed(Rank{2});
  monitor_.closed(Rank{2}, at(3));
  EXPECT_TRUE(rounds(3.5, 50, {1}).empty());
}

TEST_F(PulseMonitorTest, a_suspended_job_raises_no_alarm_when_it_goes_on) {
  rounds(0, 3, {1, 2});
  // Nobody runs from 3 to 100; this thread is the first to wake up.
  phase_start_ = 100;
  EXPECT_TRUE(rounds(100, 109, {}).empty());
  EXPECT_TRUE(rounds(109.5, 111, {1, 2}).empty());
}

TEST_F(PulseMonitorTest, a_peer_that_dies_during_a_suspension_is_still_found) {
  rounds(0, 3, {1, 2});
  phase_start_ = 100;
  auto const reports = rounds(100, 110, {1});
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].rank, Rank{2});
  EXPECT_DOUBLE_EQ(reports[0].seconds, 10.0);
}

TEST_F(PulseMonitorTest, a_connection_that_closed_in_a_suspension_gets_its_grace_again) {
  rounds(0, 3, {1, 2});
  monitor_.closed(Rank{2}, at(3));
  phase_start_ = 100;
  EXPECT_TRUE(rounds(100, 100.5, {1}).empty());
  EXPECT_EQ(rounds(101, 101, {1}).size(), 1U);
}

TEST_F(PulseMonitorTest, a_little_lateness_does_not_restart_the_clocks) {
  rounds(0, 3, {1, 2});
  monitor_.awake(at(8));  // 5 s: as late as may be with beats each 0.5 s and a timeout of 10 s
  EXPECT_EQ(rounds(8.5, 13.5, {2}).size(), 1U);
}

TEST_F(PulseMonitorTest, a_phase_that_lasts_too_long_is_reported_once_and_again_when_it_recurs) {
  EXPECT_TRUE(rounds(0, 59.5, {1, 2}).empty());
  auto const reports = rounds(60, 80, {1, 2});
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_EQ(reports[0].alarm, Alarm::stalled);
  EXPECT_DOUBLE_EQ(reports[0].seconds, 60.0);
  phase_start_ = 80;
  EXPECT_TRUE(rounds(80.5, 139.5, {1, 2}).empty());
  EXPECT_EQ(rounds(140, 141, {1, 2}).size(), 2U);
}

TEST(PulseMonitor, stalls_are_nobodys_business_by_default) {
  PulseMonitor monitor({Rank{1}}, {}, at(0));
  monitor.heard(Rank{1}, {"phase", 1e6}, at(0.5));
  EXPECT_TRUE(monitor.due(at(0.5)).empty());
}

TEST(PeerReport, names_rank_host_phase_and_oldest_request) {
  PeerReport report{Rank{3},
                    "node7",
                    Alarm::silent,
                    10.2,
                    {"step 12, backward of block.3", 14.0, "read of 1 MiB of swap-3", 12.13}};
  std::string const silent = describe(report);
  for (char const* part : {"rank 3", "node7", "10.2 s", "step 12, backward of block.3", "14.0 s",
                           "read of 1 MiB of swap-3", "12.1 s"})
    EXPECT_NE(silent.find(part), std::string::npos) << part << " in: " << silent;
  report.alarm = Alarm::closed;
  EXPECT_NE(describe(report).find("killed"), std::string::npos);
  report.alarm = Alarm::stalled;
  EXPECT_NE(describe(report).find("alive"), std::string::npos);
  report.last = {};
  report.host.clear();
  report.alarm = Alarm::silent;
  EXPECT_NE(describe(report).find("before its first phase"), std::string::npos);
}

}  // namespace
}  // namespace spillway::comm
