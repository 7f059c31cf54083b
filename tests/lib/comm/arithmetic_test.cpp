// Chunks and the sum in rank order.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "lib/comm/chunks.hpp"
#include "lib/comm/rank_order_sum.hpp"

namespace spillway::comm {
namespace {

TEST(Chunks, nothing_is_no_chunk) { EXPECT_EQ(Chunks(0, 10).count(), 0U); }

TEST(Chunks, the_last_one_holds_the_rest) {
  Chunks const chunks(25, 10);
  ASSERT_EQ(chunks.count(), 3U);
  EXPECT_EQ(chunks[2].offset, 20U);
  EXPECT_EQ(chunks[2].size, 5U);
  EXPECT_EQ(Chunks(30, 10).count(), 3U);
  EXPECT_EQ(Chunks(30, 10)[2].size, 10U);
}

TEST(Chunks, more_than_31_bits_of_bytes_become_messages_that_mpi_can_count) {
  // 5 GiB and 3 bytes; by hand: five whole messages and one of three bytes.
  Chunks const chunks(5'368'709'123, message_bytes_max);
  ASSERT_EQ(chunks.count(), 6U);
  std::uint64_t next = 0;
  for (std::uint64_t i = 0; i < chunks.count(); ++i) {
    EXPECT_EQ(chunks[i].offset, next);
    EXPECT_LE(chunks[i].size, static_cast<std::uint64_t>(std::numeric_limits<int>::max()));
    next += chunks[i].size;
  }
  EXPECT_EQ(next, 5'368'709'123U);
  EXPECT_EQ(chunks[5].offset, 5'368'709'120U);
  EXPECT_EQ(chunks[5].size, 3U);
}

TEST(Chunks, sizes_near_the_end_of_64_bits_do_not_overflow) {
  std::uint64_t const most = std::numeric_limits<std::uint64_t>::max();
  Chunks const chunks(most, most - 1);
  ASSERT_EQ(chunks.count(), 2U);
  EXPECT_EQ(chunks[1].size, 1U);
}

TEST(RankOrderSum, rounds_after_each_rank) {
  // 2^24 + 1 rounds to 2^24 in fp32, so the order decides: by hand 2^24, 2^24 + 2, 2.
  std::vector<float> const a{16777216.0F, 16777216.0F, 1.0F};
  std::vector<float> const b{1.0F, 2.0F, -16777216.0F};
  std::vector<float> const c{1.0F, 0.0F, 16777217.0F};
  std::vector<float> result(3);
  sum_in_rank_order(std::array{a.data(), b.data(), c.data()}, result);
  EXPECT_EQ(result, (std::vector<float>{16777216.0F, 16777218.0F, 1.0F}));
}

TEST(RankOrderSum, writes_over_any_of_its_terms) {
  for (int target = 0; target < 3; ++target) {
    std::array<std::vector<float>, 3> terms;
    for (std::size_t t = 0; t < 3; ++t) {
      for (int i = 0; i < 2500; ++i)
        terms[t].push_back(static_cast<float>(i) + static_cast<float>(t));
    }
    auto& result = terms[static_cast<std::size_t>(target)];
    sum_in_rank_order(
        std::array<float const*, 3>{terms[0].data(), terms[1].data(), terms[2].data()}, result);
    for (int i = 0; i < 2500; ++i)
      ASSERT_EQ(result[static_cast<std::size_t>(i)], static_cast<float>(3 * i + 3));
  }
}

TEST(RankOrderSum, keeps_negative_zero_and_passes_nan_on) {
  std::vector<float> const a{-0.0F, std::numeric_limits<float>::quiet_NaN()};
  std::vector<float> const b{-0.0F, 1.0F};
  std::vector<float> result(2);
  sum_in_rank_order(std::array{a.data(), b.data()}, result);
  EXPECT_TRUE(std::signbit(result[0]));
  EXPECT_TRUE(std::isnan(result[1]));
}

}  // namespace
}  // namespace spillway::comm
