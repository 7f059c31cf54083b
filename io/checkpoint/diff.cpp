// Comparison of two checkpoints, tensor by tensor, whatever their numbers of ranks.
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "io/checkpoint/checkpoint.hpp"

namespace spillway::io {

namespace {

constexpr std::int64_t kPiece = 1 << 20;  // elements compared at a time

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

Shapes shapes_of(CheckpointReader const& reader) {
  Shapes shapes;
  for (auto const& unit : reader.schema().units)
    for (auto const& tensor : unit.layout.tensors()) shapes[tensor.name] = tensor.shape;
  return shapes;
}

struct Difference {
  std::int64_t elements = 0;
  double largest = 0;
  bool not_a_number = false;

  void add(std::span<float const> first, std::span<float const> second) {
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(first[i]) == std::bit_cast<std::uint32_t>(second[i]))
        continue;
      ++elements;
      double const distance =
          std::abs(static_cast<double>(first[i]) - static_cast<double>(second[i]));
      if (std::isnan(distance)) not_a_number = true;
      largest = std::max(largest, std::isnan(distance) ? 0.0 : distance);
    }
  }
};

Difference compare(CheckpointReader const& first, CheckpointReader const& second, SavedKind kind,
                   std::string const& name, std::int64_t count, Engine& engine) {
  Difference difference;
  std::vector<float> left(static_cast<std::size_t>(std::min(kPiece, count)));
  std::vector<float> right(left.size());
  for (std::int64_t at = 0; at < count; at += kPiece) {
    auto const size = static_cast<std::size_t>(std::min(kPiece, count - at));
    first.read_tensor(kind, name, at, std::span(left).first(size), engine);
    second.read_tensor(kind, name, at, std::span(right).first(size), engine);
    difference.add(std::span(left).first(size), std::span(right).first(size));
  }
  return difference;
}

}  // namespace

std::vector<std::string> diff_checkpoints(CheckpointReader const& first,
                                          CheckpointReader const& second, Engine& engine) {
  std::vector<std::string> lines;
  auto const left = shapes_of(first);
  auto const right = shapes_of(second);
  for (auto const& [name, shape] : right)
    if (!left.contains(name))
      lines.push_back(fmt::format("{}: only in {}", name, second.directory().string()));
  std::vector<SavedKind> kinds{SavedKind::weight, SavedKind::m, SavedKind::v};
  // Where both are fp32, the weight is the master and is compared once.
  if (first.schema().has(SavedKind::master) || second.schema().has(SavedKind::master))
    kinds.insert(kinds.begin() + 1, SavedKind::master);
  for (auto const& [name, shape] : left) {
    auto const other = right.find(name);
    if (other == right.end()) {
      lines.push_back(fmt::format("{}: only in {}", name, first.directory().string()));
      continue;
    }
    if (other->second != shape) {
      lines.push_back(fmt::format("{}: shapes differ", name));
      continue;
    }
    std::int64_t const count = shard::element_count(shape);
    for (SavedKind kind : kinds) {
      auto const difference = compare(first, second, kind, name, count, engine);
      if (difference.elements == 0) continue;
      lines.push_back(fmt::format("{} {}: {} of {} elements differ, largest difference {:.9g}{}",
                                  name, name_of(kind), difference.elements, count,
                                  difference.largest,
                                  difference.not_a_number ? ", some are not numbers" : ""));
    }
  }
  return lines;
}

}  // namespace spillway::io
