#include "io/hdf5/hdf5_handle.hpp"

#include <fmt/core.h>
#include <hdf5.h>

#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <string>

namespace spillway::io {

static_assert(sizeof(hid_t) == sizeof(std::int64_t), "HDF5 1.10 or newer");

// A destructor cannot report: whoever cares for the result of a close calls it by name
// (Hdf5File::close).
template <Hdf5Kind kind>
void Hdf5Traits<kind>::close(Raw id) noexcept {
  switch (kind) {
    case Hdf5Kind::file: H5Fclose(id); break;
    case Hdf5Kind::group: H5Gclose(id); break;
    case Hdf5Kind::dataset: H5Dclose(id); break;
    case Hdf5Kind::attribute: H5Aclose(id); break;
    case Hdf5Kind::space: H5Sclose(id); break;
    case Hdf5Kind::type: H5Tclose(id); break;
    case Hdf5Kind::properties: H5Pclose(id); break;
  }
}
template struct Hdf5Traits<Hdf5Kind::file>;
template struct Hdf5Traits<Hdf5Kind::group>;
template struct Hdf5Traits<Hdf5Kind::dataset>;
template struct Hdf5Traits<Hdf5Kind::attribute>;
template struct Hdf5Traits<Hdf5Kind::space>;
template struct Hdf5Traits<Hdf5Kind::type>;
template struct Hdf5Traits<Hdf5Kind::properties>;

namespace {

herr_t collect_line(unsigned, H5E_error2_t const* entry, void* text) {
  auto& stack = *static_cast<std::string*>(text);
  fmt::format_to(std::back_inserter(stack), "{}{}: {}", stack.empty() ? "" : "; ", entry->func_name,
                 entry->desc);
  return 0;
}

/// The library keeps errno only within its texts ("..., errno = 28, error message = ...").
int errno_within(std::string_view stack) {
  constexpr std::string_view marker = "errno = ";
  auto const at = stack.find(marker);
  return at == stack.npos ? 0 : std::atoi(stack.data() + at + marker.size());
}

std::mutex& library_mutex() {
  static std::mutex mutex;  // one a process, because the library's state is
  return mutex;
}

}  // namespace

std::int64_t check_hdf5(std::int64_t result, std::string_view what, Where where) {
  if (result >= 0) return result;
  std::string stack;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect_line, &stack);
  H5Eclear2(H5E_DEFAULT);
  int const code = errno_within(stack);
  bool const full = code == ENOSPC || code == EDQUOT || code == EFBIG;
  std::string const reason = code == 0 ? "" : errno_text(code) + "; ";
  throw Error(full ? Fault::no_room : Fault::io,
              fmt::format("HDF5: {} failed ({}{})", what, reason,
                          stack.empty() ? "the library gives no reason" : stack),
              where);
}

Hdf5Session::Hdf5Session() {
  library_mutex().lock();
  H5E_auto2_t printer = nullptr;
  H5Eget_auto2(H5E_DEFAULT, &printer, &printer_data_);
  printer_ = reinterpret_cast<void*>(printer);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  // Freed blocks go back to the allocator, not to lists of the library's own.
  H5set_free_list_limits(1 << 18, 1 << 14, 1 << 18, 1 << 14, 1 << 18, 1 << 14);
}

Hdf5Session::~Hdf5Session() {
  H5Eset_auto2(H5E_DEFAULT, reinterpret_cast<H5E_auto2_t>(printer_), printer_data_);
  library_mutex().unlock();
}

}  // namespace spillway::io
