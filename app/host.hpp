// Facts about this host that a run plans with: memory, processors, what the process holds.
#pragma once

#include <cstdint>

namespace spillway::app {

/// Resident memory of this process now, and its peak so far (VmRSS, VmHWM).
std::uint64_t resident_bytes();
std::uint64_t peak_resident_bytes();

/// What the machine and the cgroup leave, shared by the ranks of this host, less a reserve of a
/// sixteenth. Used where offload.host_memory is not given.
std::uint64_t default_host_memory(int local_ranks);

/// Processors in this process's affinity mask, and on this host.
int allowed_processors();
int online_processors();

}  // namespace spillway::app
