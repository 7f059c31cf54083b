// The contract for MPI, by shared memory and by messages, with ample and with little staging.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "lib/core/error.hpp"
#include "tests/lib/comm/communicator_contract.hpp"

namespace spillway::test {
namespace {

using comm::MpiOptions;
using comm::NodeMemory;

struct Carrier {
  char const* name;
  MpiOptions options;
};

std::vector<Carrier> carriers() {
  return {
      {"shared_memory", {}},
      {"little_shared_memory", {.staging_bytes = 100'000, .node_memory = NodeMemory::use}},
      {"messages", {.node_memory = NodeMemory::avoid}},
      {"messages_with_little_staging", {.staging_bytes = 5000, .node_memory = NodeMemory::avoid}},
  };
}

class MpiContract : public testing::TestWithParam<std::tuple<ContractCase, Carrier>> {};

TEST_P(MpiContract, holds) {
  auto const& [contract_case, carrier] = GetParam();
  contract_case.run(*comm::make_mpi_communicator(carrier.options));
}

INSTANTIATE_TEST_SUITE_P(Mpi, MpiContract,
                         testing::Combine(testing::ValuesIn(contract_cases()),
                                          testing::ValuesIn(carriers())),
                         [](auto const& each) {
                           return std::string(std::get<0>(each.param).name) + "_by_" +
                                  std::get<1>(each.param).name;
                         });

std::string memory_map() {
  std::ifstream file("/proc/self/maps");
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

int mapped_segments() {
  int count = 0;
  std::string const map = memory_map();
  for (auto at = map.find("/spillway-"); at != std::string::npos;
       at = map.find("/spillway-", at + 1))
    ++count;
  return count;
}

TEST(MpiCommunicator, ranks_of_one_host_share_a_segment_that_leaves_no_name_behind) {
  int const before = mapped_segments();
  auto const communicator = comm::make_mpi_communicator();
  EXPECT_EQ(mapped_segments() - before, communicator->size() > 1 ? 1 : 0);
  communicator->barrier();
  for (auto const& entry : std::filesystem::directory_iterator("/dev/shm"))
    EXPECT_FALSE(
        entry.path().filename().string().starts_with("spillway-" + std::to_string(::getpid())));
}

TEST(MpiCommunicator, messages_need_no_segment) {
  int const before = mapped_segments();
  auto const communicator = comm::make_mpi_communicator({.node_memory = NodeMemory::avoid});
  EXPECT_EQ(mapped_segments(), before);
}

TEST(MpiCommunicator, staging_without_room_for_every_rank_is_refused) {
  MpiOptions const options{.staging_bytes = 100, .node_memory = NodeMemory::avoid};
  if (comm::make_mpi_communicator()->size() == 1) {
    EXPECT_NO_THROW(comm::make_mpi_communicator(options));
  } else {
    EXPECT_THROW(comm::make_mpi_communicator(options), Error);
  }
}

}  // namespace
}  // namespace spillway::test
