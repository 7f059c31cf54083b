#include "lib/model/head.hpp"

#include <algorithm>

#include "lib/core/numeric.hpp"
#include "lib/model/names.hpp"
#include "lib/ops/cross_entropy.hpp"

namespace spillway::model {
namespace {

constexpr std::int64_t kLogitsBytes = std::int64_t{8} << 20;
constexpr std::int64_t kRowsLeast = 16;

UnitId head_unit(ModelSpec const& spec) { return UnitId{narrow<int>(spec.units.size() - 1)}; }

LinearPlace find_projection(ModelSpec const& spec) {
  ModelNames const& names = model_names(spec.config.family);
  shard::FlatLayout const layout = spec.layout(spec.config.tied_head ? UnitId{0} : head_unit(spec));
  return find_linear(layout, spec.config.tied_head ? names.token_embedding : names.head,
                     WeightOrder::out_in, false);
}

}  // namespace

template <class T>
Head<T>::Head(ModelSpec const& spec)
    : tied_(spec.config.tied_head),
      width_(spec.config.hidden_size),
      norm_(spec.config, spec.layout(head_unit(spec)), model_names(spec.config.family).final_norm),
      projection_(find_projection(spec)) {}

/// Each part reads and writes the whole weight's gradient: with few rows that traffic outweighs the
/// products (GPT-2 small, bf16: 41 rows cost 18 % more than 171). So a part's logits take 8 MiB or,
/// if that is more, a quarter of what the gradient takes. Even parts, so that at most two shapes of
/// product occur.
template <class T>
std::int64_t Head<T>::chunk_rows(std::int64_t rows) const {
  std::int64_t const row_bytes = projection_.out() * static_cast<std::int64_t>(sizeof(float));
  std::int64_t const most = std::max({kRowsLeast, kLogitsBytes / row_bytes, width_ / 4});
  return div_ceil(rows, div_ceil(rows, most));
}

template <class T>
auto Head<T>::carve(std::int64_t rows, Carver& carver) const -> Temporaries {
  Temporaries temporary{};
  temporary.normed = carver.take<T>(rows * width_);
  temporary.statistics = {carver.take<float>(rows), carver.take<float>(rows)};
  temporary.logits = carver.take<float>(rows * projection_.out());
  temporary.dlogits = carver.take<T>(rows * projection_.out());
  temporary.losses = carver.take<float>(rows);
  return temporary;
}

template <class T>
LossSum Head<T>::run(HeadUnits units, Tokens tokens, float scale, T const* x, T* dx_out,
                     Carver& carver, device::Stream& stream) const {
  std::int64_t const rows = static_cast<std::int64_t>(tokens.targets.size());
  std::int64_t const chunk = chunk_rows(rows);
  Temporaries const temporary = carve(chunk, carver);
  LossSum sum;
  for (std::int64_t begin = 0; begin < rows; begin += chunk) {
    std::int64_t const count = std::min(chunk, rows - begin);
    T const* const x_part = x + begin * width_;
    norm_.forward(units.head, count, x_part, temporary.normed, temporary.statistics, stream);
    projection_.forward(weight_unit(units), count, temporary.normed, temporary.logits, stream);
    ops::CrossEntropy<T> loss;
    loss.rows = count;
    loss.V = projection_.out();
    loss.logits = temporary.logits;
    loss.targets = tokens.targets.data() + begin;
    loss.scale = scale;
    loss.losses = temporary.losses;
    loss.dlogits = dx_out == nullptr ? nullptr : temporary.dlogits;
    ops::cross_entropy(loss, stream);
    stream.synchronize();
    for (std::int64_t row = 0; row < count; ++row) {
      sum.loss += static_cast<double>(temporary.losses[row]);
      sum.targets += loss.targets[row] >= 0 ? 1 : 0;
    }
    if (dx_out == nullptr) continue;
    T* const dx_part = dx_out + begin * width_;
    projection_.backward_weights(weight_unit(units), count, temporary.normed, temporary.dlogits,
                                 stream);
    projection_.backward_input(weight_unit(units), count, temporary.dlogits, dx_part, false,
                               stream);
    norm_.backward(units.head, count, x_part, temporary.statistics, dx_part, dx_part, Target::set,
                   stream);
  }
  return sum;
}

template <class T>
void Head<T>::logits(HeadUnits units, T const* row, float* out, Carver& carver,
                     device::Stream& stream) const {
  Temporaries const temporary = carve(1, carver);
  norm_.forward(units.head, 1, row, temporary.normed, temporary.statistics, stream);
  projection_.forward(weight_unit(units), 1, temporary.normed, out, stream);
}

template <class T>
std::size_t Head<T>::scratch_bytes(std::int64_t rows, int threads) const {
  std::int64_t const chunk = chunk_rows(rows);
  std::int64_t const last = rows % chunk == 0 ? chunk : rows % chunk;
  return std::max({projection_.scratch_bytes(1, threads), projection_.scratch_bytes(chunk, threads),
                   projection_.scratch_bytes(last, threads)});
}

template class Head<float>;
template class Head<bf16>;

}  // namespace spillway::model
