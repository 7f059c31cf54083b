// An HDF5 file as checkpoints need it: contiguous extents at known offsets, virtual datasets, small
// texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/hdf5/hdf5_handle.hpp"
#include "lib/core/dtype.hpp"

namespace spillway::io {

/// A box of a virtual dataset and the 1-D run of elements of another file that it shows, in C
/// order.
struct VirtualBox {
  std::vector<std::uint64_t> start;  // in the virtual dataset
  std::vector<std::uint64_t> extent;
  std::string file;  // a bare name is looked for beside the file that names it
  std::string dataset;
  std::uint64_t dataset_elements = 0;  // whole extent of the source dataset
  std::uint64_t first = 0;             // element of the source dataset
};

/// Readable by HDF5 1.10 and newer; file locks are not used; times are not stored, so equal content
/// is equal bytes. Intermediate groups of a name are created. Errors are thrown by check_hdf5. Hold
/// an Hdf5Session.
class Hdf5File {
 public:
  /// Replaces what is in an open file, which may be a memory file (memfd_create): there, space that
  /// is allocated and not written is a hole. Datasets of 4 KiB and more start at multiples of 4
  /// KiB.
  static Hdf5File create_in(int fd);
  /// Lives in memory only; take its bytes with image().
  static Hdf5File create_in_memory();
  /// Reads a file that is already in memory; the bytes are copied.
  static Hdf5File open_image(std::span<std::byte const> image);

  /// A 1-D dataset whose space is allocated but not written; returns its offset in the file (0 if
  /// it is empty).
  std::uint64_t create_extent(std::string const& name, DType type, std::uint64_t elements);
  /// Elements that no box covers, or whose file is missing, read as NaN.
  void create_virtual(std::string const& name, DType type, std::span<std::uint64_t const> shape,
                      std::span<VirtualBox const> boxes);
  void write(std::string const& name, std::span<std::byte const> bytes);       // uint8
  void write(std::string const& name, std::span<std::uint64_t const> values);  // uint64
  /// A scalar UTF-8 string of fixed length (at least 1, padded with NUL).
  void write_text(std::string const& name, std::string_view text);
  void set_attribute(std::string const& name, std::int64_t value);  // of the root
  void set_attribute(std::string const& name, std::string_view text);

  std::vector<std::byte> read_bytes(std::string const& name) const;
  std::vector<std::uint64_t> read_u64(std::string const& name) const;
  std::string read_text(std::string const& name) const;
  std::int64_t integer_attribute(std::string const& name) const;
  std::string text_attribute(std::string const& name) const;

  /// The file as bytes, complete and as if closed.
  std::vector<std::byte> image();
  /// Closes and reports what the library reports only then, for example a full disk.
  void close();

 private:
  explicit Hdf5File(Hdf5FileId file) : file_(std::move(file)) {}
  Hdf5Dataset create_dataset(std::string const& name, std::int64_t type, Hdf5Space const& space,
                             Hdf5Properties const& properties);
  Hdf5Dataset open_dataset(std::string const& name) const;
  std::size_t elements_of(Hdf5Dataset const& dataset, std::string const& name) const;

  Hdf5FileId file_;
};

}  // namespace spillway::io
