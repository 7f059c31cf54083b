// Version of the library that this folder wraps.
#pragma once

#include <string>

namespace spillway::ops {

std::string onednn_version();

}  // namespace spillway::ops
