// Cutting and taking turns, without a kernel: requests are completed by hand.
#include "io/uring/dispatcher.hpp"

#include <gtest/gtest.h>

#include <cerrno>

#include "io/file.hpp"
#include "io/uring/scratch.hpp"
#include "lib/core/error.hpp"
#include "tests/io/uring/scratch_directory.hpp"

namespace spillway::io::detail {
namespace {

class DispatcherTest : public testing::Test {
 protected:
  std::shared_ptr<Transfer> push(Dispatcher& dispatcher, Direction direction, std::uint64_t offset,
                                 std::uint64_t bytes) {
    std::span<std::byte> const memory(memory_.get(), bytes);
    auto transfer = std::make_shared<Transfer>(direction, file_, FileOffset{offset}, memory);
    dispatcher.push(transfer);
    return transfer;
  }
  static std::int64_t all_of(Request const& request) { return request.length; }

  File file_ = scratch_file("");  // buffered: alignment 1
  AlignedMemory memory_ = aligned_memory(1 << 20, 4096);
};

TEST_F(DispatcherTest, cuts_a_transfer_into_contiguous_blocks) {
  Dispatcher dispatcher(8, 4096);
  auto const transfer = push(dispatcher, Direction::read, 1000, 10000);
  std::vector<std::array<std::uint64_t, 3>> seen;
  std::vector<Request*> requests;
  while (Request* request = dispatcher.next()) {
    seen.push_back({request->offset, request->length,
                    static_cast<std::uint64_t>(request->data - memory_.get())});
    requests.push_back(request);
  }
  std::vector<std::array<std::uint64_t, 3>> const expected = {
      {1000, 4096, 0}, {5096, 4096, 4096}, {9192, 1808, 8192}};
  EXPECT_EQ(seen, expected);
  for (Request* request : requests) {
    EXPECT_FALSE(transfer->finished());
    EXPECT_FALSE(dispatcher.complete(*request, all_of(*request)));
  }
  EXPECT_TRUE(transfer->finished());
  EXPECT_FALSE(transfer->error);
  EXPECT_EQ(dispatcher.stats().read_bytes, 10000u);
  EXPECT_TRUE(dispatcher.idle());
}

TEST_F(DispatcherTest, never_has_more_in_flight_than_its_depth) {
  Dispatcher dispatcher(3, 4096);
  push(dispatcher, Direction::write, 0, 10 * 4096);
  Request* first = dispatcher.next();
  ASSERT_NE(first, nullptr);
  ASSERT_NE(dispatcher.next(), nullptr);
  ASSERT_NE(dispatcher.next(), nullptr);
  EXPECT_EQ(dispatcher.next(), nullptr);
  EXPECT_FALSE(dispatcher.has_room());
  dispatcher.complete(*first, 4096);
  Request* fourth = dispatcher.next();
  ASSERT_NE(fourth, nullptr);
  EXPECT_EQ(fourth->offset, 3u * 4096);
  EXPECT_EQ(dispatcher.next(), nullptr);
}

TEST_F(DispatcherTest, a_read_is_not_behind_the_writes_that_were_queued_before) {
  Dispatcher dispatcher(1, 4096);
  push(dispatcher, Direction::write, 0, 256 * 4096);
  for (int count = 0; count < 3; ++count) dispatcher.complete(*dispatcher.next(), 4096);
  auto const read = push(dispatcher, Direction::read, 0, 4096);
  // At most one write goes first.
  for (int count = 0; count < 2; ++count) dispatcher.complete(*dispatcher.next(), 4096);
  EXPECT_TRUE(read->finished());
}

TEST_F(DispatcherTest, reads_and_writes_take_turns_and_keep_their_order) {
  Dispatcher dispatcher(8, 4096);
  push(dispatcher, Direction::read, 0, 2 * 4096);
  push(dispatcher, Direction::read, 100 * 4096, 4096);
  push(dispatcher, Direction::write, 50 * 4096, 4096);
  push(dispatcher, Direction::write, 60 * 4096, 4096);
  std::string order;
  std::vector<std::uint64_t> blocks;
  while (Request const* request = dispatcher.next()) {
    order += request->transfer->direction == Direction::read ? 'r' : 'w';
    blocks.push_back(request->offset / 4096);
  }
  EXPECT_EQ(order, "rwrwr");
  EXPECT_EQ(blocks, (std::vector<std::uint64_t>{0, 50, 1, 60, 100}));
}

TEST_F(DispatcherTest, what_remains_of_a_short_transfer_keeps_its_slot) {
  Dispatcher dispatcher(1, 8192);
  auto const transfer = push(dispatcher, Direction::read, 4096, 8192);
  Request* request = dispatcher.next();
  EXPECT_TRUE(dispatcher.complete(*request, -EAGAIN));
  EXPECT_EQ(request->fruitless, 1u);
  EXPECT_TRUE(dispatcher.complete(*request, 3000));
  EXPECT_EQ(request->offset, 7096u);
  EXPECT_EQ(request->length, 5192u);
  EXPECT_EQ(request->data, memory_.get() + 3000);
  EXPECT_EQ(request->fruitless, 0u);
  EXPECT_FALSE(transfer->finished());
  EXPECT_FALSE(dispatcher.complete(*request, 5192));
  EXPECT_TRUE(transfer->finished());
  EXPECT_EQ(dispatcher.stats().retries, 2u);
  EXPECT_EQ(dispatcher.stats().read_bytes, 8192u);
}

TEST_F(DispatcherTest, a_failed_block_ends_its_transfer_when_those_in_flight_are_back) {
  Dispatcher dispatcher(2, 4096);
  auto const failing = push(dispatcher, Direction::write, 0, 100 * 4096);
  auto const behind = push(dispatcher, Direction::write, 0, 4096);
  Request* first = dispatcher.next();
  Request* second = dispatcher.next();
  EXPECT_FALSE(dispatcher.complete(*second, -ENOSPC));
  EXPECT_FALSE(failing->finished());
  Request* other = dispatcher.next();
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(other->transfer, behind);  // none of the other 98 blocks is tried
  EXPECT_FALSE(dispatcher.complete(*first, -EIO));
  EXPECT_TRUE(failing->finished());
  ASSERT_TRUE(failing->error);
  EXPECT_EQ(failing->error->fault(), Fault::no_room);  // the first error counts
  EXPECT_NE(failing->error->problem().find("4096 bytes at offset 4096"), std::string::npos);
  EXPECT_FALSE(dispatcher.complete(*other, 4096));
  EXPECT_FALSE(behind->error);
  EXPECT_TRUE(dispatcher.idle());
}

TEST_F(DispatcherTest, all_transfers_end_when_the_engine_breaks) {
  Dispatcher dispatcher(2, 4096);
  auto const running = push(dispatcher, Direction::write, 0, 4 * 4096);
  auto const waiting = push(dispatcher, Direction::read, 0, 4096 * 2);
  dispatcher.next();
  dispatcher.next();
  dispatcher.fail_all(ENXIO);
  for (auto const& transfer : {running, waiting}) {
    EXPECT_TRUE(transfer->finished());
    ASSERT_TRUE(transfer->error);
    EXPECT_NE(transfer->error->problem().find("ENXIO"), std::string::npos);
  }
  EXPECT_TRUE(dispatcher.idle());
}

TEST_F(DispatcherTest, an_empty_transfer_is_finished_at_once) {
  Dispatcher dispatcher(2, 4096);
  EXPECT_TRUE(push(dispatcher, Direction::read, 0, 0)->finished());
  EXPECT_EQ(dispatcher.next(), nullptr);
}

TEST_F(DispatcherTest, the_age_of_the_oldest_request_is_zero_when_none_is_in_flight) {
  Dispatcher dispatcher(2, 4096);
  push(dispatcher, Direction::read, 0, 4096);
  EXPECT_EQ(dispatcher.stats().oldest_request_s, 0);
  Request* request = dispatcher.next();
  EXPECT_GT(dispatcher.stats().oldest_request_s, 0);
  dispatcher.complete(*request, 4096);
  EXPECT_EQ(dispatcher.stats().oldest_request_s, 0);
}

TEST_F(DispatcherTest, blocks_are_multiples_of_the_alignment_of_a_direct_file) {
  test::ScratchDirectory const directory;
  File const file(directory / "file", Access::write_new);
  std::uint64_t const alignment = file.alignment();
  for (std::uint64_t const block :
       {std::uint64_t{1}, alignment, alignment + alignment / 2, 3 * alignment}) {
    Dispatcher dispatcher(64, block);
    std::span<std::byte> const memory(memory_.get(), 7 * alignment);
    dispatcher.push(std::make_shared<Transfer>(Direction::write, file, FileOffset{0}, memory));
    std::uint64_t sum = 0;
    while (Request const* request = dispatcher.next()) {
      EXPECT_EQ(request->length % alignment, 0u);
      EXPECT_EQ(request->offset, sum);
      sum += request->length;
    }
    EXPECT_EQ(sum, 7 * alignment);
  }
}

TEST_F(DispatcherTest, a_transfer_off_the_alignment_is_refused_by_name) {
  test::ScratchDirectory const directory;
  File const file(directory / "file", Access::write_new);
  if (!file.direct()) {  // then everything is a multiple of the alignment
    EXPECT_EQ(file.alignment(), 1u);
    return;
  }
  auto const problem_of = [&](std::uint64_t offset, std::byte* data,
                              std::uint64_t bytes) -> std::string {
    try {
      Transfer const transfer(Direction::read, file, FileOffset{offset}, {data, bytes});
      return "none";
    } catch (Error const& error) {
      return error.problem();
    }
  };
  EXPECT_TRUE(
      problem_of(1, memory_.get(), 4096).starts_with("offset 1 of a transfer with " + file.path()));
  EXPECT_TRUE(problem_of(0, memory_.get(), 4097).starts_with("size 4097"));
  EXPECT_TRUE(problem_of(0, memory_.get() + 1, 4096).starts_with("address "));
  EXPECT_EQ(problem_of(0, memory_.get(), 65536), "none");
}

}  // namespace
}  // namespace spillway::io::detail
