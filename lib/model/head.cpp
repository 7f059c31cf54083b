#include "lib/model/head.hpp"

#include <algorithm>

#include "lib/core/numeric.hpp"
#include "lib/model/names.hpp"
#include "lib/ops/cross_entropy.hpp"
#include "lib/ops/pointwise.hpp"

namespace spillway::model {
namespace {

constexpr std::int64_t kMostRows = 2048;                      // the weight is read for each
constexpr std::int64_t kLogits = std::int64_t{2} << 20;       // 8 MiB stay in a last cache
constexpr std::int64_t kKeptLogits = std::int64_t{64} << 20;  // 256 MiB
constexpr std::int64_t kLeastColumns = 512, kGrain = 64;

UnitId head_unit(ModelSpec const& spec) { return UnitId{narrow<int>(spec.units.size() - 1)}; }

LinearPlace find_projection(ModelSpec const& spec) {
  ModelNames const& names = model_names(spec.config.family);
  shard::FlatLayout const layout = spec.layout(spec.config.tied_head ? UnitId{0} : head_unit(spec));
  return find_linear(layout, spec.config.tied_head ? names.token_embedding : names.head,
                     WeightOrder::out_in, false);
}

}  // namespace

/// Even parts, so that at most two shapes of product occur in each direction.
HeadCut cut_head(std::int64_t rows, std::int64_t vocabulary) {
  std::int64_t const most = std::clamp(kKeptLogits / vocabulary, kMostRows / 2, kMostRows);
  HeadCut cut{.rows = div_ceil(rows, div_ceil(rows, most)), .columns = 0};
  std::int64_t const columns = std::max(kLeastColumns, kLogits / cut.rows);
  std::int64_t const parts = div_ceil(vocabulary, columns);
  cut.columns = std::min(vocabulary, round_up(div_ceil(vocabulary, parts), kGrain));
  return cut;
}

template <class T>
Head<T>::Head(ModelSpec const& spec)
    : tied_(spec.config.tied_head),
      width_(spec.config.hidden_size),
      norm_(spec.config, spec.layout(head_unit(spec)), model_names(spec.config.family).final_norm),
      projection_(find_projection(spec)) {}

template <class T>
auto Head<T>::cut(std::int64_t rows, Logits logits) const -> Cut {
  // The same whether logits are kept or not: the rows that meet at once show in the last bits.
  HeadCut const even = cut_head(rows, projection_.out());
  return {.rows = even.rows, .columns = even.columns, .logits = logits};
}

template <class T>
auto Head<T>::cut_for(std::int64_t rows, Carver const& carver) const -> Cut {
  Cut const kept = cut(rows, Logits::kept);
  Carver counter;
  carve(kept, counter);
  return carver.has_room(counter.peak()) ? kept : cut(rows, Logits::recomputed);
}

template <class T>
auto Head<T>::carve(Cut cut, Carver& carver) const -> Temporaries {
  Temporaries temporary{};
  temporary.normed = carver.take<T>(cut.rows * width_);
  temporary.statistics = {carver.take<float>(cut.rows), carver.take<float>(cut.rows)};
  temporary.logits =
      carver.take<float>(cut.rows * (cut.logits == Logits::kept ? projection_.out() : cut.columns));
  temporary.dlogits = carver.take<T>(cut.rows * cut.columns);
  temporary.dnormed = carver.take<float>(cut.rows * width_);
  temporary.softmax = {carver.take<float>(cut.rows), carver.take<double>(cut.rows),
                       carver.take<float>(cut.rows)};
  temporary.losses = carver.take<float>(cut.rows);
  return temporary;
}

template <class T>
ops::LogitsPart Head<T>::part_of(Rows const& rows, Columns columns, Cut cut,
                                 Temporaries const& temporary) const {
  std::int64_t const before = cut.logits == Logits::kept ? rows.count * columns.first : 0;
  return {.rows = rows.count,
          .columns = columns.count,
          .first = columns.first,
          .logits = temporary.logits + before,
          .stride = columns.count,
          .targets = rows.targets};
}

template <class T>
void Head<T>::compute(HeadUnits units, ops::LogitsPart const& part, Temporaries const& temporary,
                      device::Stream& stream) const {
  // The part says where the logits are read; this is where they are written.
  float* const logits = temporary.logits + (part.logits - temporary.logits);
  projection_.outputs(part.first, part.columns)
      .forward(weight_unit(units), part.rows, temporary.normed, logits, stream);
}

template <class T>
LossSum Head<T>::losses(HeadUnits units, Rows const& rows, Cut cut, Temporaries const& temporary,
                        device::Stream& stream) const {
  ops::cross_entropy_start(rows.count, temporary.softmax, stream);
  for (std::int64_t first = 0; first < projection_.out(); first += cut.columns) {
    Columns const columns{first, std::min(cut.columns, projection_.out() - first)};
    ops::LogitsPart const part = part_of(rows, columns, cut, temporary);
    compute(units, part, temporary, stream);
    ops::cross_entropy_observe(part, temporary.softmax, stream);
  }
  ops::cross_entropy_losses(rows.count, rows.targets, temporary.softmax, temporary.losses, stream);
  stream.synchronize();
  LossSum sum;
  for (std::int64_t row = 0; row < rows.count; ++row) {
    sum.loss += static_cast<double>(temporary.losses[row]);
    sum.targets += rows.targets[row] >= 0 ? 1 : 0;
  }
  return sum;
}

template <class T>
void Head<T>::backward(HeadUnits units, Rows const& rows, Cut cut, float scale, T* dx,
                       Temporaries const& temporary, device::Stream& stream) const {
  UnitView const unit = weight_unit(units);
  for (std::int64_t first = 0; first < projection_.out(); first += cut.columns) {
    Columns const columns{first, std::min(cut.columns, projection_.out() - first)};
    Linear<T> const layer = projection_.outputs(columns.first, columns.count);
    ops::LogitsPart const part = part_of(rows, columns, cut, temporary);
    if (cut.logits == Logits::recomputed) compute(units, part, temporary, stream);
    ops::cross_entropy_gradient(part, temporary.softmax, scale, temporary.dlogits, stream);
    layer.backward_weights(unit, rows.count, temporary.normed, temporary.dlogits, stream);
    layer.backward_input(unit, rows.count, temporary.dlogits, temporary.dnormed, first > 0, stream);
  }
  T const* dnormed = dx;
  if constexpr (std::is_same_v<T, float>)
    dnormed = temporary.dnormed;
  else
    ops::round_to_bf16(rows.count * width_, temporary.dnormed, dx, stream);
  norm_.backward(units.head, rows.count, rows.x, temporary.statistics, dnormed, dx, Target::set,
                 stream);
}

template <class T>
LossSum Head<T>::run(HeadUnits units, Tokens tokens, float scale, T const* x, T* dx_out,
                     Carver& carver, device::Stream& stream) const {
  std::int64_t const all = static_cast<std::int64_t>(tokens.targets.size());
  Cut const cut = cut_for(all, carver);
  Temporaries const temporary = carve(cut, carver);
  LossSum sum;
  for (std::int64_t begin = 0; begin < all; begin += cut.rows) {
    Rows const rows{std::min(cut.rows, all - begin), x + begin * width_,
                    tokens.targets.data() + begin};
    norm_.forward(units.head, rows.count, rows.x, temporary.normed, temporary.statistics, stream);
    LossSum const part = losses(units, rows, cut, temporary, stream);
    sum.loss += part.loss;
    sum.targets += part.targets;
    if (dx_out != nullptr)
      backward(units, rows, cut, scale, dx_out + begin * width_, temporary, stream);
    units.head.fresh = units.embedding.fresh = false;
  }
  return sum;
}

template <class T>
void Head<T>::logits(HeadUnits units, T const* row, float* out, Carver& carver,
                     device::Stream& stream) const {
  Temporaries const temporary = carve(cut(1, Logits::recomputed), carver);
  norm_.forward(units.head, 1, row, temporary.normed, temporary.statistics, stream);
  projection_.forward(weight_unit(units), 1, temporary.normed, out, stream);
}

template <class T>
std::size_t Head<T>::scratch_bytes(std::int64_t rows, int threads) const {
  HeadCut const cut = cut_head(rows, projection_.out());
  std::size_t bytes = projection_.scratch_bytes(1, threads);
  for (std::int64_t const columns : {cut.columns, projection_.out() % cut.columns})
    for (std::int64_t const count : {cut.rows, rows % cut.rows})
      if (columns > 0 && count > 0)
        bytes = std::max(bytes, projection_.outputs(0, columns).scratch_bytes(count, threads));
  return bytes;
}

template class Head<float>;
template class Head<bf16>;

}  // namespace spillway::model
