// Weights to safetensors: shards in the order given, written aside and named when they are whole.
#include <fmt/core.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "io/plain_file.hpp"
#include "io/safetensors/convert.hpp"
#include "io/safetensors/header.hpp"
#include "io/safetensors/names.hpp"
#include "io/safetensors/safetensors.hpp"
#include "lib/core/error.hpp"

namespace spillway::io {
namespace {

constexpr std::size_t kPieceElements = 1u << 20;

/// Tensors of one file, with offsets from the start of its data.
struct Shard {
  std::vector<HeaderEntry> entries;
  std::vector<TensorInfo const*> sources;
  std::uint64_t bytes = 0;
};

std::int64_t checked_elements(TensorInfo const& tensor) {
  std::int64_t elements = 1;
  bool overflow = false;
  for (std::int64_t size : tensor.shape) {
    expect(size >= 0, "the sizes of a tensor are not negative");
    overflow = __builtin_mul_overflow(elements, size, &elements) || overflow;
  }
  expect(!overflow && elements <= INT64_MAX / 4, "the bytes of a tensor fit 63 bits");
  return elements;
}

void check_names(std::span<TensorInfo const> tensors) {
  std::set<std::string_view> names;
  for (auto const& tensor : tensors) {
    expect(tensor.name != "__metadata__", "no tensor has the name of the metadata");
    if (!names.insert(tensor.name).second)
      fail(Fault::internal, fmt::format("tensor '{}' was to be written twice", tensor.name));
  }
}

/// Fills shard after shard in the order given, so that the tensors of a unit stay together.
std::vector<Shard> distribute(std::span<TensorInfo const> tensors, std::uint64_t shard_bytes) {
  std::vector<Shard> shards(1);
  for (auto const& tensor : tensors) {
    std::uint64_t const bytes =
        static_cast<std::uint64_t>(checked_elements(tensor)) * size_of(tensor.type);
    if (!shards.back().sources.empty() && shards.back().bytes + bytes > shard_bytes)
      shards.emplace_back();
    shards.back().sources.push_back(&tensor);
    shards.back().bytes += bytes;
  }
  for (auto& shard : shards) {
    std::stable_sort(shard.sources.begin(), shard.sources.end(),
                     [](auto* a, auto* b) { return size_of(a->type) > size_of(b->type); });
    std::uint64_t offset = 0;
    for (TensorInfo const* tensor : shard.sources) {
      std::int64_t const elements = checked_elements(*tensor);
      std::uint64_t const end =
          offset + static_cast<std::uint64_t>(elements) * size_of(tensor->type);
      shard.entries.push_back({tensor->name, std::string(safetensors_name(tensor->type)),
                               tensor->type, tensor->shape, elements, offset, end});
      offset = end;
    }
  }
  return shards;
}

void check_room(std::filesystem::path const& folder, std::uint64_t needed) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0)
    fail(Fault::io,
         fmt::format("cannot ask {} for its free space: {}", folder.string(), errno_text(errno)));
  std::uint64_t const free = static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
  if (free < needed)
    fail(Fault::no_room, fmt::format("the weights take {} bytes, {} has {} free. Another folder?",
                                     needed, folder.string(), free));
}

/// A folder must never hold weights in both forms: readers would not agree which to take.
void check_other_form(std::filesystem::path const& folder, bool sharded) {
  std::filesystem::path const other = folder / (sharded ? kSingleFile : kShardIndexFile);
  std::error_code ignored;
  if (std::filesystem::exists(other, ignored))
    fail(Fault::bad_input,
         fmt::format("{} exists already ({} would stand beside it, and readers would not "
                     "agree which to take). Remove it or use another folder?",
                     other.string(), sharded ? kShardIndexFile : kSingleFile));
}

void write_tensor(PlainWriter& file, TensorInfo const& tensor, std::int64_t elements,
                  TensorReader& source) {
  std::size_t const piece_max = std::min(static_cast<std::size_t>(elements), kPieceElements);
  std::vector<float> values(piece_max);
  std::vector<std::byte> raw(piece_max * size_of(tensor.type));
  for (std::int64_t begin = 0; begin < elements;) {
    std::size_t const count = std::min(static_cast<std::size_t>(elements - begin), kPieceElements);
    std::span<float> const piece = std::span(values).first(count);
    std::span<std::byte> const bytes = std::span(raw).first(count * size_of(tensor.type));
    source.read(tensor, begin, piece);
    std::ptrdiff_t const overflow = narrow_elements(tensor.type, piece, bytes);
    if (overflow >= 0)
      fail(Fault::bad_input,
           fmt::format("element {} of tensor '{}' is {} (too large for {}). Write another type?",
                       begin + overflow, tensor.name, piece[static_cast<std::size_t>(overflow)],
                       name_of(tensor.type)));
    file.append(bytes);
    begin += static_cast<std::int64_t>(count);
  }
}

/// What a reader finds must be what was to be written: said before the file gets its name.
void verify(PlainWriter const& file, Shard const& shard) {
  PlainReader const reader(file.written_path());
  auto const found = read_header(reader);
  using Described = std::tuple<std::string, std::string, std::vector<std::int64_t>>;
  auto const describe = [](std::vector<HeaderEntry> const& entries) {
    std::set<Described> all;
    for (auto const& entry : entries) all.emplace(entry.name, entry.type_name, entry.shape);
    return all;
  };
  if (describe(found) != describe(shard.entries))
    fail(Fault::io, fmt::format("{} does not read back with the tensors that were written",
                                file.written_path().string()));
}

PlainWriter write_shard(std::filesystem::path const& path, Shard const& shard,
                        TensorReader& source) {
  PlainWriter file(path);
  std::string const header = make_header(shard.entries);
  file.append(std::as_bytes(std::span(header)));
  for (std::size_t i = 0; i < shard.sources.size(); ++i)
    write_tensor(file, *shard.sources[i], shard.entries[i].elements, source);
  file.sync();
  verify(file, shard);
  return file;
}

PlainWriter write_index(std::filesystem::path const& folder, std::vector<Shard> const& shards) {
  std::uint64_t total = 0;
  nlohmann::ordered_json index;
  nlohmann::json map = nlohmann::json::object();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    total += shards[i].bytes;
    for (auto const& entry : shards[i].entries) map[entry.name] = shard_file(i + 1, shards.size());
  }
  index["metadata"]["total_size"] = total;
  index["weight_map"] = nlohmann::ordered_json(map);
  std::string const text = index.dump(2) + "\n";
  PlainWriter file(folder / kShardIndexFile);
  file.append(std::as_bytes(std::span(text)));
  return file;
}

}  // namespace

void write_safetensors(std::filesystem::path const& folder, std::span<TensorInfo const> tensors,
                       TensorReader& source, std::uint64_t shard_bytes) {
  check_names(tensors);
  auto const shards = distribute(tensors, shard_bytes);
  bool const sharded = shards.size() > 1;
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed)
    fail(Fault::io,
         fmt::format("cannot create the folder {}: {}", folder.string(), failed.message()));
  check_other_form(folder, sharded);
  std::uint64_t needed = 0;
  for (auto const& shard : shards) needed += shard.bytes + make_header(shard.entries).size();
  check_room(folder, needed);

  std::vector<PlainWriter> files;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    std::string const name = sharded ? shard_file(i + 1, shards.size()) : kSingleFile;
    files.push_back(write_shard(folder / name, shards[i], source));
  }
  if (sharded) {
    files.push_back(write_index(folder, shards));
    // While shards change their names there is no index, so that no reader takes old and new
    // together.
    std::filesystem::remove(folder / kShardIndexFile, failed);
  }
  for (auto& file : files) file.commit();
}

}  // namespace spillway::io
