// First contents of a rank's shards: from a weight source or from a checkpoint, written where they
// will live.
#pragma once

#include "io/checkpoint/checkpoint.hpp"
#include "io/engine.hpp"
#include "lib/model/weight_source.hpp"
#include "offload/tiered_store.hpp"

namespace spillway::app {

/// Weights from `source`, moments zero.
void fill_weights(offload::TieredStore& store, model::ModelSpec const& spec,
                  optim::StateTypes const& types, model::WeightSource& source,
                  device::Stream& stream);

/// Weights and moments of a checkpoint, saved by any number of ranks.
void fill_state(offload::TieredStore& store, optim::StateTypes const& types,
                io::CheckpointReader const& reader, io::Engine& engine);

/// What checkpoints of this model hold.
io::CheckpointSchema checkpoint_schema(model::ModelSpec const& spec, DType compute);

}  // namespace spillway::app
