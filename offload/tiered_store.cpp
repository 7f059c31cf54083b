#include "offload/tiered_store.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"
#include "offload/store_support.hpp"

namespace spillway::offload {
namespace {

using optim::StateKind;
using train::Use;

constexpr std::size_t kAlignment = 4096;

StateKind source_of(io::SavedKind kind) {
  switch (kind) {
    case io::SavedKind::m: return StateKind::m;
    case io::SavedKind::v: return StateKind::v;
    default: return StateKind::hi;
  }
}

std::size_t tile_count(Geometry const& geometry) {
  std::size_t count = 0;
  for (auto const& unit : geometry.units) count += unit.tiles.size();
  return count;
}

}  // namespace

std::size_t slot_bytes(std::int64_t tile_elements, optim::StateTypes const& types) {
  std::size_t const room = types.compute == DType::f32 ? 0 : sizeof(float);
  return static_cast<std::size_t>(tile_elements) * (types.bytes_all() + room);
}

std::size_t host_state_bytes(Geometry const& geometry) {
  std::size_t bytes = 0;
  for (auto const& unit : geometry.units)
    for (StateKind kind : optim::kStateKinds)
      if (!unit.spills(kind, geometry.types))
        bytes += round_up(static_cast<std::size_t>(unit.elements) * geometry.types.bytes(kind),
                          kAlignment);
  return bytes;
}

TieredStore::TieredStore(Parts parts, std::span<std::byte> memory)
    : parts_(std::move(parts)),
      slots_(memory.first(static_cast<std::size_t>(parts_.slots) *
                          slot_bytes(parts_.tile_elements, parts_.geometry.types)),
             parts_.slots),
      checksums_(parts_.checksums, tile_count(parts_.geometry)) {
  std::size_t const slots_bytes = static_cast<std::size_t>(parts_.slots) *
                                  slot_bytes(parts_.tile_elements, parts_.geometry.types);
  window_ = memory.subspan(slots_bytes, parts_.window_bytes);
  states_ = memory.subspan(slots_bytes + parts_.window_bytes);
  expect(states_.size() >= host_state_bytes(parts_.geometry), "the store gets the memory it needs");
  std::size_t offset = 0;
  for (auto const& unit : parts_.geometry.units) {
    auto& offsets = host_offset_.emplace_back();
    for (StateKind kind : optim::kStateKinds) {
      if (unit.spills(kind, parts_.geometry.types)) continue;
      offsets[optim::index(kind)] = offset;
      offset += round_up(
          static_cast<std::size_t>(unit.elements) * parts_.geometry.types.bytes(kind), kAlignment);
    }
  }
  saving_.resize(parts_.geometry.units.size());
  fetcher_ = std::make_unique<Fetcher>(static_cast<TileWork&>(*this));
}

TieredStore::~TieredStore() = default;

std::byte* TieredStore::host_kind(std::size_t unit, StateKind kind) const {
  return states_.data() + host_offset_[unit][optim::index(kind)];
}

UnitGeometry const& TieredStore::unit_of(train::Fetch const& fetch) const {
  return parts_.geometry.units[static_cast<std::size_t>(fetch.unit.get())];
}

optim::StateView TieredStore::tile_view(std::size_t unit_index, Tile const& tile,
                                        SlotId slot) const {
  auto const& unit = parts_.geometry.units[unit_index];
  auto const& types = parts_.geometry.types;
  optim::StateView view{.data = {}, .elements = tile.elements};
  for (StateKind kind : optim::kStateKinds) {
    if (types.bytes(kind) == 0) continue;
    if (!unit.spills(kind, types)) {
      view.data[optim::index(kind)] =
          host_kind(unit_index, kind) + static_cast<std::size_t>(tile.begin) * types.bytes(kind);
    } else if (slot >= 0) {
      view.data[optim::index(kind)] =
          slots_.bytes(slot).data() + unit.spilled_offset(kind, tile.elements, types);
    }
  }
  return view;
}

std::span<std::byte> TieredStore::own_window(train::Fetch const& fetch) const {
  if (fetch.window.bytes == 0) return {};
  auto const& unit = unit_of(fetch);
  std::size_t const element = parts_.geometry.types.bytes(StateKind::hi);
  auto const part = static_cast<std::size_t>(unit.elements) * element;
  return window_.subspan(fetch.window.offset + static_cast<std::size_t>(unit.flat.begin) * element,
                         part);
}

bool TieredStore::through_fetcher(train::Fetch const& fetch) const {
  auto const& unit = unit_of(fetch);
  return fetch.use == Use::weights ? unit.spills(StateKind::hi, parts_.geometry.types)
                                   : unit.spills_any(parts_.geometry.types);
}

void TieredStore::begin_pass(std::span<train::Fetch const> fetches, ops::AdamwStep const& step) {
  pass_.assign(fetches.begin(), fetches.end());
  step_ = step;
  readings_.clear();
  readings_.resize(pass_.size());
  std::vector<WorkItem> items;
  for (std::size_t at = 0; at < pass_.size(); ++at) {
    if (!through_fetcher(pass_[at])) continue;
    std::size_t const tiles = unit_of(pass_[at]).tiles.size();
    readings_[at].resize(tiles);
    for (std::size_t tile = 0; tile < tiles; ++tile) items.push_back({narrow<int>(at), tile});
  }
  fetcher_->begin(pass_, std::move(items));
}

std::span<std::byte> TieredStore::acquire(int index) {
  auto const start = std::chrono::steady_clock::now();
  auto const& fetch = pass_[static_cast<std::size_t>(index)];
  if (through_fetcher(fetch)) {
    fetcher_->wait(index);
    stall_s_ += seconds_since(start);
  } else {
    run_inline(fetch);
  }
  if (fetch.window.bytes > 0) {
    auto const& unit = unit_of(fetch);
    return window_.subspan(fetch.window.offset, static_cast<std::size_t>(unit.elements) *
                                                    static_cast<std::size_t>(parts_.ranks) *
                                                    parts_.geometry.types.bytes(StateKind::hi));
  }
  auto const at = static_cast<std::size_t>(fetch.unit.get());
  if (!lends(unit_of(fetch).tiers, parts_.ranks)) return {};
  return {host_kind(at, StateKind::hi), static_cast<std::size_t>(unit_of(fetch).elements) *
                                            parts_.geometry.types.bytes(StateKind::hi)};
}

// States in host memory need no slot: all threads of the engine update the shard where it is.
void TieredStore::run_inline(train::Fetch const& fetch) {
  auto const at = static_cast<std::size_t>(fetch.unit.get());
  auto const& unit = unit_of(fetch);
  auto const& types = parts_.geometry.types;
  if (fetch.use == Use::update) {
    wait_saved(at);
    Tile const whole{.begin = 0, .elements = unit.elements};
    update_elements(unit, tile_view(at, whole, -1), 0, parts_.stream);
  }
  if (fetch.use != Use::weights && writer_) save_host_unit(at);
  if (auto const own = own_window(fetch); !own.empty())
    copy_parallel(own.data(), host_kind(at, StateKind::hi),
                  static_cast<std::size_t>(unit.elements) * types.bytes(StateKind::hi),
                  parts_.stream);
}

void TieredStore::release(int index) { fetcher_->release(index); }

void TieredStore::end_pass() { fetcher_->end(); }

bool TieredStore::issue(WorkItem const& item, bool must) {
  auto const& fetch = pass_[static_cast<std::size_t>(item.fetch)];
  auto const& unit = unit_of(fetch);
  auto const& types = parts_.geometry.types;
  Tile const& tile = unit.tiles[item.tile];
  auto& reading = readings_[static_cast<std::size_t>(item.fetch)][item.tile];
  auto const& file = parts_.swap->file(tile.file);
  slots_.settle(tile.id);
  if (fetch.use == Use::weights) {
    std::size_t const element = types.bytes(StateKind::hi);
    auto const into = own_window(fetch).subspan(static_cast<std::size_t>(tile.begin) * element,
                                                static_cast<std::size_t>(tile.elements) * element);
    reading.tickets.push_back(parts_.engine->read(file, FileOffset{tile.offset}, into));
    return true;
  }
  reading.slot = must ? slots_.take() : slots_.try_take();
  if (reading.slot < 0) return false;
  // A checkpoint needs no gradient.
  std::uint64_t const bytes = fetch.use == Use::save
                                  ? unit.spilled_prefix(StateKind::grad, tile.elements, types)
                                  : unit.spilled_bytes(tile.elements, types);
  if (bytes > 0)
    reading.tickets.push_back(parts_.engine->read(file, FileOffset{tile.offset},
                                                  slots_.bytes(reading.slot).first(bytes)));
  return true;
}

void TieredStore::complete(WorkItem const& item) {
  auto const& fetch = pass_[static_cast<std::size_t>(item.fetch)];
  auto const at = static_cast<std::size_t>(fetch.unit.get());
  auto const& unit = unit_of(fetch);
  auto const& types = parts_.geometry.types;
  Tile const& tile = unit.tiles[item.tile];
  auto& reading = readings_[static_cast<std::size_t>(item.fetch)][item.tile];
  for (auto& ticket : reading.tickets) ticket.wait();
  if (fetch.use == Use::weights) {
    std::size_t const element = types.bytes(StateKind::hi);
    verify_part(tile, SpillPart::hi,
                own_window(fetch).subspan(static_cast<std::size_t>(tile.begin) * element,
                                          static_cast<std::size_t>(tile.elements) * element),
                0);
    return;
  }
  std::uint64_t const prefix = unit.spilled_prefix(StateKind::grad, tile.elements, types);
  verify(unit, tile, slots_.bytes(reading.slot).first(prefix));
  if (fetch.use == Use::update && unit.spills(StateKind::grad, types))
    verify_part(tile, SpillPart::grad,
                slots_.bytes(reading.slot)
                    .subspan(prefix, static_cast<std::size_t>(tile.elements) *
                                         types.bytes(StateKind::grad)),
                prefix);

  optim::StateView const view = tile_view(at, tile, reading.slot);
  std::vector<io::Ticket> writes;
  if (fetch.use == Use::update) {
    if (item.tile == 0) wait_saved(at);
    update_elements(unit, view, tile.begin, parts_.background);
    if (auto const own = own_window(fetch); !own.empty())
      std::memcpy(own.data() + static_cast<std::size_t>(tile.begin) * types.bytes(StateKind::hi),
                  view[StateKind::hi],
                  static_cast<std::size_t>(tile.elements) * types.bytes(StateKind::hi));
    auto const state = slots_.bytes(reading.slot).first(prefix);
    seal(unit, tile, state);
    if (prefix > 0)
      writes.push_back(
          parts_.engine->write(parts_.swap->file(tile.file), FileOffset{tile.offset}, state));
  }
  if (writer_) {
    auto const room = slots_.bytes(reading.slot)
                          .last(static_cast<std::size_t>(tile.elements) * sizeof(float) *
                                (types.compute == DType::f32 ? 0 : 1));
    save_tile(at, tile, view, room, writes);
  }
  slots_.drain(reading.slot, tile.id, std::move(writes));
}

void TieredStore::seal(UnitGeometry const& unit, Tile const& tile,
                       std::span<std::byte const> state) {
  auto const hi = unit.spilled_prefix(StateKind::lo, tile.elements, parts_.geometry.types);
  checksums_.set(tile.id, SpillPart::hi, state.first(hi));
  checksums_.set(tile.id, SpillPart::rest, state.subspan(hi));
}

void TieredStore::verify(UnitGeometry const& unit, Tile const& tile,
                         std::span<std::byte const> state) const {
  auto const hi = unit.spilled_prefix(StateKind::lo, tile.elements, parts_.geometry.types);
  verify_part(tile, SpillPart::hi, state.first(hi), 0);
  verify_part(tile, SpillPart::rest, state.subspan(hi), hi);
}

void TieredStore::verify_part(Tile const& tile, SpillPart part, std::span<std::byte const> bytes,
                              std::uint64_t offset) const {
  if (!parts_.checksums || bytes.empty()) return;
  checksums_.check(tile.id, part, bytes, parts_.swap->file(tile.file).path(), tile.offset + offset);
}

void TieredStore::update_elements(UnitGeometry const& unit, optim::StateView const& view,
                                  std::int64_t begin, device::Stream& stream) {
  shard::Range const piece{begin, begin + view.elements};
  bool const wide = parts_.geometry.types.compute == DType::f32;
  bool const wide_gradient = parts_.geometry.types.grad == DType::f32;
  for (Segment const& segment : unit.segments) {
    auto const common = shard::intersect(segment.range, piece);
    if (common.size() == 0) continue;
    std::int64_t const at = common.begin - begin;
    ops::AdamwState state{.n = common.size()};
    if (wide) {
      state.hi32 = view.as<float>(StateKind::hi) + at;
    } else {
      state.hi = view.as<bf16>(StateKind::hi) + at;
      state.lo = view.as<std::int16_t>(StateKind::lo) + at;
    }
    state.m = view.as<float>(StateKind::m) + at;
    state.v = view.as<float>(StateKind::v) + at;
    if (wide_gradient) {
      state.grad32 = view.as<float>(StateKind::grad) + at;
    } else {
      state.grad16 = view.as<bf16>(StateKind::grad) + at;
    }
    ops::AdamwStep step = step_;
    if (!segment.decay) step.weight_decay = 0;
    ops::adamw(state, step, stream);
  }
}

void TieredStore::begin_save(io::ShardWriter& writer) { writer_ = &writer; }

void TieredStore::finish_save() {
  for (std::size_t unit = 0; unit < saving_.size(); ++unit) wait_saved(unit);
  slots_.settle_all();
  writer_ = nullptr;
}

void TieredStore::wait_saved(std::size_t unit) {
  for (auto& ticket : saving_[unit]) ticket.wait();
  saving_[unit].clear();
}

// Kinds in host memory are written from where they are: their tickets guard them until the next
// update.
void TieredStore::save_tile(std::size_t unit_index, Tile const& tile, optim::StateView const& view,
                            std::span<std::byte> master_room, std::vector<io::Ticket>& tickets) {
  auto const& unit = parts_.geometry.units[unit_index];
  auto const& types = parts_.geometry.types;
  UnitId const id{narrow<int>(unit_index)};
  for (auto kind : {io::SavedKind::weight, io::SavedKind::m, io::SavedKind::v}) {
    StateKind const source = source_of(kind);
    std::span<std::byte const> const data{
        view[source], static_cast<std::size_t>(tile.elements) * types.bytes(source)};
    auto& guard = unit.spills(source, types) ? tickets : saving_[unit_index];
    guard.push_back(writer_->write(id, kind, tile.begin, data));
  }
  if (types.compute == DType::f32) return;
  auto* const master = reinterpret_cast<float*>(master_room.data());
  for (std::int64_t i = 0; i < tile.elements; ++i)
    master[i] =
        ops::join_master(view.as<bf16>(StateKind::hi)[i], view.as<std::int16_t>(StateKind::lo)[i]);
  tickets.push_back(writer_->write(id, io::SavedKind::master, tile.begin, master_room));
}

void TieredStore::save_host_unit(std::size_t unit_index) {
  wait_saved(unit_index);
  auto const& types = parts_.geometry.types;
  for (Tile const& tile : parts_.geometry.units[unit_index].tiles) {
    auto const view = tile_view(unit_index, tile, -1);
    std::vector<io::Ticket> tickets;
    if (types.compute == DType::f32) {
      save_tile(unit_index, tile, view, {}, tickets);
      continue;
    }
    SlotId const slot = slots_.take();
    auto const room =
        slots_.bytes(slot).first(static_cast<std::size_t>(tile.elements) * sizeof(float));
    save_tile(unit_index, tile, view, room, tickets);
    slots_.drain(slot, tile.id, std::move(tickets));
  }
}

void TieredStore::fill(Fill const& fill) {
  auto const& types = parts_.geometry.types;
  for (std::size_t at = 0; at < parts_.geometry.units.size(); ++at) {
    auto const& unit = parts_.geometry.units[at];
    bool const spills = unit.spills_any(types);
    for (Tile const& tile : unit.tiles) {
      SlotId const slot = spills ? slots_.take() : -1;
      optim::StateView view = tile_view(at, tile, slot);
      view.data[optim::index(StateKind::grad)] = nullptr;
      for (StateKind kind : optim::kStateKinds)
        if (view[kind])
          std::memset(view[kind], 0, static_cast<std::size_t>(tile.elements) * types.bytes(kind));
      std::int64_t const begin = unit.flat.begin + tile.begin;
      fill(UnitId{narrow<int>(at)}, {begin, begin + tile.elements}, view);
      if (!spills) continue;
      std::vector<io::Ticket> writes;
      std::uint64_t const bytes = unit.spilled_prefix(StateKind::grad, tile.elements, types);
      seal(unit, tile, slots_.bytes(slot).first(bytes));
      if (bytes > 0)
        writes.push_back(parts_.engine->write(parts_.swap->file(tile.file), FileOffset{tile.offset},
                                              slots_.bytes(slot).first(bytes)));
      slots_.drain(slot, tile.id, std::move(writes));
    }
  }
  slots_.settle_all();
}

train::StoreMeters TieredStore::meters() const {
  train::StoreMeters meters{.stall_s = stall_s_};
  if (!parts_.engine) return meters;
  auto const stats = parts_.engine->stats();
  meters.read_bytes = stats.read_bytes;
  meters.written_bytes = stats.written_bytes;
  return meters;
}

}  // namespace spillway::offload
