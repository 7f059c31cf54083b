// What doctor says of processor, memory, limits, devices and launcher.
#include <fmt/core.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

#include "app/findings.hpp"
#include "app/system_files.hpp"
#include "lib/comm/mpi/mpi_runtime.hpp"
#include "lib/core/bytes.hpp"
#include "lib/device/device.hpp"

namespace spillway::app {
namespace {

constexpr char const* kUnknown = "not available";

void examine_features(Findings& findings) {
  std::string const flags =
      fmt::format(" {} ", system_value("/proc/cpuinfo", "flags").value_or(""));
  constexpr std::pair<char const*, char const*> kFeatures[] = {{"AVX2", " avx2 "},
                                                               {"AVX-512", " avx512f "},
                                                               {"AVX512_BF16", " avx512_bf16 "},
                                                               {"AMX BF16", " amx_bf16 "}};
  for (auto const& [name, flag] : kFeatures) {
    bool const present = flags.find(flag) != std::string::npos;
    findings.push_back({"cpu", name, present ? "yes" : "no"});
  }
}

void examine_processors(Findings& findings) {
  long const online = ::sysconf(_SC_NPROCESSORS_ONLN);
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<int> allowed;
  if (::sched_getaffinity(0, sizeof mask, &mask) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &mask)) allowed.push_back(cpu);
  findings.push_back({"cpu", "processors", fmt::format("{} online", online)});
  Finding usable{"cpu", "affinity", fmt::format("{} ({})", allowed.size(), ranges_text(allowed))};
  if (static_cast<long>(allowed.size()) < online) {
    usable.grade = Grade::warning;
    usable.advice =
        "this process may not use all processors; with mpirun try --bind-to none or "
        "--map-by ppr:N:node:pe=M, with srun --cpus-per-task=M";
  }
  findings.push_back(usable);
}

std::string kib_value(char const* key) {
  auto const value = system_value("/proc/meminfo", key);
  if (!value) return kUnknown;
  return format_bytes(std::strtoull(value->c_str(), nullptr, 10) * 1024);
}

std::string limit_text(rlim_t limit) {
  return limit == RLIM_INFINITY ? "unlimited" : format_bytes(limit);
}

/// CAP_IPC_LOCK is bit 14 of the effective capabilities.
bool may_lock_any_memory() {
  auto const mask = system_value("/proc/self/status", "CapEff");
  return mask && (std::strtoull(mask->c_str(), nullptr, 16) >> 14 & 1) != 0;
}

void examine_memory_lock(Findings& findings) {
  // What a default ring registers: 32 requests of 1 MiB, doubled because buffers that are not
  // aligned count twice.
  constexpr std::uint64_t kNeed = std::uint64_t{64} << 20;
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  Finding finding{
      "limits", "locked memory",
      fmt::format("{} (hard {}); registering buffers needs about {}", limit_text(limit.rlim_cur),
                  limit_text(limit.rlim_max), format_bytes(kNeed))};
  if (may_lock_any_memory())
    finding.value += "; this user is not bound by it";
  else if (limit.rlim_cur < kNeed) {
    finding.grade = Grade::warning;
    finding.advice =
        "ulimit -l unlimited, or memlock in /etc/security/limits.conf; without it the "
        "same runs work with plain buffers";
  }
  findings.push_back(finding);
}

std::string energy_source() {
  for (char const* file :
       {"/sys/class/powercap/intel-rapl:0/energy_uj", "/sys/cray/pm_counters/energy"})
    if (system_text(file)) return file;
  return "not available (no readable counter)";
}

}  // namespace

void examine_machine(Findings& findings) {
  utsname system{};
  ::uname(&system);
  findings.push_back({"system", "kernel", fmt::format("{} {}", system.sysname, system.release)});
  findings.push_back(
      {"cpu", "model", system_value("/proc/cpuinfo", "model name").value_or(kUnknown)});
  examine_features(findings);
  examine_processors(findings);
  findings.push_back({"memory", "total", kib_value("MemTotal")});
  findings.push_back({"memory", "available", kib_value("MemAvailable")});
  findings.push_back({"memory", "swap", kib_value("SwapTotal")});
  auto const limit = cgroup_memory_limit();
  findings.push_back({"memory", "cgroup limit", limit ? format_bytes(*limit) : "none"});
  findings.push_back(
      {"memory", "huge pages",
       system_text("/sys/kernel/mm/transparent_hugepage/enabled").value_or(kUnknown)});
  int const devices = device::cuda_device_count();
  findings.push_back(
      {"devices", "GPUs",
       devices == 0 ? "none: built without CUDA, or none found" : fmt::format("{}", devices)});
  findings.push_back({"devices", "energy", energy_source()});
}

void examine_limits(Findings& findings) {
  examine_memory_lock(findings);
  struct Limit {
    char const* name;
    int resource;
    bool bytes;
  };
  for (auto const& [name, resource, bytes] :
       {Limit{"open files", RLIMIT_NOFILE, false}, Limit{"file size", RLIMIT_FSIZE, true},
        Limit{"address space", RLIMIT_AS, true}, Limit{"core files", RLIMIT_CORE, true}}) {
    rlimit limit{};
    ::getrlimit(static_cast<__rlimit_resource>(resource), &limit);
    bool const plain = !bytes && limit.rlim_cur != RLIM_INFINITY;
    findings.push_back(
        {"limits", name, plain ? std::to_string(limit.rlim_cur) : limit_text(limit.rlim_cur)});
  }
}

void examine_launch(Findings& findings) {
  std::string const mpi = comm::mpi_library_version();
  findings.push_back({"launch", "MPI", mpi.substr(0, mpi.find_first_of(",\n"))});
  char const* ranks = std::getenv("OMPI_COMM_WORLD_SIZE");
  findings.push_back(
      {"launch", "mpirun", ranks ? fmt::format("{} ranks", ranks) : "not started by it"});
  bool any = false;
  for (char const* name : {"SLURM_JOB_ID", "SLURM_JOB_NODELIST", "SLURM_NTASKS",
                           "SLURM_CPUS_PER_TASK", "SLURM_JOB_END_TIME", "SLURM_RESTART_COUNT"}) {
    char const* value = std::getenv(name);
    if (value == nullptr) continue;
    findings.push_back({"launch", name, value});
    any = true;
  }
  if (!any) findings.push_back({"launch", "Slurm", "not in a job"});
}

}  // namespace spillway::app
