// The schedule of a step: its operations and fetches in unit-major order (DESIGN.md section 3).
// Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lib/train/state_store.hpp"

namespace spillway::train {

enum class OpKind : std::uint8_t { embed, block, head, block_backward, embed_backward, flush };

/// One operation: a unit and all micro-batches of a wave. `fetch` and `fetch_embedding` index
/// Schedule::fetches, -1 for none; a head whose weight is the embedding's has both.
struct Op {
  OpKind kind = OpKind::embed;
  UnitId unit;
  int wave = 0;
  int fetch = -1;
  int fetch_embedding = -1;
};

struct Schedule {
  std::vector<Op> ops;
  std::vector<Fetch> fetches;
  std::size_t window_bytes = 0;  // that all fetches together need
};

/// What a schedule depends on.
struct ScheduleShape {
  int blocks = 0;  // units: embedding, blocks, head
  bool tied_head = false;
  int waves = 1;
  std::vector<std::size_t>
      gathered_bytes;  // of each unit's padded flat; 0 where the store lends its own memory
  int units() const { return blocks + 2; }
};

/// Forward and backward of all waves. `pending`: the first fetch of each unit updates it.
Schedule train_schedule(ScheduleShape const& shape, bool pending);
/// Forward and loss only, one wave.
Schedule forward_schedule(ScheduleShape const& shape, bool pending);
/// Every unit once without computing: Use::update flushes pending updates, Use::save reads the
/// state.
Schedule flush_schedule(ScheduleShape const& shape, Use use);

}  // namespace spillway::train
