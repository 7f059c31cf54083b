// Version of the library that this folder wraps.
#pragma once

#include <string>

namespace spillway::io {

std::string hdf5_version();

}  // namespace spillway::io
