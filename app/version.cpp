// `spillway --version`: what support asks for first.
#include <fmt/core.h>

#include "app/commands.hpp"
#include "app/options.hpp"
#include "app/revision.hpp"
#include "io/hdf5/library_version.hpp"
#include "io/uring/library_version.hpp"
#include "lib/comm/mpi/mpi_runtime.hpp"
#include "lib/device/device.hpp"
#include "lib/ops/library_version.hpp"

namespace spillway::app {
namespace {

std::string fmt_version() {
  return fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100);
}

std::string cuda_text() {
  int const devices = device::cuda_device_count();
  return devices == 0 ? "no (built without CUDA, or no GPU)" : fmt::format("yes, {} GPUs", devices);
}

/// The first line: some libraries say more.
std::string first_line(std::string const& text) {
  return text.substr(0, text.find_first_of(",\n"));
}

}  // namespace

std::string program_version() { return SPILLWAY_VERSION; }

std::string version_text() {
  std::string text =
      fmt::format("spillway {} (revision {})\n", program_version(), source_revision());
  auto const add = [&](char const* name, std::string const& value) {
    text += fmt::format("  {:<10} {}\n", name, value);
  };
  add("compiler",
      fmt::format("{} {}, {}", SPILLWAY_COMPILER, SPILLWAY_COMPILER_VERSION, SPILLWAY_BUILD_TYPE));
  add("MPI", first_line(comm::mpi_library_version()));
  add("HDF5", io::hdf5_version());
  add("liburing", io::uring_version());
  add("oneDNN", ops::onednn_version());
  add("Boost", boost_version());
  add("fmt", fmt_version());
  add("CUDA", cuda_text());
  return text;
}

}  // namespace spillway::app
