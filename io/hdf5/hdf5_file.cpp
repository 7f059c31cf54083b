#include "io/hdf5/hdf5_file.hpp"

#include <fmt/core.h>
#include <hdf5.h>

#include <algorithm>
#include <limits>

#include "lib/core/numeric.hpp"

namespace spillway::io {

namespace {

/// bf16 as an ordinary 16-bit float type, which HDF5 and h5py convert like any other: no opaque
/// bytes.
Hdf5Type bf16_type() {
  Hdf5Type type{check_hdf5(H5Tcopy(H5T_IEEE_F32LE), "H5Tcopy")};
  check_hdf5(H5Tset_fields(type.get(), 15, 7, 8, 0, 7), "H5Tset_fields");
  check_hdf5(H5Tset_size(type.get(), 2), "H5Tset_size");
  check_hdf5(H5Tset_ebias(type.get(), 127), "H5Tset_ebias");
  return type;
}

Hdf5Type float_type(DType type) {
  if (type == DType::bf16) return bf16_type();
  expect(type == DType::f32, "an HDF5 dataset of floats is fp32 or bf16");
  return Hdf5Type{check_hdf5(H5Tcopy(H5T_IEEE_F32LE), "H5Tcopy")};
}

Hdf5Type text_type(std::size_t length) {
  Hdf5Type type{check_hdf5(H5Tcopy(H5T_C_S1), "H5Tcopy")};
  check_hdf5(H5Tset_size(type.get(), std::max<std::size_t>(length, 1)), "H5Tset_size");
  check_hdf5(H5Tset_cset(type.get(), H5T_CSET_UTF8), "H5Tset_cset");
  check_hdf5(H5Tset_strpad(type.get(), H5T_STR_NULLPAD), "H5Tset_strpad");
  return type;
}

Hdf5Properties properties_of(hid_t type) {
  return Hdf5Properties{check_hdf5(H5Pcreate(type), "H5Pcreate")};
}

/// Dataset properties: without times, so that the same content gives the same bytes.
Hdf5Properties dataset_properties() {
  auto properties = properties_of(H5P_DATASET_CREATE);
  check_hdf5(H5Pset_obj_track_times(properties.get(), false), "H5Pset_obj_track_times");
  return properties;
}

/// The library's cache of metadata would grow to 32 MiB while thousands of virtual datasets are
/// made, and a rank's memory is planned.
void bound_metadata_cache(Hdf5Properties const& access) {
  H5AC_cache_config_t config{};
  config.version = H5AC__CURR_CACHE_CONFIG_VERSION;
  check_hdf5(H5Pget_mdc_config(access.get(), &config), "H5Pget_mdc_config");
  config.set_initial_size = true;
  config.initial_size = std::size_t{512} << 10;
  config.min_size = config.initial_size;
  config.max_size = config.initial_size;
  check_hdf5(H5Pset_mdc_config(access.get(), &config), "H5Pset_mdc_config");
}

/// File access shared by all ways to open: our own run lock guards writing, and flock is refused by
/// many cluster file systems; V110 is the oldest bound that has virtual datasets, and every cluster
/// reads it.
Hdf5Properties access_properties() {
  auto access = properties_of(H5P_FILE_ACCESS);
  check_hdf5(H5Pset_file_locking(access.get(), false, true), "H5Pset_file_locking");
  check_hdf5(H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_V110),
             "H5Pset_libver_bounds");
  check_hdf5(H5Pset_fclose_degree(access.get(), H5F_CLOSE_SEMI), "H5Pset_fclose_degree");
  bound_metadata_cache(access);
  return access;
}

Hdf5Properties memory_properties() {
  auto access = access_properties();
  check_hdf5(H5Pset_fapl_core(access.get(), 1u << 20, false), "H5Pset_fapl_core");
  return access;
}

Hdf5Space simple_space(std::span<std::uint64_t const> shape) {
  std::vector<hsize_t> const extents(shape.begin(), shape.end());
  return Hdf5Space{check_hdf5(
      H5Screate_simple(narrow<int>(extents.size()), extents.data(), nullptr), "H5Screate_simple")};
}

Hdf5Space row_space(std::uint64_t elements) { return simple_space(std::span(&elements, 1)); }

Hdf5Space scalar_space() { return Hdf5Space{check_hdf5(H5Screate(H5S_SCALAR), "H5Screate")}; }

void select_box(Hdf5Space const& space, std::span<std::uint64_t const> start,
                std::span<std::uint64_t const> extent) {
  std::vector<hsize_t> const first(start.begin(), start.end());
  std::vector<hsize_t> const count(extent.begin(), extent.end());
  check_hdf5(H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, first.data(), nullptr, count.data(),
                                 nullptr),
             "H5Sselect_hyperslab");
}

/// HDF5 takes '%' in the names of virtual sources for a pattern.
std::string without_patterns(std::string const& name) {
  std::string out;
  for (char c : name) out += c == '%' ? std::string("%%") : std::string(1, c);
  return out;
}

Hdf5FileId create_root(std::string const& name, Hdf5Properties const& access) {
  auto creation = properties_of(H5P_FILE_CREATE);
  check_hdf5(H5Pset_obj_track_times(creation.get(), false), "H5Pset_obj_track_times");
  return Hdf5FileId{check_hdf5(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, creation.get(), access.get()),
                               fmt::format("creating '{}'", name))};
}

}  // namespace

Hdf5File Hdf5File::create_in(int fd) {
  auto access = access_properties();
  check_hdf5(H5Pset_alignment(access.get(), 4096, 4096), "H5Pset_alignment");
  // The default driver asks for the real path of a link, and a memory file has none.
  check_hdf5(H5Pset_fapl_stdio(access.get()), "H5Pset_fapl_stdio");
  return Hdf5File(create_root(fmt::format("/proc/self/fd/{}", fd), access));
}

Hdf5File Hdf5File::create_in_memory() {
  return Hdf5File(create_root("in memory", memory_properties()));
}

Hdf5File Hdf5File::open_image(std::span<std::byte const> image) {
  auto access = memory_properties();
  // The library copies the image and writes nothing through this pointer.
  void* const bytes = const_cast<std::byte*>(image.data());
  check_hdf5(H5Pset_file_image(access.get(), bytes, image.size()), "H5Pset_file_image");
  return Hdf5File(Hdf5FileId{
      check_hdf5(H5Fopen("in memory", H5F_ACC_RDONLY, access.get()), "opening a file image")});
}

Hdf5Dataset Hdf5File::create_dataset(std::string const& name, std::int64_t type,
                                     Hdf5Space const& space, Hdf5Properties const& properties) {
  auto link = properties_of(H5P_LINK_CREATE);
  check_hdf5(H5Pset_create_intermediate_group(link.get(), 1), "H5Pset_create_intermediate_group");
  check_hdf5(H5Pset_char_encoding(link.get(), H5T_CSET_UTF8), "H5Pset_char_encoding");
  return Hdf5Dataset{check_hdf5(H5Dcreate2(file_.get(), name.c_str(), type, space.get(), link.get(),
                                           properties.get(), H5P_DEFAULT),
                                fmt::format("creating dataset '{}'", name))};
}

std::uint64_t Hdf5File::create_extent(std::string const& name, DType type, std::uint64_t elements) {
  auto properties = dataset_properties();
  check_hdf5(H5Pset_layout(properties.get(), H5D_CONTIGUOUS), "H5Pset_layout");
  check_hdf5(H5Pset_alloc_time(properties.get(), H5D_ALLOC_TIME_EARLY), "H5Pset_alloc_time");
  check_hdf5(H5Pset_fill_time(properties.get(), H5D_FILL_TIME_NEVER), "H5Pset_fill_time");
  auto const dataset =
      create_dataset(name, float_type(type).get(), row_space(elements), properties);
  if (elements == 0) return 0;
  haddr_t const offset = H5Dget_offset(dataset.get());
  check_hdf5(offset == HADDR_UNDEF ? -1 : 0, fmt::format("H5Dget_offset of '{}'", name));
  return offset;
}

void Hdf5File::create_virtual(std::string const& name, DType type,
                              std::span<std::uint64_t const> shape,
                              std::span<VirtualBox const> boxes) {
  auto properties = dataset_properties();
  auto const element = float_type(type);
  float const hole = std::numeric_limits<float>::quiet_NaN();
  check_hdf5(H5Pset_fill_value(properties.get(), H5T_NATIVE_FLOAT, &hole), "H5Pset_fill_value");
  auto const whole = simple_space(shape);
  for (auto const& box : boxes) {
    auto const shown = simple_space(shape);
    select_box(shown, box.start, box.extent);
    std::uint64_t count = 1;
    for (std::uint64_t extent : box.extent) count *= extent;
    auto const source = row_space(box.dataset_elements);
    select_box(source, std::span(&box.first, 1), std::span(&count, 1));
    check_hdf5(H5Pset_virtual(properties.get(), shown.get(), without_patterns(box.file).c_str(),
                              without_patterns(box.dataset).c_str(), source.get()),
               fmt::format("H5Pset_virtual of '{}'", name));
  }
  create_dataset(name, element.get(), whole, properties);
}

void Hdf5File::write(std::string const& name, std::span<std::byte const> bytes) {
  auto const dataset =
      create_dataset(name, H5T_STD_U8LE, row_space(bytes.size()), dataset_properties());
  check_hdf5(H5Dwrite(dataset.get(), H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()),
             fmt::format("writing dataset '{}'", name));
}

void Hdf5File::write(std::string const& name, std::span<std::uint64_t const> values) {
  auto const dataset =
      create_dataset(name, H5T_STD_U64LE, row_space(values.size()), dataset_properties());
  check_hdf5(
      H5Dwrite(dataset.get(), H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
      fmt::format("writing dataset '{}'", name));
}

void Hdf5File::write_text(std::string const& name, std::string_view text) {
  auto const type = text_type(text.size());
  auto const dataset = create_dataset(name, type.get(), scalar_space(), dataset_properties());
  std::string const padded(text.empty() ? std::string(1, '\0') : std::string(text));
  check_hdf5(H5Dwrite(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, padded.data()),
             fmt::format("writing dataset '{}'", name));
}

void Hdf5File::set_attribute(std::string const& name, std::int64_t value) {
  Hdf5Attribute const attribute{
      check_hdf5(H5Acreate2(file_.get(), name.c_str(), H5T_STD_I64LE, scalar_space().get(),
                            H5P_DEFAULT, H5P_DEFAULT),
                 fmt::format("creating attribute '{}'", name))};
  check_hdf5(H5Awrite(attribute.get(), H5T_NATIVE_INT64, &value), "H5Awrite");
}

void Hdf5File::set_attribute(std::string const& name, std::string_view text) {
  auto const type = text_type(text.size());
  Hdf5Attribute const attribute{
      check_hdf5(H5Acreate2(file_.get(), name.c_str(), type.get(), scalar_space().get(),
                            H5P_DEFAULT, H5P_DEFAULT),
                 fmt::format("creating attribute '{}'", name))};
  std::string const padded(text.empty() ? std::string(1, '\0') : std::string(text));
  check_hdf5(H5Awrite(attribute.get(), type.get(), padded.data()), "H5Awrite");
}

Hdf5Dataset Hdf5File::open_dataset(std::string const& name) const {
  return Hdf5Dataset{check_hdf5(H5Dopen2(file_.get(), name.c_str(), H5P_DEFAULT),
                                fmt::format("opening dataset '{}'", name))};
}

std::size_t Hdf5File::elements_of(Hdf5Dataset const& dataset, std::string const& name) const {
  Hdf5Space const space{check_hdf5(H5Dget_space(dataset.get()), "H5Dget_space")};
  return narrow<std::size_t>(check_hdf5(H5Sget_simple_extent_npoints(space.get()),
                                        fmt::format("H5Sget_simple_extent_npoints of '{}'", name)));
}

std::vector<std::byte> Hdf5File::read_bytes(std::string const& name) const {
  auto const dataset = open_dataset(name);
  std::vector<std::byte> bytes(elements_of(dataset, name));
  check_hdf5(H5Dread(dataset.get(), H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()),
             fmt::format("reading dataset '{}'", name));
  return bytes;
}

std::vector<std::uint64_t> Hdf5File::read_u64(std::string const& name) const {
  auto const dataset = open_dataset(name);
  std::vector<std::uint64_t> values(elements_of(dataset, name));
  check_hdf5(
      H5Dread(dataset.get(), H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()),
      fmt::format("reading dataset '{}'", name));
  return values;
}

std::string Hdf5File::read_text(std::string const& name) const {
  auto const dataset = open_dataset(name);
  Hdf5Type const type{check_hdf5(H5Dget_type(dataset.get()), "H5Dget_type")};
  std::string text(H5Tget_size(type.get()), '\0');
  check_hdf5(H5Dread(dataset.get(), type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()),
             fmt::format("reading dataset '{}'", name));
  if (text == std::string(1, '\0')) text.clear();
  return text;
}

std::int64_t Hdf5File::integer_attribute(std::string const& name) const {
  Hdf5Attribute const attribute{check_hdf5(H5Aopen(file_.get(), name.c_str(), H5P_DEFAULT),
                                           fmt::format("opening attribute '{}'", name))};
  std::int64_t value = 0;
  check_hdf5(H5Aread(attribute.get(), H5T_NATIVE_INT64, &value), "H5Aread");
  return value;
}

std::string Hdf5File::text_attribute(std::string const& name) const {
  Hdf5Attribute const attribute{check_hdf5(H5Aopen(file_.get(), name.c_str(), H5P_DEFAULT),
                                           fmt::format("opening attribute '{}'", name))};
  Hdf5Type const type{check_hdf5(H5Aget_type(attribute.get()), "H5Aget_type")};
  std::string text(H5Tget_size(type.get()), '\0');
  check_hdf5(H5Aread(attribute.get(), type.get(), text.data()), "H5Aread");
  if (text == std::string(1, '\0')) text.clear();
  return text;
}

std::vector<std::byte> Hdf5File::image() {
  check_hdf5(H5Fflush(file_.get(), H5F_SCOPE_GLOBAL), "H5Fflush");
  auto const size = check_hdf5(H5Fget_file_image(file_.get(), nullptr, 0), "H5Fget_file_image");
  std::vector<std::byte> bytes(narrow<std::size_t>(size));
  check_hdf5(H5Fget_file_image(file_.get(), bytes.data(), bytes.size()), "H5Fget_file_image");
  return bytes;
}

void Hdf5File::close() { check_hdf5(H5Fclose(file_.release()), "closing the file"); }

}  // namespace spillway::io
