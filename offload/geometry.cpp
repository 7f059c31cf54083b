#include "offload/geometry.hpp"

#include <algorithm>

#include "lib/core/numeric.hpp"

namespace spillway::offload {
namespace {

using optim::StateKind;

std::vector<Segment> segments_of(model::UnitSpec const& unit, shard::FlatLayout const& layout,
                                 shard::Range own) {
  std::vector<Segment> result;
  for (std::size_t at = 0; at < unit.tensors.size(); ++at) {
    auto const common = shard::intersect(layout.tensors()[at].range, own);
    if (common.size() == 0) continue;
    result.push_back({{common.begin - own.begin, common.end - own.begin}, unit.tensors[at].decay});
  }
  return result;
}

// The file that is behind its share the most gets the next tile.
std::size_t next_file(std::vector<std::uint64_t> const& used, std::vector<double> const& weights) {
  std::size_t best = 0;
  for (std::size_t file = 1; file < used.size(); ++file)
    if (static_cast<double>(used[file]) * weights[best] <
        static_cast<double>(used[best]) * weights[file])
      best = file;
  return best;
}

}  // namespace

std::uint64_t UnitGeometry::spilled_prefix(StateKind end, std::int64_t count,
                                           optim::StateTypes const& types) const {
  std::uint64_t bytes = 0;
  for (StateKind kind : optim::kStateKinds) {
    if (kind == end) break;
    if (spills(kind, types)) bytes += static_cast<std::uint64_t>(count) * types.bytes(kind);
  }
  return bytes;
}

std::uint64_t UnitGeometry::spilled_offset(StateKind kind, std::int64_t count,
                                           optim::StateTypes const& types) const {
  return spilled_prefix(kind, count, types);
}

std::uint64_t UnitGeometry::spilled_bytes(std::int64_t count,
                                          optim::StateTypes const& types) const {
  std::uint64_t const before = spilled_prefix(StateKind::grad, count, types);
  return before + (spills(StateKind::grad, types)
                       ? static_cast<std::uint64_t>(count) * types.bytes(StateKind::grad)
                       : 0);
}

bool UnitGeometry::spills_any(optim::StateTypes const& types) const {
  return std::any_of(optim::kStateKinds.begin(), optim::kStateKinds.end(),
                     [&](StateKind kind) { return spills(kind, types); });
}

Geometry make_geometry(GeometryRequest const& request) {
  Geometry result{.types = request.types, .units = {}, .file_bytes = {}};
  result.file_bytes.assign(request.directory_weights.size(), 0);
  int id = 0;
  for (std::size_t at = 0; at < request.spec.units.size(); ++at) {
    auto const layout = request.spec.layout(UnitId{narrow<int>(at)});
    UnitGeometry unit;
    unit.elements = layout.shard_elements(request.ranks);
    unit.flat = layout.shard_range(request.rank, request.ranks);
    unit.tiers = request.placement[at];
    unit.segments = segments_of(request.spec.units[at], layout, unit.flat);
    for (std::int64_t begin = 0; begin < unit.elements; begin += request.tile_elements) {
      Tile tile{.begin = begin,
                .elements = std::min(request.tile_elements, unit.elements - begin),
                .file = 0,
                .offset = 0,
                .id = id++};
      std::uint64_t const bytes = unit.spilled_bytes(tile.elements, request.types);
      if (bytes > 0) {
        tile.file = next_file(result.file_bytes, request.directory_weights);
        tile.offset = result.file_bytes[tile.file];
        result.file_bytes[tile.file] += bytes;
      }
      unit.tiles.push_back(tile);
    }
    result.units.push_back(std::move(unit));
  }
  return result;
}

}  // namespace spillway::offload
