// The steps of blocked attention, each compiled for every instruction set.
#include "lib/ops/detail/attention_tiles.hpp"

#include <limits>

#include "lib/core/dtype.hpp"
#include "lib/ops/detail/fast_exp.hpp"
#include "lib/ops/detail/store.hpp"

namespace spillway::ops::detail {

template <class T>
void load_rows(HeadRows<T const> const& source, std::int64_t padded_rows, float factor, float* tile,
               Isa isa) {
  run_on(isa, [&, factor](auto) {
    std::int64_t const width = padded_dim(source.head_dim);
    for (std::int64_t r = 0; r < source.rows; ++r) {
      T const* const from = source.data + r * source.stride;
      float* const to = tile + r * width;
#pragma omp simd
      for (std::int64_t d = 0; d < source.head_dim; ++d)
        to[d] = static_cast<float>(from[d]) * factor;
      for (std::int64_t d = source.head_dim; d < width; ++d) to[d] = 0;
    }
    for (std::int64_t i = source.rows * width; i < padded_rows * width; ++i) tile[i] = 0;
  });
}

template <class T>
void store_rows(float const* tile, float factor, HeadRows<T> const& target, Isa isa) {
  run_on(isa, [&, tile, factor](auto) {
    std::int64_t const width = padded_dim(target.head_dim);
    for (std::int64_t r = 0; r < target.rows; ++r) {
      float const* const from = tile + r * width;
      T* const to = target.data + r * target.stride;
#pragma omp simd
      for (std::int64_t d = 0; d < target.head_dim; ++d) store(to[d], from[d] * factor);
    }
  });
}

template void load_rows(HeadRows<float const> const&, std::int64_t, float, float*, Isa);
template void load_rows(HeadRows<bf16 const> const&, std::int64_t, float, float*, Isa);
template void store_rows(float const*, float, HeadRows<float> const&, Isa);
template void store_rows(float const*, float, HeadRows<bf16> const&, Isa);

void transpose_queries(float const* tile, std::int64_t width, float* transposed) {
  for (std::int64_t d = 0; d < width; ++d)
    for (std::int64_t q = 0; q < kQueries; ++q) transposed[d * kQueries + q] = tile[q * width + d];
}

KeyRange visible_keys(std::int64_t first, std::int64_t last, std::int64_t window) {
  std::int64_t const begin = window > 0 && first >= window ? first - window + 1 : 0;
  return {begin, last + 1};
}

void mask_scores(Scores const& scores, std::int64_t window, Isa isa) {
  std::int64_t const last_query = scores.first_query + kQueries - 1;
  bool const crosses_diagonal = scores.first_key + scores.keys - 1 > scores.first_query;
  bool const crosses_window = window > 0 && scores.first_key + window <= last_query;
  if (!crosses_diagonal && !crosses_window) return;
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  constexpr std::int32_t kNoLimit = std::numeric_limits<std::int32_t>::max();
  std::int32_t const limit =
      window > 0 && window < kNoLimit ? static_cast<std::int32_t>(window) : kNoLimit;
  run_on(isa, [&scores, limit](auto) {
    for (std::int64_t j = 0; j < scores.keys; ++j) {
      float* const row = scores.data + j * kQueries;
      auto const distance = static_cast<std::int32_t>(scores.first_query - scores.first_key - j);
#pragma omp simd
      for (std::int32_t q = 0; q < kQueries; ++q) {
        bool const seen = distance + q >= 0 && distance + q < limit;
        row[q] = seen ? row[q] : kHidden;
      }
    }
  });
}

void softmax_step(Scores const& scores, RunningSoftmax const& running, Isa isa) {
  run_on(isa, [&scores, running](auto) {
    float largest[kQueries];
    float partial[kQueries] = {};
    for (std::int64_t q = 0; q < kQueries; ++q) largest[q] = running.maximum[q];
    for (std::int64_t j = 0; j < scores.keys; ++j) {
      float const* const row = scores.data + j * kQueries;
#pragma omp simd
      for (std::int64_t q = 0; q < kQueries; ++q)
        largest[q] = row[q] > largest[q] ? row[q] : largest[q];
    }
    for (std::int64_t j = 0; j < scores.keys; ++j) {
      float* const row = scores.data + j * kQueries;
#pragma omp simd
      for (std::int64_t q = 0; q < kQueries; ++q) {
        row[q] = softmax_exp(row[q] - largest[q]);
        partial[q] += row[q];
      }
    }
#pragma omp simd
    for (std::int64_t q = 0; q < kQueries; ++q) {
      float const shrink = softmax_exp(running.maximum[q] - largest[q]);
      running.shrink[q] = shrink;
      running.sum[q] = running.sum[q] * shrink + partial[q];
      running.maximum[q] = largest[q];
    }
  });
}

void shrink_rows(float* out, std::int64_t width, float const* shrink, Isa isa) {
  run_on(isa, [out, width, shrink](auto) {
    for (std::int64_t q = 0; q < kQueries; ++q) {
      float const factor = shrink[q];
      float* const row = out + q * width;
#pragma omp simd
      for (std::int64_t d = 0; d < width; ++d) row[d] *= factor;
    }
  });
}

void probabilities(Scores const& scores, float const* logsumexp, Isa isa) {
  run_on(isa, [&scores, logsumexp](auto) {
    for (std::int64_t j = 0; j < scores.keys; ++j) {
      float* const row = scores.data + j * kQueries;
#pragma omp simd
      for (std::int64_t q = 0; q < kQueries; ++q) row[q] = softmax_exp(row[q] - logsumexp[q]);
    }
  });
}

void softmax_backward(float const* p, std::int64_t keys, float const* dot, float* dp, Isa isa) {
  run_on(isa, [p, keys, dot, dp](auto) {
    for (std::int64_t j = 0; j < keys; ++j) {
      float const* const p_row = p + j * kQueries;
      float* const dp_row = dp + j * kQueries;
#pragma omp simd
      for (std::int64_t q = 0; q < kQueries; ++q) dp_row[q] = p_row[q] * (dp_row[q] - dot[q]);
    }
  });
}

}  // namespace spillway::ops::detail
