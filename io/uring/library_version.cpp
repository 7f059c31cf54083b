#include "io/uring/library_version.hpp"

namespace spillway::io {

// liburing 2.3 can't be asked; CMake found the version of what was built against.
std::string uring_version() { return SPILLWAY_LIBURING_VERSION; }

}  // namespace spillway::io
