#include "io/safetensors/safetensors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "io/plain_file.hpp"
#include "io/safetensors/convert.hpp"
#include "io/safetensors/header.hpp"
#include "io/safetensors/names.hpp"
#include "io/safetensors/strict_json.hpp"
#include "lib/core/error.hpp"

namespace spillway::io {
namespace {

constexpr std::size_t kPieceBytes = 1u << 20;  // of one read
constexpr std::uint64_t kIndexBytesMax = 100'000'000;

/// Tensor name -> shard file, as the index states it.
std::map<std::string, std::string> read_index(std::filesystem::path const& path) {
  PlainReader const file(path);
  if (file.size() > kIndexBytesMax)
    fail(Fault::bad_input,
         fmt::format("{} has {} bytes (no index is that long)", file.path(), file.size()));
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  require_strict_json(text, file.path());
  auto const index = nlohmann::json::parse(text);
  auto const found = index.is_object() ? index.find("weight_map") : index.end();
  if (found == index.end() || !found->is_object())
    fail(Fault::bad_input, fmt::format("{} has no object 'weight_map'", file.path()));
  std::map<std::string, std::string> shard_of;
  for (auto const& [name, shard] : found->items()) {
    if (!shard.is_string())
      fail(Fault::bad_input,
           fmt::format("{}: the shard of tensor {} is no string", file.path(), printable(name)));
    shard_of[name] = shard.get<std::string>();
  }
  return shard_of;
}

/// A shard lies beside its index: anything that leads elsewhere is an attack or a mistake.
void check_shard_name(std::string const& shard, std::string const& tensor,
                      std::filesystem::path const& index) {
  bool const plain = !shard.empty() && shard != "." && shard != ".." &&
                     shard.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
  if (!plain)
    fail(Fault::bad_input, fmt::format("{}: tensor {} is said to be in {} (a shard is a plain file "
                                       "name beside the index)",
                                       index.string(), printable(tensor), printable(shard)));
}

}  // namespace

struct SafetensorsFolder::Impl {
  struct Stored {
    HeaderEntry entry;
    std::size_t file = 0;
  };

  std::string origin;  // folder or file, for messages
  std::vector<PlainReader> files;
  std::map<std::string, Stored, std::less<>> stored;
  std::vector<TensorInfo> tensors;
  std::vector<OtherTensor> others;

  explicit Impl(std::filesystem::path const& path);
  void open_sharded(std::filesystem::path const& folder, std::filesystem::path const& index);
  void add_file(std::filesystem::path const& path);
  void check_index(std::map<std::string, std::string> const& shard_of,
                   std::filesystem::path const& index) const;
  Stored const& stored_tensor(std::string_view name) const;
};

SafetensorsFolder::Impl::Impl(std::filesystem::path const& path) : origin(path.string()) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(path, ignored)) {
    add_file(path);
  } else {
    std::filesystem::path const single = path / kSingleFile;
    std::filesystem::path const index = path / kShardIndexFile;
    bool const has_single = std::filesystem::exists(single, ignored);
    bool const has_index = std::filesystem::exists(index, ignored);
    if (has_single && has_index)
      fail(Fault::bad_input,
           fmt::format("{} holds both {} and {} (two sets of weights). Remove one?", origin,
                       kSingleFile, kShardIndexFile));
    if (!has_single && !has_index)
      fail(Fault::bad_input,
           fmt::format("{} holds neither {} nor {}. Is it a Hugging Face model folder?", origin,
                       kSingleFile, kShardIndexFile));
    if (has_single)
      add_file(single);
    else
      open_sharded(path, index);
  }
  for (auto const& [name, tensor] : stored) {
    if (tensor.entry.type)
      tensors.push_back({name, *tensor.entry.type, tensor.entry.shape});
    else
      others.push_back({name, tensor.entry.type_name});
  }
}

void SafetensorsFolder::Impl::open_sharded(std::filesystem::path const& folder,
                                           std::filesystem::path const& index) {
  auto const shard_of = read_index(index);
  std::map<std::string, std::string> first_tensor_of;  // shard -> a tensor of it
  for (auto const& [name, shard] : shard_of) {
    check_shard_name(shard, name, index);
    first_tensor_of.emplace(shard, name);
  }
  for (auto const& [shard, name] : first_tensor_of) {
    std::error_code ignored;
    if (!std::filesystem::exists(folder / shard, ignored))
      fail(Fault::bad_input,
           fmt::format("{} is absent, but {} says that tensor {} is in it. Fetch it?",
                       (folder / shard).string(), index.string(), printable(name)));
    add_file(folder / shard);
  }
  check_index(shard_of, index);
}

void SafetensorsFolder::Impl::add_file(std::filesystem::path const& path) {
  files.emplace_back(path);
  for (auto& entry : read_header(files.back())) {
    std::string const name = entry.name;
    auto const [place, is_new] =
        stored.try_emplace(name, Stored{std::move(entry), files.size() - 1});
    if (!is_new)
      fail(Fault::bad_input, fmt::format("tensor {} is in {} and in {} as well", printable(name),
                                         files[place->second.file].path(), files.back().path()));
  }
  files.back().drop_cache();
}

void SafetensorsFolder::Impl::check_index(std::map<std::string, std::string> const& shard_of,
                                          std::filesystem::path const& index) const {
  for (auto const& [name, shard] : shard_of) {
    auto const found = stored.find(name);
    std::string const where = found == stored.end() ? "" : files[found->second.file].path();
    if (found == stored.end() || std::filesystem::path(where).filename() != shard)
      fail(Fault::bad_input, fmt::format("{} says that tensor {} is in {}, but it is {}",
                                         index.string(), printable(name), shard,
                                         found == stored.end() ? "in no shard" : "in " + where));
  }
  for (auto const& [name, tensor] : stored)
    if (!shard_of.contains(name))
      fail(Fault::bad_input, fmt::format("tensor {} of {} is not in {}", printable(name),
                                         files[tensor.file].path(), index.string()));
}

SafetensorsFolder::Impl::Stored const& SafetensorsFolder::Impl::stored_tensor(
    std::string_view name) const {
  auto const found = stored.find(name);
  if (found == stored.end())
    fail(Fault::bad_input, fmt::format("{} has no tensor {}", origin, printable(name)));
  if (!found->second.entry.type)
    fail(Fault::bad_input,
         fmt::format(
             "{}: tensor {} has the dtype {} (weights are read from F32, BF16 and F16 only). "
             "Convert it?",
             files[found->second.file].path(), printable(name), found->second.entry.type_name));
  return found->second;
}

SafetensorsFolder::SafetensorsFolder(std::filesystem::path const& folder)
    : impl_(std::make_unique<Impl>(folder)) {}
SafetensorsFolder::~SafetensorsFolder() = default;
SafetensorsFolder::SafetensorsFolder(SafetensorsFolder&&) noexcept = default;

std::vector<TensorInfo> const& SafetensorsFolder::tensors() const { return impl_->tensors; }
std::vector<OtherTensor> const& SafetensorsFolder::others() const { return impl_->others; }

TensorInfo const* SafetensorsFolder::find(std::string_view name) const {
  auto const by_name = [](TensorInfo const& info, std::string_view wanted) {
    return info.name < wanted;
  };
  auto const found = std::lower_bound(tensors().begin(), tensors().end(), name, by_name);
  return found != tensors().end() && found->name == name ? &*found : nullptr;
}

void SafetensorsFolder::read(std::string_view name, std::int64_t begin,
                             std::span<float> out) const {
  auto const& [entry, file_index] = impl_->stored_tensor(name);
  PlainReader const& file = impl_->files[file_index];
  auto const count = static_cast<std::int64_t>(out.size());
  if (begin < 0 || begin > entry.elements || count > entry.elements - begin)
    fail(Fault::internal, fmt::format("elements {} to {} of tensor {} were asked for, which has {}",
                                      begin, begin + count, printable(name), entry.elements));
  std::size_t const width = size_of(*entry.type);
  std::uint64_t offset = entry.begin + static_cast<std::uint64_t>(begin) * width;
  std::vector<std::byte> raw(std::min(out.size() * width, kPieceBytes));
  while (!out.empty()) {
    std::size_t const piece = std::min(out.size(), kPieceBytes / width);
    std::span<std::byte> const bytes = std::span(raw).first(piece * width);
    file.read(offset, bytes);
    file.drop_cache(offset, bytes.size());
    widen(*entry.type, bytes, out.first(piece));
    offset += bytes.size();
    out = out.subspan(piece);
  }
}

}  // namespace spillway::io
