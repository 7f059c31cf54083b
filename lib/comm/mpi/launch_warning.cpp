// Finds launchers that have started several processes which MPI does not know as one run.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>

#include "lib/comm/mpi/mpi_runtime.hpp"

namespace spillway::comm {
namespace {

struct Launcher {
  char const* rank_name;
  char const* count_name;
  char const* who;
  char const* advice;
};

// The most telling first: inside a Slurm job mpirun and torchrun leave Slurm's variables in place.
constexpr std::array<Launcher, 4> launchers{{
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun",
     "Was the program built with another MPI library than that mpirun's?"},
    {"RANK", "WORLD_SIZE", "torchrun or a launcher like it",
     "Start with mpirun -np N or srun --mpi=pmix instead?"},
    {"PMI_RANK", "PMI_SIZE", "the mpirun of another MPI library",
     "Use the mpirun of the library that the program was built with?"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun",
     "Add --mpi=pmix (srun --mpi=list shows what there is)?"},
}};

// Set by Open MPI, by PMIx servers, by PMI-1 and PMI-2 (MPICH, Intel MPI, srun), by Slurm's steps.
constexpr char const* launcher_variables[] = {"OMPI_COMM_WORLD_SIZE",
                                              "OMPI_COMM_WORLD_RANK",
                                              "PMIX_RANK",
                                              "PMIX_NAMESPACE",
                                              "PMI_RANK",
                                              "PMI_SIZE",
                                              "PMI_FD",
                                              "MPI_LOCALRANKID",
                                              "SLURM_STEP_ID"};

}  // namespace

std::string launch_warning(int ranks, Environment const& environment) {
  if (ranks != 1) return {};
  for (Launcher const& launcher : launchers) {
    char const* const rank = environment(launcher.rank_name);
    char const* const count = environment(launcher.count_name);
    if (rank == nullptr || count == nullptr || std::strtol(count, nullptr, 10) < 2) continue;
    return fmt::format(
        "each process of this launch is a run of its own ({} has set {}={}, but MPI knows one "
        "rank). {}",
        launcher.who, launcher.count_name, count, launcher.advice);
  }
  return {};
}

bool started_by_launcher(Environment const& environment) {
  return std::any_of(std::begin(launcher_variables), std::end(launcher_variables),
                     [&](char const* name) { return environment(name) != nullptr; });
}

bool started_by_launcher() {
  return started_by_launcher([](char const* name) { return std::getenv(name); });
}

std::string launch_warning(int ranks) {
  return launch_warning(ranks, [](char const* name) { return std::getenv(name); });
}

}  // namespace spillway::comm
