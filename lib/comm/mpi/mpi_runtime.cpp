// MPI_Init_thread, MPI_Finalize and the codes of MPI calls.
#include "lib/comm/mpi/mpi_runtime.hpp"

#include <fmt/core.h>
#include <mpi.h>

#include <array>
#include <exception>
#include <string_view>

#include "lib/comm/mpi/mpi_check.hpp"

namespace spillway::comm {

void detail::check(int code, char const* call, Where where) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
  std::string_view const reason(text.data(), static_cast<std::size_t>(length));
  fail(Fault::peer, fmt::format("{} failed ({}). Has another rank ended?", call, reason), where);
}

MpiRuntime::MpiRuntime() : exceptions_at_start_(std::uncaught_exceptions()) {
  int initialized = 0;
  detail::check(MPI_Initialized(&initialized), "MPI_Initialized");
  expect(initialized == 0, "MPI is initialized once in a process");
  int provided = MPI_THREAD_SINGLE;
  detail::check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided),
                "MPI_Init_thread");
  thread_multiple_ = provided == MPI_THREAD_MULTIPLE;
  detail::check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN),
                "MPI_Comm_set_errhandler");
  detail::check(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN),
                "MPI_Comm_set_errhandler");
}

MpiRuntime::~MpiRuntime() {
  if (std::uncaught_exceptions() > exceptions_at_start_) return;
  // A failure here has nobody left to hear of it: the launcher sees how the process ends.
  static_cast<void>(MPI_Finalize());
}

int MpiRuntime::ranks() const {
  int size = 0;
  detail::check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  return size;
}

std::string mpi_library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  detail::check(MPI_Get_library_version(text.data(), &length), "MPI_Get_library_version");
  std::string_view const whole(text.data(), static_cast<std::size_t>(length));
  return std::string(whole.substr(0, whole.find_first_of(",\n")));
}

}  // namespace spillway::comm
