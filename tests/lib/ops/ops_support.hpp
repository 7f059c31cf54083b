// What the tests of the operations share: streams, seeded values, and comparison in units of
// rounding.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "lib/core/dtype.hpp"
#include "lib/core/philox.hpp"
#include "lib/device/device.hpp"
#include "tests/support/reference.hpp"

namespace spillway::testing_ops {

using reference::Doubles;

inline std::unique_ptr<device::Stream> make_stream(int threads = 2,
                                                   std::size_t scratch_bytes = 32 << 20) {
  return device::make_cpu_device()->make_stream(scratch_bytes, threads);
}

/// `n` normal numbers as T, the same for the same name.
template <class T>
std::vector<T> random_values(std::size_t n, char const* name, float scale = 1.0f,
                             float shift = 0.0f) {
  std::vector<T> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = T(scale * normal(42, hash_name(name), i) + shift);
  return values;
}

template <class T>
Doubles widen(std::vector<T> const& values) {
  Doubles wide(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    wide[i] = static_cast<double>(static_cast<float>(values[i]));
  return wide;
}

/// Largest relative error of rounding to T.
template <class T>
constexpr double rounding_unit() {
  return sizeof(T) == 2 ? 0x1p-8 : 0x1p-24;
}

/// |actual - expected| <= units * unit of T * max(|expected|, root mean square of all expected).
template <class T>
void expect_close(std::vector<T> const& actual, Doubles const& expected, double units,
                  char const* what = "") {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double const mean_square =
      expected.empty() ? 0
                       : reference::dot(expected, expected) / static_cast<double>(expected.size());
  double worst = 0;
  std::size_t where = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    double const got = static_cast<double>(static_cast<float>(actual[i]));
    double const size = std::max({std::abs(expected[i]), std::sqrt(mean_square), 1e-30});
    double const error = std::abs(got - expected[i]) / (size * rounding_unit<T>());
    if (error > worst || std::isnan(error)) {
      worst = error;
      where = i;
      if (std::isnan(error)) break;
    }
  }
  EXPECT_LE(worst, units) << what << " at " << where << ": got "
                          << static_cast<double>(static_cast<float>(actual[where])) << ", expected "
                          << expected[where];
}

/// |actual - expected| <= units * unit of T * |expected|, all as the norm of the whole.
template <class T>
void expect_close_norm(std::vector<T> const& actual, Doubles const& expected, double units,
                       char const* what = "") {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double error = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    double const difference = static_cast<double>(static_cast<float>(actual[i])) - expected[i];
    error += difference * difference;
  }
  double const size = std::sqrt(reference::dot(expected, expected));
  EXPECT_LE(std::sqrt(error) / (size * rounding_unit<T>()), units) << what;
}

template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

using FloatTypes = ::testing::Types<float, bf16>;

}  // namespace spillway::testing_ops
