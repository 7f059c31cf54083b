#include "io/safetensors/safetensors_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <set>
#include <vector>

#include "io/safetensors/header.hpp"
#include "lib/core/error.hpp"
#include "lib/model/names.hpp"

namespace spillway::io {
namespace {

constexpr std::string_view kHead = "lm_head.weight";
constexpr std::array<std::string_view, 2> kPrefixes{"transformer.", "model."};
/// Buffers that older versions of transformers saved beside the weights; they follow from the
/// configuration.
constexpr std::array<std::string_view, 3> kBuffers{".attn.bias", ".attn.masked_bias",
                                                   ".rotary_emb.inv_freq"};
constexpr std::size_t kNamesShown = 5;
constexpr std::size_t kPieceElements = 1u << 18;

std::string embedding_name(model::Family family) {
  return model::model_names(family).token_embedding + ".weight";
}

std::string list_names(std::vector<std::string> const& names) {
  std::size_t const shown = std::min(names.size(), kNamesShown);
  std::string text = fmt::format(
      "{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < names.size()) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

bool is_buffer(std::string_view name) {
  return std::any_of(kBuffers.begin(), kBuffers.end(),
                     [&](auto end) { return name.ends_with(end); });
}

}  // namespace

SafetensorsWeights::SafetensorsWeights(std::filesystem::path const& folder,
                                       model::ModelSpec const& spec)
    : folder_(folder), origin_(folder.string()) {
  resolve(spec);
  check_shapes(spec);
  settle_tied_head(spec);
  check_extra();
}

void SafetensorsWeights::read(model::TensorSpec const& tensor, std::int64_t begin,
                              std::span<float> out) {
  auto const found = stored_as_.find(tensor.name);
  if (found == stored_as_.end())
    fail(Fault::internal, fmt::format("tensor '{}' is not of the model that {} was checked against",
                                      tensor.name, origin_));
  folder_.read(found->second, begin, out);
}

/// As it is, or without the prefix of the base model; empty if it is not there.
std::string SafetensorsWeights::stored_name(std::string const& name) const {
  auto const known = [&](std::string const& candidate) {
    auto const& others = folder_.others();
    return folder_.find(candidate) != nullptr ||
           std::any_of(others.begin(), others.end(),
                       [&](auto const& other) { return other.name == candidate; });
  };
  if (known(name)) return name;
  for (std::string_view prefix : kPrefixes)
    if (name.starts_with(prefix) && known(name.substr(prefix.size())))
      return name.substr(prefix.size());
  return {};
}

void SafetensorsWeights::resolve(model::ModelSpec const& spec) {
  std::vector<std::string> missing;
  bool const tied = spec.config.tied_head;
  for (auto const& unit : spec.units)
    for (auto const& tensor : unit.tensors) {
      std::string stored = stored_name(tensor.name);
      bool const may_be_head = tied && tensor.name == embedding_name(spec.config.family);
      if (stored.empty() && may_be_head) stored = stored_name(std::string(kHead));
      if (stored.empty())
        missing.push_back(may_be_head ? fmt::format("{} (or {}, tied to it)", tensor.name, kHead)
                                      : tensor.name);
      stored_as_[tensor.name] = stored;
    }
  if (missing.empty()) return;
  bool const only_head = missing.size() == 1 && missing.front() == kHead;
  fail(Fault::bad_input,
       fmt::format("{} lacks {} of the model's tensors: {}. {}", origin_, missing.size(),
                   list_names(missing),
                   only_head
                       ? "Is the head tied to the embedding (tie_word_embeddings in config.json)?"
                       : "Do config.json and the weights belong together?"));
}

void SafetensorsWeights::check_shapes(model::ModelSpec const& spec) const {
  for (auto const& unit : spec.units)
    for (auto const& tensor : unit.tensors) {
      std::string const& stored = stored_as_.at(tensor.name);
      TensorInfo const* info = folder_.find(stored);
      if (info == nullptr) folder_.read(stored, 0, {});  // another type: the folder says which
      if (info != nullptr && info->shape != tensor.shape)
        fail(Fault::bad_input,
             fmt::format("{}: tensor '{}' has the shape {}, the model wants {}. Do "
                         "config.json and the weights belong together?",
                         origin_, stored, shape_text(info->shape), shape_text(tensor.shape)));
    }
}

void SafetensorsWeights::settle_tied_head(model::ModelSpec const& spec) {
  if (!spec.config.tied_head) return;
  std::string const head = stored_name(std::string(kHead));
  if (head.empty()) return;
  head_accounted_for_ = true;
  auto const embedding = stored_as_.find(embedding_name(spec.config.family));
  if (embedding != stored_as_.end() && embedding->second != head)
    check_same(embedding->second, head);
}

void SafetensorsWeights::check_same(std::string const& embedding, std::string const& head) const {
  TensorInfo const* const info = folder_.find(embedding);
  TensorInfo const* const other = folder_.find(head);
  std::string const advice =
      "config.json ties the two (tie_word_embeddings). Set that to false, or remove the head?";
  if (other == nullptr || other->shape != info->shape)
    fail(Fault::bad_input, fmt::format("{}: '{}' and '{}' differ in type or shape, but {}", origin_,
                                       head, embedding, advice));
  std::int64_t elements = 1;
  for (std::int64_t size : info->shape) elements *= size;
  std::vector<float> a(kPieceElements);
  std::vector<float> b(kPieceElements);
  for (std::int64_t begin = 0; begin < elements;
       begin += static_cast<std::int64_t>(kPieceElements)) {
    std::size_t const count = std::min(kPieceElements, static_cast<std::size_t>(elements - begin));
    folder_.read(embedding, begin, std::span(a).first(count));
    folder_.read(head, begin, std::span(b).first(count));
    for (std::size_t i = 0; i < count; ++i)
      if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]))
        fail(
            Fault::bad_input,
            fmt::format("{}: '{}' differs from '{}' (element {}: {} and {}), but {}", origin_, head,
                        embedding, begin + static_cast<std::int64_t>(i), b[i], a[i], advice));
  }
}

void SafetensorsWeights::check_extra() const {
  std::set<std::string_view> used;
  for (auto const& [name, stored] : stored_as_) used.insert(stored);
  if (head_accounted_for_) used.insert(kHead);
  std::vector<std::string> extra;
  auto const look = [&](std::string const& name) {
    if (!used.contains(name) && !is_buffer(name)) extra.push_back(name);
  };
  for (auto const& tensor : folder_.tensors()) look(tensor.name);
  for (auto const& tensor : folder_.others()) look(tensor.name);
  if (!extra.empty())
    fail(Fault::bad_input,
         fmt::format("{} holds {} tensors that the model does not have: {}. Do config.json "
                     "and the weights belong together?",
                     origin_, extra.size(), list_names(extra)));
}

}  // namespace spillway::io
