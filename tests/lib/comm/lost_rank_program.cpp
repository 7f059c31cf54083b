// A small run under the watchdog, to be killed and stopped by lost_rank_test.py.
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "lib/comm/communicator.hpp"
#include "lib/comm/mpi/mpi_runtime.hpp"
#include "lib/comm/watchdog.hpp"
#include "lib/core/error.hpp"
#include "lib/device/device.hpp"

namespace {

using namespace spillway;
using std::chrono::milliseconds;

struct Orders {
  int steps = 0;          // 0: until the end of days
  int delayed_rank = -1;  // sleeps once, in step 1
  milliseconds delay{0};
  int failing_rank = -1;  // throws in step 20
  comm::NodeMemory node_memory = comm::NodeMemory::use;
};

Orders parse(int argc, char** argv) {
  Orders orders;
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string const key = argv[i];
    int const value = std::atoi(argv[i + 1]);
    if (key == "steps") orders.steps = value;
    if (key == "delayed_rank") orders.delayed_rank = value;
    if (key == "delay_ms") orders.delay = milliseconds(value);
    if (key == "failing_rank") orders.failing_rank = value;
    if (key == "messages" && value == 1) orders.node_memory = comm::NodeMemory::avoid;
  }
  return orders;
}

void train(comm::Communicator& communicator, comm::Watchdog& watchdog, Orders const& orders) {
  auto const device = device::make_cpu_device();
  auto const stream = device->make_stream(0, 1);
  std::size_t const part = 100'000;
  std::vector<float> whole(part * static_cast<std::size_t>(communicator.size()), 1.0F);
  std::vector<float> own(part);
  for (int step = 1; orders.steps == 0 || step <= orders.steps; ++step) {
    watchdog.set_phase(fmt::format("step {}, reduce-scatter", step));
    communicator.reduce_scatter(whole, own, *stream);
    if (step == 1 && communicator.rank().get() == orders.delayed_rank) {
      watchdog.set_phase("writing the checkpoint");
      std::this_thread::sleep_for(orders.delay);
    }
    if (step == 20 && communicator.rank().get() == orders.failing_rank)
      fail(Fault::io, "the disk has failed (as ordered)");
    watchdog.set_phase(fmt::format("step {}, all-gather", step));
    communicator.all_gather(std::as_writable_bytes(std::span(whole)), *stream);
    std::fill(whole.begin(), whole.end(), 1.0F);
    watchdog.set_phase(fmt::format("step {}, barrier", step));
    communicator.barrier();
  }
}

}  // namespace

int main(int argc, char** argv) {
  Orders const orders = parse(argc, argv);
  comm::MpiRuntime const runtime;
  auto const communicator = comm::make_mpi_communicator({.node_memory = orders.node_memory});
  int const rank = communicator->rank().get();
  try {
    comm::WatchdogOptions const options{
        .beat = milliseconds(100), .timeout = milliseconds(3000), .grace = milliseconds(500)};
    comm::Watchdog watchdog(*communicator, options,
                            {.on_alarm = [&](comm::PeerReport const& report) {
                              fmt::print(stderr, "ALARM [r{}] {}\n", rank, describe(report));
                              communicator->abort(static_cast<int>(Fault::peer));
                            }});
    fmt::print("rank {} pid {}\n", rank, ::getpid());
    std::fflush(stdout);
    train(*communicator, watchdog, orders);
    communicator->barrier();
  } catch (Error const& error) {
    fmt::print(stderr, "ERROR [r{}] {}\n", rank, error.what());
    communicator->abort(static_cast<int>(error.fault()));
  }
  return 0;
}
