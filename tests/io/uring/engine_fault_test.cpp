// Faults in the middle of transfers, on both engines: what ends inside and what reaches the caller.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>

#include "io/uring/choose_engine.hpp"
#include "lib/core/error.hpp"
#include "tests/io/uring/engine_fixture.hpp"

namespace spillway::io {
namespace {

using detail::Request;
using test::FaultPlan;
using test::make_fault_engine;

class EngineFaultTest : public testing::TestWithParam<EngineKind> {
 protected:
  std::unique_ptr<Engine> engine(FaultPlan const& plan, std::uint32_t depth = 8) const {
    return make_fault_engine(plan, {depth, 4096, {}}, GetParam());
  }
  /// What a write and a read of 512 KiB gave back.
  bool survives(Engine& engine) const {
    Memory const written(512 << 10, 1);
    Memory const read(512 << 10);
    engine.write(file_, FileOffset{0}, written.span()).wait();
    engine.read(file_, FileOffset{0}, read.span()).wait();
    return read.copy() == written.copy();
  }
  std::string problem(Engine& engine, Direction direction, Fault expected) const {
    Memory const memory(512 << 10);
    try {
      (direction == Direction::read ? engine.read(file_, FileOffset{0}, memory.span())
                                    : engine.write(file_, FileOffset{0}, memory.span()))
          .wait();
    } catch (Error const& error) {
      EXPECT_EQ(error.fault(), expected);
      return error.problem();
    }
    return "none";
  }

  File file_ = detail::scratch_file(std::filesystem::temp_directory_path());
};

TEST_P(EngineFaultTest, one_in_a_hundred_eagain_is_never_seen) {
  auto const engine = this->engine({.again = 0.01});
  EXPECT_TRUE(survives(*engine));
  EXPECT_GT(engine->stats().retries, 0u);
}

TEST_P(EngineFaultTest, a_hundred_eagain_in_a_row_are_never_seen) {
  auto const engine = this->engine({.shot = FaultPlan::Shot{Direction::read, 1, 100, EAGAIN}}, 1);
  EXPECT_TRUE(survives(*engine));
  EXPECT_EQ(engine->stats().retries, 100u);
  EXPECT_EQ(engine->stats().read_bytes, 512u << 10);
}

TEST_P(EngineFaultTest, eagain_for_ever_is_given_up) {
  auto const engine =
      this->engine({.shot = FaultPlan::Shot{.direction = Direction::write, .error = EAGAIN}});
  std::string const text = problem(*engine, Direction::write, Fault::io);
  EXPECT_NE(text.find("EAGAIN"), std::string::npos) << text;
}

TEST_P(EngineFaultTest, interrupted_and_short_transfers_are_never_seen) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    auto const engine =
        make_fault_engine({.seed = seed, .again = 0.2, .interrupted = 0.2, .shortened = 0.5},
                          {8, 64 << 10, {}}, GetParam());
    EXPECT_TRUE(survives(*engine)) << "seed " << seed;
    EXPECT_GT(engine->stats().retries, 0u);
    EXPECT_EQ(engine->stats().written_bytes, 512u << 10);
  }
}

TEST_P(EngineFaultTest, every_error_reaches_the_caller_with_its_place) {
  struct {
    int error;
    char const* symbol;
    Fault fault;
  } const cases[] = {{EIO, "EIO", Fault::io},
                     {ENOSPC, "ENOSPC", Fault::no_room},
                     {EDQUOT, "EDQUOT", Fault::no_room},
                     {EINVAL, "EINVAL", Fault::io}};
  for (auto const& [error, symbol, fault] : cases) {
    auto const engine = this->engine({.shot = FaultPlan::Shot{Direction::write, 5, 5, error}}, 1);
    std::string const text = problem(*engine, Direction::write, fault);
    EXPECT_TRUE(text.starts_with("cannot write 4096 bytes at offset 16384 of " + file_.path()))
        << text;
    EXPECT_NE(text.find(symbol), std::string::npos) << text;
    EXPECT_TRUE(survives(*engine));  // the next transfer is well again
  }
}

TEST_P(EngineFaultTest, a_flipped_bit_is_one_bit_in_one_read) {
  auto const engine = this->engine({.flipped_read = 3}, 1);
  Memory const written(512 << 10, 1);
  Memory const read(512 << 10);
  engine->write(file_, FileOffset{0}, written.span()).wait();
  engine->read(file_, FileOffset{0}, read.span()).wait();
  int flipped = 0;
  for (std::size_t index = 0; index < written.span().size(); ++index)
    flipped += std::popcount(std::to_integer<unsigned>(read.span()[index] ^ written.span()[index]));
  EXPECT_EQ(flipped, 1);
  EXPECT_NE(read.span()[2 * 4096 + 2048], written.span()[2 * 4096 + 2048]);
}

/// Holds back all results until opened, and notes the order in which requests end.
class Gate {
 public:
  std::int64_t pass(Request const& request, std::int64_t result) {
    std::unique_lock lock(mutex_);
    waiting_ = true;
    condition_.notify_all();
    condition_.wait(lock, [this] { return open_; });
    order_ += request.transfer->direction == Direction::read ? 'r' : 'w';
    return result;
  }
  void wait_until_used() {
    std::unique_lock lock(mutex_);
    condition_.wait(lock, [this] { return waiting_; });
  }
  void open() {
    std::lock_guard const lock(mutex_);
    open_ = true;
    condition_.notify_all();
  }
  void close() {
    std::lock_guard const lock(mutex_);
    open_ = false;
    waiting_ = false;
    order_.clear();
  }
  std::string order() {
    std::lock_guard const lock(mutex_);
    return order_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  bool open_ = true;  // the self-test of the ring passes
  bool waiting_ = false;
  std::string order_;
};

TEST_P(EngineFaultTest, a_read_overtakes_queued_writes_and_is_seen_while_it_waits) {
  Gate gate;
  auto const engine = detail::make_engine(
      GetParam(), {1, 4096, {}}, "",
      [&gate](Request const& request, std::int64_t result) { return gate.pass(request, result); });
  Memory const memory(512 << 10, 1);
  engine->write(file_, FileOffset{0}, memory.part(0, 4096)).wait();
  EXPECT_EQ(engine->stats().oldest_request_s, 0);
  gate.close();
  Ticket write = engine->write(file_, FileOffset{0}, memory.span());  // 128 requests
  gate.wait_until_used();
  Ticket read = engine->read(file_, FileOffset{0}, memory.part(0, 4096));
  EXPECT_FALSE(write.ready());
  EXPECT_FALSE(read.ready());
  EXPECT_GT(engine->stats().oldest_request_s, 0);
  gate.open();
  write.wait();
  read.wait();
  EXPECT_EQ(gate.order().size(), 129u);
  EXPECT_LE(gate.order().find('r'), 2u) << gate.order();
}

INSTANTIATE_TEST_SUITE_P(Engines, EngineFaultTest,
                         testing::Values(EngineKind::uring, EngineKind::threads),
                         [](auto const& kind) {
                           return kind.param == EngineKind::uring ? "uring" : "threads";
                         });

}  // namespace
}  // namespace spillway::io
