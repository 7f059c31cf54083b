// Shards of all units over host memory and NVMe: implements what the engine asks of a store.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"
#include "io/engine.hpp"
#include "lib/device/device.hpp"
#include "lib/train/state_store.hpp"
#include "offload/fetcher.hpp"
#include "offload/geometry.hpp"
#include "offload/slot_pool.hpp"
#include "offload/spill_checksums.hpp"
#include "offload/swap_space.hpp"

namespace spillway::offload {

/// Bytes of the store's memory by purpose, for the planner.
struct StoreSizes {
  std::size_t states = 0;  // kept in host memory
  std::size_t slots = 0;
  std::size_t window = 0;
  std::size_t total() const { return states + slots + window; }
};

/// Bytes of one slot: a tile with all its kinds, and room to join the master weight for a
/// checkpoint.
std::size_t slot_bytes(std::int64_t tile_elements, optim::StateTypes const& types);
std::size_t host_state_bytes(Geometry const& geometry);

class TieredStore : public train::StateStore, private TileWork {
 public:
  struct Parts {
    Geometry geometry;
    int ranks = 1;
    int slots = 2;
    std::int64_t tile_elements = 0;
    std::size_t window_bytes = 0;
    bool checksums = false;        // of everything spilled, verified when read
    io::Engine* engine = nullptr;  // null where nothing is spilled and nothing is saved
    SwapSpace* swap = nullptr;
    device::Stream& stream;      // of the engine's thread
    device::Stream& background;  // of the fetcher's, one thread
  };
  /// `memory` has StoreSizes::total() bytes.
  TieredStore(Parts parts, std::span<std::byte> memory);
  ~TieredStore() override;

  /// Gives every tile its first contents. `fill(unit, flat range, view)` sets hi, lo, m and v of
  /// those elements of the flat.
  using Fill = std::function<void(UnitId, shard::Range, optim::StateView const&)>;
  void fill(Fill const& fill);

  /// From the next pass on, what Use::update leaves and Use::save reads goes to `writer` too.
  void begin_save(io::ShardWriter& writer);
  /// Waits for the last write; the writer may be finished then.
  void finish_save();

  void begin_pass(std::span<train::Fetch const> fetches, ops::AdamwStep const& step) override;
  std::span<std::byte> acquire(int index) override;
  void release(int index) override;
  void end_pass() override;
  std::span<float> lend_gradient(UnitId unit) override;
  double put_gradient(UnitId unit, std::span<float> shard, train::GradientPart part) override;
  train::StoreMeters meters() const override;

  /// True where acquire() lends the store's own memory: one rank with hi in host memory. Such a
  /// unit needs no window.
  static bool lends(UnitPlacement const& placement, int ranks) {
    return ranks == 1 && placement[optim::index(optim::StateKind::hi)] == Tier::host;
  }

 private:
  struct Reading {  // one issued item
    SlotId slot = -1;
    std::vector<io::Ticket> tickets;
  };

  bool issue(WorkItem const& item, bool must) override;
  void complete(WorkItem const& item) override;

  UnitGeometry const& unit_of(train::Fetch const& fetch) const;
  optim::StateView tile_view(std::size_t unit, Tile const& tile, SlotId slot) const;
  std::byte* host_kind(std::size_t unit, optim::StateKind kind) const;
  std::span<std::byte> own_window(train::Fetch const& fetch) const;
  bool through_fetcher(train::Fetch const& fetch) const;
  /// Sets or verifies the checksums of spilled state that lies in a slot as it does on disk.
  void seal(UnitGeometry const& unit, Tile const& tile, std::span<std::byte const> state);
  void verify(UnitGeometry const& unit, Tile const& tile, std::span<std::byte const> state) const;
  void verify_part(Tile const& tile, SpillPart part, std::span<std::byte const> bytes,
                   std::uint64_t offset) const;
  void run_inline(train::Fetch const& fetch);
  void update_elements(UnitGeometry const& unit, optim::StateView const& view, std::int64_t begin,
                       device::Stream& stream);
  void save_tile(std::size_t unit, Tile const& tile, optim::StateView const& view,
                 std::span<std::byte> master_room, std::vector<io::Ticket>& tickets);
  void save_host_unit(std::size_t unit);
  void wait_saved(std::size_t unit);
  void put_tile(std::span<float> piece, std::byte* stored, train::GradientPart part,
                double& squares);
  void spill_gradient(UnitGeometry const& unit, std::span<float> shard, train::GradientPart part,
                      double& squares);

  Parts parts_;
  std::span<std::byte> states_, window_;
  std::vector<std::array<std::size_t, optim::kKinds>> host_offset_;
  SlotPool slots_;
  SpillChecksums checksums_;
  std::vector<train::Fetch> pass_;
  ops::AdamwStep step_;
  std::vector<std::vector<Reading>> readings_;  // of the pass: [fetch][tile]
  io::ShardWriter* writer_ = nullptr;
  std::vector<std::vector<io::Ticket>>
      saving_;  // of each unit: writes out of host memory under way
  double stall_s_ = 0;
  std::unique_ptr<Fetcher> fetcher_;  // last: stops before the rest is destroyed
};

}  // namespace spillway::offload
