// The lifetime of MPI in this process.
#pragma once

#include <functional>
#include <string>

namespace spillway::comm {

/// MPI is usable while this lives; one a process. Without mpirun it is a run of one rank. Failures
/// of MPI calls then come back as codes. Leaving by an exception does not finalize: that would wait
/// for ranks that may never come.
class MpiRuntime {
 public:
  MpiRuntime();
  ~MpiRuntime();
  MpiRuntime(MpiRuntime const&) = delete;
  MpiRuntime& operator=(MpiRuntime const&) = delete;

  int ranks() const;
  /// False where the library cannot be called from two threads at once.
  bool thread_multiple() const { return thread_multiple_; }

 private:
  int exceptions_at_start_;
  bool thread_multiple_ = false;
};

/// Name and version of the library, for example "Open MPI v4.1.4". Needs no runtime.
std::string mpi_library_version();

using Environment = std::function<char const*(char const*)>;

/// Whether some MPI launcher (mpirun, srun with PMI or PMIx, or anything in a Slurm job step) has
/// started this process. Without one there is one rank, and MPI need not be started, which takes
/// longer than the first steps of a small model.
bool started_by_launcher(Environment const& environment);
bool started_by_launcher();

/// What to tell the user when some launcher has started several processes, but MPI knows of only
/// one: torchrun, srun without PMIx, the mpirun of another MPI. Empty when all is well.
std::string launch_warning(int ranks, Environment const& environment);
/// The same with this process's environment.
std::string launch_warning(int ranks);

}  // namespace spillway::comm
