// Launchers that start processes which MPI does not join (USERS: RANK and WORLD_SIZE without MPI).
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>

#include "lib/comm/mpi/mpi_runtime.hpp"

namespace spillway::comm {
namespace {

std::string warning_with(int ranks, std::map<std::string, std::string> const& variables) {
  return launch_warning(ranks, [&](char const* name) -> char const* {
    auto const entry = variables.find(name);
    return entry == variables.end() ? nullptr : entry->second.c_str();
  });
}

TEST(LaunchWarning, torchrun_is_told_to_use_mpirun) {
  std::string const text =
      warning_with(1, {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}});
  EXPECT_NE(text.find("torchrun"), std::string::npos) << text;
  EXPECT_NE(text.find("WORLD_SIZE=4"), std::string::npos) << text;
  EXPECT_NE(text.find("mpirun"), std::string::npos) << text;
}

TEST(LaunchWarning, srun_without_pmix_is_told_to_add_it) {
  std::string const text = warning_with(1, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}});
  EXPECT_NE(text.find("--mpi=pmix"), std::string::npos) << text;
}

TEST(LaunchWarning, the_mpirun_of_another_library_is_named) {
  std::string const text = warning_with(1, {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}});
  EXPECT_NE(text.find("another MPI"), std::string::npos) << text;
}

TEST(LaunchWarning, nothing_is_said_where_all_is_well) {
  EXPECT_EQ(warning_with(1, {}), "");
  EXPECT_EQ(warning_with(1, {{"RANK", "0"}, {"WORLD_SIZE", "1"}}), "");
  EXPECT_EQ(warning_with(1, {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}), "");
  EXPECT_EQ(warning_with(1, {{"WORLD_SIZE", "4"}}), "") << "set by hand for something else";
  EXPECT_EQ(warning_with(4, {{"RANK", "1"}, {"WORLD_SIZE", "4"}}), "") << "mpirun inside torchrun";
}

TEST(MpiLibrary, tells_its_name) {
  EXPECT_NE(mpi_library_version().find("MPI"), std::string::npos);
}

TEST(StartedByLauncher, knows_mpirun_srun_and_their_like_and_a_plain_start) {
  for (char const* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "SLURM_STEP_ID"})
    EXPECT_TRUE(started_by_launcher([&](char const* asked) -> char const* {
      return std::string_view(asked) == name ? "0" : nullptr;
    })) << name;
  EXPECT_FALSE(started_by_launcher([](char const* asked) -> char const* {
    return std::string_view(asked) == "SLURM_JOB_ID" ? "7" : nullptr;
  }));
}

}  // namespace
}  // namespace spillway::comm
