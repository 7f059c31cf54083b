#include "io/hdf5/library_version.hpp"

#include <fmt/core.h>
#include <hdf5.h>

namespace spillway::io {

std::string hdf5_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  if (H5get_libversion(&major, &minor, &release) < 0) return "unknown";
  return fmt::format("{}.{}.{}", major, minor, release);
}

}  // namespace spillway::io
