// Gradients in the tiered store: merged where they are kept, in host memory or tile by tile on
// NVMe.
#include <algorithm>
#include <chrono>

#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"
#include "lib/ops/gradient.hpp"
#include "offload/store_support.hpp"
#include "offload/tiered_store.hpp"

namespace spillway::offload {

using optim::StateKind;

// Tiles are cut at multiples of both.
static_assert(ops::kSquarePiece == io::kChecksumElements);

void TieredStore::put_tile(std::span<float> piece, std::byte* stored, train::GradientPart part,
                           double& squares) {
  auto const merge = [&]<class T>(T* kept) {
    ops::MergeGradient<T> const args{.n = narrow<std::int64_t>(piece.size()),
                                     .part = piece.data(),
                                     .stored = kept,
                                     .add = !part.first};
    ops::merge_gradient(args, part.last ? &squares : nullptr, parts_.stream);
  };
  if (parts_.geometry.types.grad == DType::f32)
    merge(reinterpret_cast<float*>(stored));
  else
    merge(reinterpret_cast<bf16*>(stored));
}

std::span<float> TieredStore::lend_gradient(UnitId unit_id) {
  auto const at = static_cast<std::size_t>(unit_id.get());
  auto const& unit = parts_.geometry.units[at];
  auto const& types = parts_.geometry.types;
  if (types.grad != DType::f32 || unit.spills(StateKind::grad, types)) return {};
  return {reinterpret_cast<float*>(host_kind(at, StateKind::grad)),
          static_cast<std::size_t>(unit.elements)};
}

double TieredStore::put_gradient(UnitId unit_id, std::span<float> shard, train::GradientPart part) {
  auto const at = static_cast<std::size_t>(unit_id.get());
  auto const& unit = parts_.geometry.units[at];
  expect(narrow<std::int64_t>(shard.size()) == unit.elements, "a gradient fills its shard");
  double squares = 0;
  if (unit.spills(StateKind::grad, parts_.geometry.types)) {
    spill_gradient(unit, shard, part, squares);
  } else {
    put_tile(shard, host_kind(at, StateKind::grad), part, squares);
  }
  return squares;
}

void TieredStore::spill_gradient(UnitGeometry const& unit, std::span<float> shard,
                                 train::GradientPart part, double& squares) {
  auto const& types = parts_.geometry.types;
  auto const place = [&](Tile const& tile) {
    return FileOffset{tile.offset + unit.spilled_offset(StateKind::grad, tile.elements, types)};
  };
  auto const room = [&](Tile const& tile, SlotId slot) {
    return slots_.bytes(slot).first(static_cast<std::size_t>(tile.elements) *
                                    types.bytes(StateKind::grad));
  };
  auto const open = [&](Tile const& tile) {
    auto const start = std::chrono::steady_clock::now();
    slots_.settle(tile.id);
    Reading reading{.slot = slots_.take(), .tickets = {}};
    stall_s_ += seconds_since(start);
    if (!part.first)
      reading.tickets.push_back(
          parts_.engine->read(parts_.swap->file(tile.file), place(tile), room(tile, reading.slot)));
    return reading;
  };
  Reading next = open(unit.tiles.front());
  for (std::size_t i = 0; i < unit.tiles.size(); ++i) {
    Tile const& tile = unit.tiles[i];
    Reading current = std::move(next);
    if (i + 1 < unit.tiles.size()) next = open(unit.tiles[i + 1]);
    auto const start = std::chrono::steady_clock::now();
    for (auto& ticket : current.tickets) ticket.wait();
    stall_s_ += seconds_since(start);
    auto const stored = room(tile, current.slot);
    if (!part.first)
      verify_part(tile, SpillPart::grad, stored,
                  unit.spilled_offset(StateKind::grad, tile.elements, types));
    put_tile(shard.subspan(static_cast<std::size_t>(tile.begin),
                           static_cast<std::size_t>(tile.elements)),
             stored.data(), part, squares);
    checksums_.set(tile.id, SpillPart::grad, stored);
    std::vector<io::Ticket> writes;
    writes.push_back(
        parts_.engine->write(parts_.swap->file(tile.file), place(tile), room(tile, current.slot)));
    slots_.drain(current.slot, tile.id, std::move(writes));
  }
}

}  // namespace spillway::offload
