// Tasks of unequal size on a team of threads.
#pragma once

#include <omp.h>

#include <cstdint>

namespace spillway::ops::detail {

/// task(index, thread) for every index. Which thread does which must not show in the result: the
/// team takes them as it gets free.
template <class Task>
void for_each_task(std::int64_t tasks, int threads, Task const& task) {
  if (threads == 1) {
    for (std::int64_t index = 0; index < tasks; ++index) task(index, 0);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(dynamic)
  for (std::int64_t index = 0; index < tasks; ++index) task(index, omp_get_thread_num());
}

}  // namespace spillway::ops::detail
