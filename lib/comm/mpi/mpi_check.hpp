// Turns MPI's return codes into Error. For the sources of this folder only.
#pragma once

#include "lib/core/error.hpp"

namespace spillway::comm::detail {

/// Throws Fault::peer with MPI's text for `code` unless it is MPI_SUCCESS.
void check(int code, char const* call, Where where = Where::here());

}  // namespace spillway::comm::detail
