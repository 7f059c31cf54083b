// What results of the kernel mean: all cases, with hand-made numbers.
#include "io/uring/completion.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace spillway::io::detail {
namespace {

Attempt attempt(Direction direction, std::uint64_t length, std::uint32_t alignment = 512,
                std::uint32_t fruitless = 0) {
  return {direction, alignment, length, fruitless};
}

TEST(CompletionTest, all_bytes_moved_is_done) {
  for (Direction const direction : {Direction::read, Direction::write}) {
    Completion const completion = judge(attempt(direction, 8192), 8192);
    EXPECT_EQ(completion.next, Next::done);
    EXPECT_EQ(completion.moved, 8192u);
  }
}

TEST(CompletionTest, a_short_transfer_goes_on_behind_its_last_whole_block) {
  EXPECT_EQ(judge(attempt(Direction::read, 8192), 1024).moved, 1024u);
  EXPECT_EQ(judge(attempt(Direction::read, 8192), 1500).moved, 1024u);
  EXPECT_EQ(judge(attempt(Direction::write, 8192, 4096), 8191).moved, 4096u);
  EXPECT_EQ(judge(attempt(Direction::write, 8192, 1), 8191).moved, 8191u);
  EXPECT_EQ(judge(attempt(Direction::read, 8192), 1500).next, Next::again);
}

TEST(CompletionTest, eagain_and_eintr_try_again) {
  for (int const error : {EAGAIN, EINTR}) {
    Completion const completion = judge(attempt(Direction::read, 8192, 512, 100), -error);
    EXPECT_EQ(completion.next, Next::again);
    EXPECT_EQ(completion.moved, 0u);
  }
}

TEST(CompletionTest, eagain_for_ever_is_given_up) {
  EXPECT_EQ(judge(attempt(Direction::read, 8192, 512, attempts_max - 2), -EAGAIN).next,
            Next::again);
  Completion const last = judge(attempt(Direction::read, 8192, 512, attempts_max - 1), -EAGAIN);
  EXPECT_EQ(last.next, Next::failed);
  EXPECT_EQ(last.error, EAGAIN);
}

TEST(CompletionTest, other_errors_fail_at_once) {
  for (int const error : {EIO, ENOSPC, EDQUOT, EBADF, EINVAL}) {
    Completion const completion = judge(attempt(Direction::write, 8192), -error);
    EXPECT_EQ(completion.next, Next::failed);
    EXPECT_EQ(completion.error, error);
    EXPECT_EQ(completion.moved, 0u);
  }
}

TEST(CompletionTest, a_read_of_nothing_or_of_less_than_a_block_is_the_end_of_the_file) {
  EXPECT_EQ(judge(attempt(Direction::read, 8192), 0).next, Next::failed);
  EXPECT_EQ(judge(attempt(Direction::read, 8192), 0).error, end_of_file);
  EXPECT_EQ(judge(attempt(Direction::read, 8192), 511).next, Next::failed);
  EXPECT_EQ(judge(attempt(Direction::read, 8192), 511).error, end_of_file);
}

TEST(CompletionTest, a_write_of_nothing_is_tried_again_and_given_up_as_eio) {
  EXPECT_EQ(judge(attempt(Direction::write, 8192), 0).next, Next::again);
  Completion const last = judge(attempt(Direction::write, 8192, 512, attempts_max - 1), 0);
  EXPECT_EQ(last.next, Next::failed);
  EXPECT_EQ(last.error, EIO);
}

TEST(CompletionTest, more_bytes_than_asked_for_fail) {
  EXPECT_EQ(judge(attempt(Direction::read, 8192), 8193).next, Next::failed);
}

TEST(CompletionTest, the_error_carries_path_offset_length_and_errno) {
  std::string const path = "/data/swap.0";
  Error const error = transfer_error({Direction::write, path, 1048576, 4096, -1}, EIO);
  EXPECT_EQ(error.problem(),
            "cannot write 4096 bytes at offset 1048576 of /data/swap.0 (Input/output error (EIO)). "
            "Is the disk healthy?");
  EXPECT_EQ(error.fault(), Fault::io);
}

TEST(CompletionTest, lack_of_room_has_a_fault_of_its_own) {
  std::string const path = "x";
  for (int const code : {ENOSPC, EDQUOT, EFBIG})
    EXPECT_EQ(transfer_error({Direction::write, path, 0, 1, -1}, code).fault(), Fault::no_room);
  for (int const code : {EIO, EBADF, EINVAL, EAGAIN, end_of_file})
    EXPECT_EQ(transfer_error({Direction::read, path, 0, 1, -1}, code).fault(), Fault::io);
}

}  // namespace
}  // namespace spillway::io::detail
