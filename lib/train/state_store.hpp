// Where a unit's state is, as the engine sees it: it asks for units in a known order and gives
// gradients back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "lib/core/strong.hpp"
#include "lib/ops/adamw.hpp"

namespace spillway::train {

/// Why a unit is fetched. `weights`: to compute with. `update`: AdamW on its shard first, state
/// written back, then to compute with. `save`: its state is read for a checkpoint only.
enum class Use : std::uint8_t { weights, update, save };

/// A piece of the window in which units are gathered. bytes = 0: the fetch is not computed with.
struct WindowRange {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

/// One fetch of a pass. The store may start it once every earlier fetch whose window overlaps is
/// released.
struct Fetch {
  UnitId unit;
  Use use = Use::weights;
  WindowRange window;
};

/// How a gradient contribution of a unit goes into its stored gradient.
struct GradientPart {
  bool first = true;  // sets; otherwise adds
  bool last = true;   // completes it: the sum of squares counts
};

struct StoreMeters {
  double stall_s = 0;            // the engine waited for state
  std::uint64_t read_bytes = 0;  // NVMe
  std::uint64_t written_bytes = 0;
};

/// Shards of all units of one rank. Calls come from one thread; reading ahead and writing back
/// happen behind them.
class StateStore {
 public:
  virtual ~StateStore() = default;

  /// Announces a pass: its fetches in the order of acquire(); reading ahead begins. `step` is what
  /// Use::update applies.
  virtual void begin_pass(std::span<Fetch const> fetches, ops::AdamwStep const& step) = 0;
  /// Waits for fetch `index`. The result is the unit's whole flat with this rank's shard in its
  /// place; the other shards are gathered there by the caller. Empty for a fetch without window.
  virtual std::span<std::byte> acquire(int index) = 0;
  virtual void release(int index) = 0;
  /// All fetches have been released. Write-backs may still be under way.
  virtual void end_pass() = 0;

  /// Where put_gradient would keep a shard as it is, in fp32 in host memory: that memory, to make
  /// the only part of the gradient in. put_gradient then gets this very span. Else empty.
  virtual std::span<float> lend_gradient(UnitId unit) = 0;
  /// Takes this rank's shard of a unit's reduced gradient; returns its sum of squares when it is
  /// complete, else 0. `shard` may be rounded in place to the gradient's type.
  virtual double put_gradient(UnitId unit, std::span<float> shard, GradientPart part) = 0;

  virtual StoreMeters meters() const = 0;
};

}  // namespace spillway::train
