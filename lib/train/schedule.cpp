#include "lib/train/schedule.hpp"

#include <algorithm>

#include "lib/core/numeric.hpp"

namespace spillway::train {
namespace {

constexpr std::size_t kWindowAlignment = 4096;

/// Appends operations and their fetches; then lays the fetches into the window.
class Builder {
 public:
  Builder(ScheduleShape const& shape, bool pending)
      : shape_(shape), updates_(static_cast<std::size_t>(shape.units()), pending) {}

  void forward(int wave) {
    add({.kind = OpKind::embed, .unit = UnitId{0}, .wave = wave}, UnitId{0});
    for (int block = 1; block <= shape_.blocks; ++block)
      add({.kind = OpKind::block, .unit = UnitId{block}, .wave = wave}, UnitId{block});
    Op head{.kind = OpKind::head, .unit = UnitId{shape_.blocks + 1}, .wave = wave};
    if (shape_.tied_head) head.fetch_embedding = fetch(UnitId{0});
    add(head, head.unit);
  }

  void backward(int wave) {
    for (int block = shape_.blocks; block >= 1; --block)
      add({.kind = OpKind::block_backward, .unit = UnitId{block}, .wave = wave}, UnitId{block});
    result_.ops.push_back({.kind = OpKind::embed_backward, .unit = UnitId{0}, .wave = wave});
  }

  void visit(Use use) {
    for (int unit = 0; unit < shape_.units(); ++unit) {
      result_.ops.push_back({.kind = OpKind::flush,
                             .unit = UnitId{unit},
                             .fetch = narrow<int>(result_.fetches.size())});
      result_.fetches.push_back({.unit = UnitId{unit}, .use = use});
      bytes_.push_back(0);
    }
  }

  Schedule finish() {
    place();
    return std::move(result_);
  }

 private:
  void add(Op op, UnitId unit) {
    op.fetch = fetch(unit);
    result_.ops.push_back(op);
  }

  int fetch(UnitId unit) {
    auto const at = static_cast<std::size_t>(unit.get());
    Use const use = updates_[at] ? Use::update : Use::weights;
    updates_[at] = false;
    result_.fetches.push_back({.unit = unit, .use = use});
    bytes_.push_back(round_up(shape_.gathered_bytes.at(at), kWindowAlignment));
    return narrow<int>(result_.fetches.size()) - 1;
  }

  // A fetch occupies its range during the operation before its own (it is read ahead) and its own.
  struct Life {
    int from = 0;
    int to = 0;
  };

  std::vector<Life> lives() const {
    std::vector<Life> result(result_.fetches.size());
    for (int at = 0; at < narrow<int>(result_.ops.size()); ++at)
      for (int used : {result_.ops[static_cast<std::size_t>(at)].fetch,
                       result_.ops[static_cast<std::size_t>(at)].fetch_embedding})
        if (used >= 0) result[static_cast<std::size_t>(used)] = {at - 1, at};
    return result;
  }

  // First fit in order of time: the lowest offset that no fetch alive at the same time covers.
  void place() {
    auto const life = lives();
    for (std::size_t k = 0; k < result_.fetches.size(); ++k) {
      if (bytes_[k] == 0) continue;
      std::vector<WindowRange> taken;
      for (std::size_t j = 0; j < k; ++j)
        if (bytes_[j] > 0 && life[j].to >= life[k].from) taken.push_back(result_.fetches[j].window);
      std::sort(taken.begin(), taken.end(),
                [](WindowRange a, WindowRange b) { return a.offset < b.offset; });
      std::size_t offset = 0;
      for (WindowRange range : taken)
        if (range.offset < offset + bytes_[k])
          offset = std::max(offset, range.offset + range.bytes);
      result_.fetches[k].window = {offset, bytes_[k]};
      result_.window_bytes = std::max(result_.window_bytes, offset + bytes_[k]);
    }
  }

  ScheduleShape const& shape_;
  std::vector<bool> updates_;
  std::vector<std::size_t> bytes_;
  Schedule result_;
};

}  // namespace

Schedule train_schedule(ScheduleShape const& shape, bool pending) {
  Builder builder(shape, pending);
  for (int wave = 0; wave < shape.waves; ++wave) {
    builder.forward(wave);
    builder.backward(wave);
  }
  return builder.finish();
}

Schedule forward_schedule(ScheduleShape const& shape, bool pending) {
  Builder builder(shape, pending);
  builder.forward(0);
  return builder.finish();
}

Schedule flush_schedule(ScheduleShape const& shape, Use use) {
  Builder builder(shape, false);
  builder.visit(use);
  return builder.finish();
}

}  // namespace spillway::train
