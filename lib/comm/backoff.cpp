// Spinning, yielding and sleeping in turn.
#include "lib/comm/backoff.hpp"

#include <sched.h>
#include <time.h>

namespace spillway::comm {
namespace {

constexpr int spins = 64;
constexpr int yields = 2000;  // about one millisecond on an idle core
constexpr long sleep_nanoseconds = 50'000;

}  // namespace

void Backoff::pause() {
  if (looks_ < spins) {
    ++looks_;
  } else if (looks_ < spins + yields) {
    ++looks_;
    ::sched_yield();
  } else {
    timespec const pause{0, sleep_nanoseconds};
    ::nanosleep(&pause, nullptr);
  }
}

}  // namespace spillway::comm
