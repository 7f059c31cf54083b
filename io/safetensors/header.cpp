#include "io/safetensors/header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>

#include "io/safetensors/strict_json.hpp"
#include "lib/core/error.hpp"

namespace spillway::io {
namespace {

using nlohmann::json;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kHeaderBytesMax = 100'000'000;  // the limit of the reference implementation
constexpr std::string_view kMetadata = "__metadata__";

struct FileType {
  std::string_view name;
  std::uint64_t bits;
  std::optional<DType> type;
};

constexpr std::array<FileType, 21> kFileTypes{{
    {"F32", 32, DType::f32},      {"BF16", 16, DType::bf16},    {"F16", 16, DType::f16},
    {"F64", 64, std::nullopt},    {"C64", 64, std::nullopt},    {"I64", 64, std::nullopt},
    {"U64", 64, std::nullopt},    {"I32", 32, std::nullopt},    {"U32", 32, std::nullopt},
    {"I16", 16, std::nullopt},    {"U16", 16, std::nullopt},    {"I8", 8, std::nullopt},
    {"U8", 8, std::nullopt},      {"BOOL", 8, std::nullopt},    {"F8_E4M3", 8, std::nullopt},
    {"F8_E5M2", 8, std::nullopt}, {"F8_E8M0", 8, std::nullopt}, {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt}, {"F4", 4, std::nullopt},      {"F4_E2M1", 4, std::nullopt},
}};

/// Reports faults of one tensor in one file.
struct Place {
  std::string const& path;
  std::string const& tensor;

  [[noreturn]] void fault(std::string const& what) const {
    fail(Fault::bad_input, fmt::format("{}: tensor {} {}", path, printable(tensor), what));
  }
};

std::string read_text(PlainReader const& file) {
  auto const damaged = [&](std::string const& what) {
    fail(Fault::bad_input,
         fmt::format("{} {}. Not a safetensors file, or cut short? Fetch it again?", file.path(),
                     what));
  };
  if (file.size() < kLengthBytes)
    damaged(fmt::format("has {} bytes (the length of the header alone takes 8)", file.size()));
  std::uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > file.size() - kLengthBytes)
    damaged(fmt::format("states a header of {} bytes, but only {} bytes follow", length,
                        file.size() - kLengthBytes));
  if (length > kHeaderBytesMax)
    damaged(fmt::format("states a header of {} bytes (more than the {} that the format permits)",
                        length, kHeaderBytesMax));
  std::string text(length, '\0');
  file.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  if (text.empty() || text.front() != '{') damaged("has a header that does not begin with '{'");
  return text;
}

std::vector<std::int64_t> parse_shape(json const& tensor, Place place) {
  auto const found = tensor.find("shape");
  if (found == tensor.end() || !found->is_array()) place.fault("has no array 'shape'");
  std::vector<std::int64_t> shape;
  for (auto const& size : *found) {
    bool const good = size.is_number_unsigned() && size.get<std::uint64_t>() <= INT64_MAX;
    if (!good) place.fault(fmt::format("has the size {} in its shape", size.dump()));
    shape.push_back(size.get<std::int64_t>());
  }
  return shape;
}

/// Product of the sizes; 1 for a scalar, 0 for an empty tensor however large the other sizes are.
std::int64_t count_elements(std::vector<std::int64_t> const& shape, Place place) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::int64_t elements = 1;
  for (std::int64_t size : shape)
    if (__builtin_mul_overflow(elements, size, &elements))
      place.fault(
          fmt::format("has the shape {}, whose elements overflow 64 bits", shape_text(shape)));
  return elements;
}

FileType const& parse_type(json const& tensor, Place place) {
  auto const found = tensor.find("dtype");
  if (found == tensor.end() || !found->is_string()) place.fault("has no 'dtype'");
  auto const& name = found->get_ref<std::string const&>();
  for (auto const& known : kFileTypes)
    if (known.name == name) return known;
  place.fault(fmt::format("has the unknown dtype {}", printable(name)));
}

void parse_offsets(json const& tensor, HeaderEntry& entry, Place place) {
  auto const found = tensor.find("data_offsets");
  bool const pair = found != tensor.end() && found->is_array() && found->size() == 2 &&
                    (*found)[0].is_number_unsigned() && (*found)[1].is_number_unsigned();
  if (!pair) place.fault("has no pair of whole numbers 'data_offsets'");
  entry.begin = (*found)[0].get<std::uint64_t>();
  entry.end = (*found)[1].get<std::uint64_t>();
  if (entry.begin > entry.end)
    place.fault(fmt::format("ends at {} before it begins at {}", entry.end, entry.begin));
}

HeaderEntry parse_entry(std::string const& name, json const& tensor, std::string const& path) {
  Place const place{path, name};
  if (!tensor.is_object()) place.fault("is described by something that is no JSON object");
  FileType const& type = parse_type(tensor, place);
  HeaderEntry entry{name, std::string(type.name), type.type, parse_shape(tensor, place), 0, 0, 0};
  entry.elements = count_elements(entry.shape, place);
  parse_offsets(tensor, entry, place);
  std::uint64_t bits = 0;
  bool const overflow =
      __builtin_mul_overflow(static_cast<std::uint64_t>(entry.elements), type.bits, &bits);
  if (overflow || bits % 8 != 0 || bits / 8 != entry.end - entry.begin)
    place.fault(fmt::format("takes {} bytes, which does not fit {} of the shape {}",
                            entry.end - entry.begin, entry.type_name, shape_text(entry.shape)));
  return entry;
}

/// No hole, no overlap, and the end of the data is the end of the file; makes the offsets absolute.
void check_cover(std::vector<HeaderEntry>& entries, std::uint64_t data_begin,
                 PlainReader const& file) {
  auto const order = [](HeaderEntry const& a, HeaderEntry const& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  };
  std::sort(entries.begin(), entries.end(), order);
  std::uint64_t covered = 0;
  for (auto& entry : entries) {
    Place const place{file.path(), entry.name};
    if (entry.begin < covered)
      place.fault(fmt::format("begins at {} and overlaps the tensor before it, which ends at {}",
                              entry.begin, covered));
    if (entry.begin > covered)
      place.fault(fmt::format("begins at {} and leaves a hole of {} bytes before it", entry.begin,
                              entry.begin - covered));
    covered = entry.end;
  }
  std::uint64_t const have = file.size() - data_begin;
  if (covered > have)
    fail(Fault::bad_input,
         fmt::format("{} is cut short: its tensors take {} bytes, {} are there. Fetch it again?",
                     file.path(), covered, have));
  if (covered < have)
    fail(Fault::bad_input,
         fmt::format("{} has {} bytes after its last tensor. Damaged? Fetch it again?", file.path(),
                     have - covered));
  for (auto& entry : entries) {
    entry.begin += data_begin;
    entry.end += data_begin;
  }
}

void check_metadata(json const& metadata, std::string const& path) {
  bool good = metadata.is_object();
  if (good)
    for (auto const& value : metadata) good = good && value.is_string();
  if (!good)
    fail(Fault::bad_input, fmt::format("{}: '{}' is no object of strings", path, kMetadata));
}

}  // namespace

std::vector<HeaderEntry> read_header(PlainReader const& file) {
  std::string const text = read_text(file);
  require_strict_json(text, fmt::format("{}: header", file.path()));
  json const header = json::parse(text);
  std::vector<HeaderEntry> entries;
  entries.reserve(header.size());
  for (auto const& [name, value] : header.items()) {
    if (name == kMetadata)
      check_metadata(value, file.path());
    else
      entries.push_back(parse_entry(name, value, file.path()));
  }
  check_cover(entries, kLengthBytes + text.size(), file);
  return entries;
}

std::string make_header(std::vector<HeaderEntry> const& entries) {
  nlohmann::ordered_json header;
  header[std::string(kMetadata)]["format"] = "pt";
  auto& members = header.get_ref<nlohmann::ordered_json::object_t&>();
  for (auto const& entry : entries) {
    nlohmann::ordered_json tensor;
    tensor["dtype"] = entry.type_name;
    tensor["shape"] = entry.shape;
    tensor["data_offsets"] = {entry.begin, entry.end};
    members.emplace_back(entry.name,
                         std::move(tensor));  // operator[] would search all names each time
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::uint64_t const length = text.size();
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, kLengthBytes);
  return bytes + text;
}

std::string_view safetensors_name(DType type) {
  for (auto const& known : kFileTypes)
    if (known.type == type) return known.name;
  fail(Fault::internal, fmt::format("{} is not written to safetensors", name_of(type)));
}

std::string shape_text(std::vector<std::int64_t> const& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace spillway::io
