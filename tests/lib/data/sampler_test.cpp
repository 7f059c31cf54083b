// The order of sequences: a bijection for every size, even in its positions, new in every epoch,
// the same everywhere.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "lib/core/error.hpp"
#include "lib/data/token_source.hpp"

namespace spillway {
namespace {

using data::Sampler;

std::vector<std::int64_t> epoch_order(Sampler const& sampler, std::int64_t epoch) {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < sampler.sequences(); ++i)
    order.push_back(sampler.sequence_at(epoch * sampler.sequences() + i));
  return order;
}

::testing::AssertionResult is_bijection(std::vector<std::int64_t> const& order) {
  std::vector<bool> seen(order.size());
  for (auto index : order) {
    if (index < 0 || index >= static_cast<std::int64_t>(order.size()))
      return testing::AssertionFailure() << index << " of " << order.size();
    if (seen[static_cast<std::size_t>(index)])
      return testing::AssertionFailure() << index << " twice of " << order.size();
    seen[static_cast<std::size_t>(index)] = true;
  }
  return testing::AssertionSuccess();
}

/// Sum of (seen - expected)^2 / expected; its mean is the degrees of freedom, its deviation sqrt(2
/// * them).
double chi_square(std::vector<std::int64_t> const& counts) {
  double total = 0;
  for (auto count : counts) total += static_cast<double>(count);
  double const expected = total / static_cast<double>(counts.size());
  double sum = 0;
  for (auto count : counts)
    sum += (static_cast<double>(count) - expected) * (static_cast<double>(count) - expected) /
           expected;
  return sum;
}

/// Five standard deviations: the seeds are fixed, so the test is too.
void expect_even(std::vector<std::int64_t> const& counts, double degrees) {
  EXPECT_NEAR(chi_square(counts), degrees, 5 * std::sqrt(2 * degrees)) << counts.size();
}

TEST(Sampler, every_size_up_to_three_thousand_is_a_bijection) {
  for (std::int64_t n = 1; n <= 3000; ++n)
    ASSERT_TRUE(is_bijection(epoch_order(Sampler(n, 1, true), 0)));
}

TEST(Sampler, later_epochs_and_other_seeds_are_bijections_too) {
  for (std::int64_t n : {1, 2, 3, 5, 64, 97, 257, 1021})
    for (std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{7}, ~std::uint64_t{0}})
      for (std::int64_t epoch : {1, 2, 1000})
        ASSERT_TRUE(is_bijection(epoch_order(Sampler(n, seed, true), epoch)));
}

TEST(Sampler, a_hundred_thousand_sequences_are_each_read_once) {
  EXPECT_TRUE(is_bijection(epoch_order(Sampler(100'000, 3, true), 5)));
}

TEST(Sampler, every_sequence_is_as_likely_at_every_position) {
  for (std::int64_t n : {2, 3, 4, 5, 7, 8, 16, 17, 31}) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(n * n));
    for (std::uint64_t seed = 0; seed < 4000; ++seed) {
      auto const order = epoch_order(Sampler(n, seed, true), 0);
      for (std::int64_t i = 0; i < n; ++i)
        ++counts[static_cast<std::size_t>(i * n + order[static_cast<std::size_t>(i)])];
    }
    expect_even(counts, static_cast<double>((n - 1) * (n - 1)));
  }
}

TEST(Sampler, epochs_of_one_seed_are_as_even_as_seeds) {
  std::int64_t const n = 12;
  Sampler const sampler(n, 99, true);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(n * n));
  for (std::int64_t epoch = 0; epoch < 4000; ++epoch) {
    auto const order = epoch_order(sampler, epoch);
    for (std::int64_t i = 0; i < n; ++i)
      ++counts[static_cast<std::size_t>(i * n + order[static_cast<std::size_t>(i)])];
  }
  expect_even(counts, static_cast<double>((n - 1) * (n - 1)));
}

TEST(Sampler, neighbours_in_the_order_are_unrelated) {
  std::int64_t const n = 100'000;
  std::vector<std::int64_t> distances(100);
  auto const order = epoch_order(Sampler(n, 5, true), 0);
  for (std::size_t i = 1; i < order.size(); ++i)
    ++distances[static_cast<std::size_t>((order[i] - order[i - 1] + n) % n / (n / 100))];
  expect_even(distances, 99);
}

TEST(Sampler, epochs_and_seeds_differ_from_each_other) {
  std::set<std::vector<std::int64_t>> orders;
  for (std::int64_t epoch = 0; epoch < 50; ++epoch)
    orders.insert(epoch_order(Sampler(100, 1, true), epoch));
  for (std::uint64_t seed = 2; seed < 52; ++seed)
    orders.insert(epoch_order(Sampler(100, seed, true), 0));
  EXPECT_EQ(orders.size(), 100u);
}

TEST(Sampler, the_order_is_not_the_identity) {
  auto const order = epoch_order(Sampler(1000, 1, true), 0);
  int fixed = 0;
  for (std::size_t i = 0; i < order.size(); ++i) fixed += order[i] == static_cast<std::int64_t>(i);
  EXPECT_LT(fixed, 10);  // one is expected
}

TEST(Sampler, the_order_stays_what_it_was_in_earlier_versions) {
  EXPECT_EQ(epoch_order(Sampler(10, 42, true), 0),
            (std::vector<std::int64_t>{3, 1, 6, 2, 9, 0, 4, 5, 8, 7}));
  EXPECT_EQ(epoch_order(Sampler(10, 42, true), 1),
            (std::vector<std::int64_t>{8, 5, 7, 0, 2, 9, 1, 3, 6, 4}));
}

TEST(Sampler, without_shuffling_it_counts_up_and_starts_again) {
  Sampler const sampler(3, 9, false);
  std::vector<std::int64_t> order;
  for (std::int64_t position = 0; position < 7; ++position)
    order.push_back(sampler.sequence_at(position));
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 0}));
}

TEST(Sampler, one_sequence_is_read_again_and_again) {
  Sampler const sampler(1, 9, true);
  for (std::int64_t position : {0, 1, 2, 1'000'000}) EXPECT_EQ(sampler.sequence_at(position), 0);
}

TEST(Sampler, sizes_of_terabytes_of_tokens_work) {
  for (std::int64_t n :
       {(std::int64_t{1} << 40) + 1, (std::int64_t{1} << 62) - 1, std::int64_t{INT64_MAX}}) {
    Sampler const sampler(n, 1, true);
    std::set<std::int64_t> seen;
    for (std::int64_t position = n - 1000; position < n; ++position) {
      auto const index = sampler.sequence_at(position);
      EXPECT_TRUE(index >= 0 && index < n);
      seen.insert(index);
    }
    EXPECT_EQ(seen.size(), 1000u);
    EXPECT_LT(*seen.begin(), n / 20);
    EXPECT_GT(*seen.rbegin(), n - n / 20);
  }
}

TEST(Sampler, no_sequence_at_all_is_refused) {
  for (std::int64_t n : {0, -1}) {
    try {
      Sampler const sampler(n, 1, true);
      FAIL();
    } catch (Error const& error) {
      EXPECT_EQ(error.fault(), Fault::bad_input);
      EXPECT_NE(std::string(error.what()).find("seq_len"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace spillway
