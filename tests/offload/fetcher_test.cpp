// Order of the fetcher: windows are respected, reads run ahead, failures reach the engine.
#include "offload/fetcher.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "lib/core/error.hpp"

namespace spillway::offload {
namespace {

using train::Fetch;
using train::Use;

/// Writes down what the fetcher asks for; has so many slots.
class Recorder : public TileWork {
 public:
  explicit Recorder(int slots) : free_(slots) {}

  bool issue(WorkItem const& item, bool must) override {
    std::lock_guard const lock(mutex_);
    if (free_ == 0 && !must) return false;
    --free_;
    log_.push_back("issue " + std::to_string(item.fetch) + "." + std::to_string(item.tile));
    return true;
  }
  void complete(WorkItem const& item) override {
    std::lock_guard const lock(mutex_);
    if (item.fetch == failing_) fail(Fault::io, "disk is gone");
    ++free_;
    log_.push_back("complete " + std::to_string(item.fetch) + "." + std::to_string(item.tile));
  }
  std::vector<std::string> log() {
    std::lock_guard const lock(mutex_);
    return log_;
  }
  void fail_at(int fetch) { failing_ = fetch; }

 private:
  std::mutex mutex_;
  std::vector<std::string> log_;
  int free_;
  int failing_ = -1;
};

std::ptrdiff_t place(std::vector<std::string> const& log, std::string const& entry) {
  return std::find(log.begin(), log.end(), entry) - log.begin();
}

TEST(Fetcher, reads_ahead_as_far_as_slots_reach) {
  Recorder recorder(2);
  Fetcher fetcher(recorder);
  std::vector<Fetch> const fetches{{UnitId{0}, Use::update, {}}};
  fetcher.begin(fetches, {{0, 0}, {0, 1}, {0, 2}, {0, 3}});
  fetcher.wait(0);
  fetcher.release(0);
  fetcher.end();
  EXPECT_EQ(recorder.log(), (std::vector<std::string>{"issue 0.0", "issue 0.1", "complete 0.0",
                                                      "issue 0.2", "complete 0.1", "issue 0.3",
                                                      "complete 0.2", "complete 0.3"}));
}

TEST(Fetcher, weights_enter_a_window_only_when_its_last_user_has_left) {
  Recorder recorder(8);
  Fetcher fetcher(recorder);
  std::vector<Fetch> const fetches{{UnitId{0}, Use::weights, {0, 100}},
                                   {UnitId{1}, Use::weights, {100, 100}},
                                   {UnitId{2}, Use::weights, {50, 100}}};
  fetcher.begin(fetches, {{0, 0}, {1, 0}, {2, 0}});
  fetcher.wait(0);
  fetcher.wait(1);
  EXPECT_EQ(place(recorder.log(), "issue 2.0"), std::ssize(recorder.log()));
  fetcher.release(0);
  EXPECT_EQ(place(recorder.log(), "issue 2.0"), std::ssize(recorder.log()));
  fetcher.release(1);
  fetcher.wait(2);
  EXPECT_EQ(recorder.log().back(), "complete 2.0");
  fetcher.release(2);
  fetcher.end();
}

TEST(Fetcher, an_update_is_read_ahead_of_its_window_but_completes_after_it_is_free) {
  Recorder recorder(8);
  Fetcher fetcher(recorder);
  std::vector<Fetch> const fetches{{UnitId{0}, Use::update, {0, 100}},
                                   {UnitId{1}, Use::update, {0, 100}}};
  fetcher.begin(fetches, {{0, 0}, {1, 0}});
  fetcher.wait(0);
  EXPECT_LT(place(recorder.log(), "issue 1.0"), std::ssize(recorder.log()));
  EXPECT_EQ(place(recorder.log(), "complete 1.0"), std::ssize(recorder.log()));
  fetcher.release(0);
  fetcher.wait(1);
  fetcher.release(1);
  fetcher.end();
}

TEST(Fetcher, weights_are_not_read_before_the_update_of_their_own_unit_is_complete) {
  Recorder recorder(8);
  Fetcher fetcher(recorder);
  std::vector<Fetch> const fetches{{UnitId{0}, Use::update, {0, 8}},
                                   {UnitId{1}, Use::update, {8, 8}},
                                   {UnitId{1}, Use::weights, {16, 8}}};
  fetcher.begin(fetches, {{0, 0}, {1, 0}, {1, 1}, {2, 0}, {2, 1}});
  for (int fetch : {0, 1, 2}) {
    fetcher.wait(fetch);
    fetcher.release(fetch);
  }
  fetcher.end();
  EXPECT_LT(place(recorder.log(), "complete 1.1"), place(recorder.log(), "issue 2.0"));
}

TEST(Fetcher, a_failure_reaches_who_waits_and_who_ends_the_pass) {
  Recorder recorder(2);
  recorder.fail_at(1);
  Fetcher fetcher(recorder);
  std::vector<Fetch> const fetches{{UnitId{0}, Use::update, {}}, {UnitId{1}, Use::update, {}}};
  fetcher.begin(fetches, {{0, 0}, {1, 0}});
  try {
    fetcher.wait(1);
    FAIL() << "the failure was lost";
  } catch (Error const& error) {
    EXPECT_EQ(error.fault(), Fault::io);
    EXPECT_STREQ(error.what(), "disk is gone");
  }
  EXPECT_THROW(fetcher.end(), Error);
}

TEST(Fetcher, can_be_destroyed_in_the_middle_of_a_pass) {
  Recorder recorder(2);
  {
    Fetcher fetcher(recorder);
    std::vector<Fetch> const fetches{{UnitId{0}, Use::weights, {0, 8}},
                                     {UnitId{1}, Use::weights, {0, 8}}};
    fetcher.begin(fetches, {{0, 0}, {1, 0}});
    fetcher.wait(0);
  }
  EXPECT_EQ(recorder.log().back(), "complete 0.0");
}

}  // namespace
}  // namespace spillway::offload
