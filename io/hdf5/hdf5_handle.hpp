// Owners of HDF5 identifiers and the one check of its return codes.
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/core/error.hpp"
#include "lib/core/unique_handle.hpp"

namespace spillway::io {

enum class Hdf5Kind { file, group, dataset, attribute, space, type, properties };

/// One identifier of the library (its hid_t) and how it is closed.
template <Hdf5Kind kind>
struct Hdf5Traits {
  using Raw = std::int64_t;
  static Raw null() noexcept { return -1; }
  static void close(Raw id) noexcept;
};

using Hdf5FileId = UniqueHandle<Hdf5Traits<Hdf5Kind::file>>;
using Hdf5Dataset = UniqueHandle<Hdf5Traits<Hdf5Kind::dataset>>;
using Hdf5Attribute = UniqueHandle<Hdf5Traits<Hdf5Kind::attribute>>;
using Hdf5Space = UniqueHandle<Hdf5Traits<Hdf5Kind::space>>;
using Hdf5Type = UniqueHandle<Hdf5Traits<Hdf5Kind::type>>;
using Hdf5Properties = UniqueHandle<Hdf5Traits<Hdf5Kind::properties>>;

/// Throws when an HDF5 call returned a negative value: Fault::no_room where the library met a full
/// disk, quota or file size limit, else Fault::io; the text holds `what` and the library's error
/// stack.
std::int64_t check_hdf5(std::int64_t result, std::string_view what, Where where = Where::here());

/// Exclusive use of the library, which has process-wide state and is not thread-safe as Debian
/// builds it: hold one while calling it. Keeps it from printing its errors to stderr meanwhile.
class Hdf5Session {
 public:
  Hdf5Session();
  ~Hdf5Session();
  Hdf5Session(Hdf5Session const&) = delete;
  Hdf5Session& operator=(Hdf5Session const&) = delete;

 private:
  void* printer_ = nullptr;
  void* printer_data_ = nullptr;
};

}  // namespace spillway::io
