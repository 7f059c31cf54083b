#include "app/state_fill.hpp"

#include <algorithm>
#include <exception>
#include <mutex>
#include <vector>

#include "lib/core/numeric.hpp"
#include "lib/device/for_each.hpp"

namespace spillway::app {
namespace {

using optim::StateKind;
using optim::StateView;

void set_master(StateView const& view, optim::StateTypes const& types, std::int64_t at,
                std::span<float const> values) {
  if (types.compute == DType::f32) {
    std::copy(values.begin(), values.end(), view.as<float>(StateKind::hi) + at);
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    bf16 hi;
    std::int16_t lo = 0;
    ops::split_master(values[i], hi, lo);
    view.as<bf16>(StateKind::hi)[static_cast<std::size_t>(at) + i] = hi;
    if (view[StateKind::lo])
      view.as<std::int16_t>(StateKind::lo)[static_cast<std::size_t>(at) + i] = lo;
  }
}

/// A piece of one tensor: elements of the tensor, and where they go in the tile.
struct Piece {
  model::TensorSpec const* tensor;
  std::int64_t begin;
  std::int64_t size;
  std::int64_t at;
};

std::vector<Piece> pieces_of(model::UnitSpec const& unit, shard::FlatLayout const& layout,
                             shard::Range flat) {
  constexpr std::int64_t kMost = 16384;  // a few tens of KiB of fp32 on a thread's stack of work
  std::vector<Piece> pieces;
  for (std::size_t t = 0; t < unit.tensors.size(); ++t) {
    shard::Range const tensor = layout.tensors()[t].range;
    shard::Range const common = shard::intersect(tensor, flat);
    for (std::int64_t from = common.begin; from < common.end; from += kMost)
      pieces.push_back({&unit.tensors[t], from - tensor.begin, std::min(kMost, common.end - from),
                        from - flat.begin});
  }
  return pieces;
}

}  // namespace

void fill_weights(offload::TieredStore& store, model::ModelSpec const& spec,
                  optim::StateTypes const& types, model::WeightSource& source,
                  device::Stream& stream) {
  std::vector<shard::FlatLayout> layouts;
  for (int unit = 0; unit < narrow<int>(spec.units.size()); ++unit)
    layouts.push_back(spec.layout(UnitId{unit}));
  store.fill([&](UnitId id, shard::Range flat, StateView const& view) {
    auto const at = static_cast<std::size_t>(id.get());
    auto const pieces = pieces_of(spec.units[at], layouts[at], flat);
    std::exception_ptr failure;  // an exception must not leave a thread of the team
    std::mutex mutex;
    device::for_each_row(
        narrow<std::int64_t>(pieces.size()),
        [&](std::int64_t row) {
          Piece const& piece = pieces[static_cast<std::size_t>(row)];
          try {
            std::vector<float> values(static_cast<std::size_t>(piece.size));
            source.read(*piece.tensor, piece.begin, values);
            set_master(view, types, piece.at, values);
          } catch (...) {
            std::lock_guard const lock(mutex);
            failure = std::current_exception();
          }
        },
        stream);
    if (failure) std::rethrow_exception(failure);
  });
}

void fill_state(offload::TieredStore& store, optim::StateTypes const& types,
                io::CheckpointReader const& reader, io::Engine& engine) {
  std::vector<float> master;
  store.fill([&](UnitId unit, shard::Range flat, StateView const& view) {
    auto const bytes = [&](StateKind kind) {
      return std::span(view[kind], static_cast<std::size_t>(view.elements) * types.bytes(kind));
    };
    bool const joined = reader.schema().has(io::SavedKind::master);
    if (joined && view[StateKind::lo]) {
      master.resize(static_cast<std::size_t>(view.elements));
      reader.read(unit, io::SavedKind::master, flat, std::as_writable_bytes(std::span(master)),
                  engine);
      set_master(view, types, 0, master);
    } else {
      reader.read(unit, io::SavedKind::weight, flat, bytes(StateKind::hi), engine);
    }
    if (view[StateKind::m]) reader.read(unit, io::SavedKind::m, flat, bytes(StateKind::m), engine);
    if (view[StateKind::v]) reader.read(unit, io::SavedKind::v, flat, bytes(StateKind::v), engine);
  });
}

io::CheckpointSchema checkpoint_schema(model::ModelSpec const& spec, DType compute) {
  io::CheckpointSchema schema;
  for (int unit = 0; unit < narrow<int>(spec.units.size()); ++unit)
    schema.units.push_back(
        {spec.units[static_cast<std::size_t>(unit)].name, spec.layout(UnitId{unit})});
  schema.weight_type = compute;
  schema.config_json = spec.config.json;
  return schema;
}

}  // namespace spillway::app
