#include "lib/ops/library_version.hpp"

#include <dnnl.h>
#include <fmt/core.h>

namespace spillway::ops {

std::string onednn_version() {
  dnnl_version_t const* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace spillway::ops
