// The contract for one rank alone and for ranks that are threads; what threads do when one fails.
#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>

#include "lib/core/error.hpp"
#include "tests/lib/comm/communicator_contract.hpp"
#include "tests/support/thread_ranks.hpp"

namespace spillway::test {
namespace {

class SelfContract : public testing::TestWithParam<ContractCase> {};

TEST_P(SelfContract, holds) { GetParam().run(*comm::make_self_communicator()); }

INSTANTIATE_TEST_SUITE_P(Self, SelfContract, testing::ValuesIn(contract_cases()),
                         [](auto const& each) { return std::string(each.param.name); });

class ThreadContract : public testing::TestWithParam<std::tuple<ContractCase, int>> {};

TEST_P(ThreadContract, holds) {
  auto const [contract_case, ranks] = GetParam();
  run_on_threads(ranks, contract_case.run);
}

INSTANTIATE_TEST_SUITE_P(Threads, ThreadContract,
                         testing::Combine(testing::ValuesIn(contract_cases()),
                                          testing::Values(1, 2, 3, 4)),
                         [](auto const& each) {
                           return std::string(std::get<0>(each.param).name) + "_on_" +
                                  std::to_string(std::get<1>(each.param));
                         });

Fault fault_of(std::exception_ptr const& outcome) {
  try {
    std::rethrow_exception(outcome);
  } catch (Error const& error) {
    return error.fault();
  } catch (std::exception const&) {
    return Fault::internal;
  }
}

TEST(ThreadCommunicator, ranks_that_wait_for_a_failed_one_get_a_peer_error) {
  auto const outcomes = outcomes_on_threads(3, [](comm::Communicator& communicator) {
    communicator.barrier();
    if (communicator.rank() == Rank{1}) throw std::runtime_error("a disk is full");
    for (;;) communicator.barrier();
  });
  ASSERT_TRUE(outcomes[0] && outcomes[1] && outcomes[2]);
  EXPECT_EQ(fault_of(outcomes[0]), Fault::peer);
  EXPECT_THROW(std::rethrow_exception(outcomes[1]), std::runtime_error);
  EXPECT_EQ(fault_of(outcomes[2]), Fault::peer);
}

TEST(ThreadCommunicator, an_abort_reaches_every_rank) {
  auto const outcomes = outcomes_on_threads(3, [](comm::Communicator& communicator) {
    if (communicator.rank() == Rank{2}) communicator.abort(6);
    std::vector<std::byte> data(10);
    communicator.broadcast(data, Rank{2});
  });
  for (auto const& outcome : outcomes) {
    ASSERT_TRUE(outcome);
    EXPECT_EQ(fault_of(outcome), Fault::peer);
  }
}

TEST(ThreadCommunicator, a_rank_that_has_failed_stays_missing_however_often_others_try) {
  auto const outcomes = outcomes_on_threads(3, [](comm::Communicator& communicator) {
    if (communicator.rank() == Rank{0}) return;
    for (int i = 0; i < 5; ++i) EXPECT_THROW(communicator.barrier(), Error);
  });
  for (auto const& outcome : outcomes) EXPECT_FALSE(outcome);
}

TEST(ThreadCommunicator, different_collectives_at_the_same_time_are_an_error_that_names_both) {
  auto const outcomes = outcomes_on_threads(2, [](comm::Communicator& communicator) {
    double const value = 1;
    if (communicator.rank() == Rank{0}) {
      communicator.barrier();
    } else {
      communicator.all_gather_values(std::span(&value, 1));
    }
  });
  ASSERT_TRUE(outcomes[0]);
  try {
    std::rethrow_exception(outcomes[0]);
  } catch (Error const& error) {
    EXPECT_NE(std::string(error.what()).find("barrier"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("all_gather_values"), std::string::npos)
        << error.what();
  }
}

TEST(SelfCommunicatorDeathTest, abort_ends_the_process_with_the_code) {
  EXPECT_EXIT(comm::make_self_communicator()->abort(6), testing::ExitedWithCode(6), "");
}

}  // namespace
}  // namespace spillway::test
