// Tiles of a rank's shards: their elements, and where their spilled kinds lie. Pure arithmetic.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lib/core/strong.hpp"
#include "lib/model/spec.hpp"
#include "lib/optim/state.hpp"
#include "lib/shard/flat.hpp"
#include "offload/tier.hpp"

namespace spillway::offload {

/// A piece of one unit's shard that passes through a slot at once. Its spilled kinds lie beside
/// each other on disk, in the order hi, lo, m, v, grad, and in the same order in a slot.
struct Tile {
  std::int64_t begin = 0;  // within the shard
  std::int64_t elements = 0;
  std::size_t file = 0;      // index of the swap file
  std::uint64_t offset = 0;  // of the first spilled kind
  int id = 0;                // unique in the store
};

/// A run of elements that decays, or not, alike; borders within the shard.
struct Segment {
  shard::Range range;
  bool decay = false;
};

struct UnitGeometry {
  std::int64_t elements = 0;  // of the shard
  shard::Range flat;          // the shard's range in the unit's padded flat
  UnitPlacement tiers{};
  std::vector<Tile> tiles;
  std::vector<Segment> segments;
  /// Byte offset of a kind in a tile of `elements`, counting spilled kinds only; meaningless for
  /// others.
  std::uint64_t spilled_offset(optim::StateKind kind, std::int64_t elements,
                               optim::StateTypes const& types) const;
  /// Bytes of the spilled kinds before `end` in tile order; end = grad gives what an update writes
  /// back.
  std::uint64_t spilled_prefix(optim::StateKind end, std::int64_t elements,
                               optim::StateTypes const& types) const;
  std::uint64_t spilled_bytes(std::int64_t elements, optim::StateTypes const& types) const;
  bool spills(optim::StateKind kind, optim::StateTypes const& types) const {
    return types.bytes(kind) > 0 && tiers[optim::index(kind)] == Tier::nvme;
  }
  bool spills_any(optim::StateTypes const& types) const;
};

struct Geometry {
  optim::StateTypes types;
  std::vector<UnitGeometry> units;
  std::vector<std::uint64_t> file_bytes;  // of each swap file
};

struct GeometryRequest {
  model::ModelSpec const& spec;
  optim::StateTypes types;
  Placement const& placement;
  std::int64_t tile_elements = 0;
  Rank rank;
  int ranks = 1;
  std::vector<double> directory_weights;  // share of the bytes that each directory gets
};

Geometry make_geometry(GeometryRequest const& request);

}  // namespace spillway::offload
