// Counter-based random numbers: Philox4x32-10 (Salmon et al., SC 2011). No state, so a value
// depends on its key and counter only, never on who draws it or when.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "lib/core/hd.hpp"

namespace spillway {

using PhiloxBlock = std::array<std::uint32_t, 4>;

/// Four random words of (key, counter).
SPILLWAY_HD inline PhiloxBlock philox(std::uint64_t key, std::uint64_t counter_lo,
                                      std::uint64_t counter_hi) {
  std::uint32_t c0 = static_cast<std::uint32_t>(counter_lo);
  std::uint32_t c1 = static_cast<std::uint32_t>(counter_lo >> 32);
  std::uint32_t c2 = static_cast<std::uint32_t>(counter_hi);
  std::uint32_t c3 = static_cast<std::uint32_t>(counter_hi >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(key);
  std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    std::uint64_t const p0 = static_cast<std::uint64_t>(0xD2511F53u) * c0;
    std::uint64_t const p1 = static_cast<std::uint64_t>(0xCD9E8D57u) * c2;
    std::uint32_t const n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    std::uint32_t const n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

/// Uniform in (0, 1): never exactly 0, so its logarithm is finite.
SPILLWAY_HD inline double uniform_open(std::uint32_t word) {
  return (static_cast<double>(word) + 0.5) * 0x1p-32;
}

/// Standard normal numbers of elements 4 * block ... 4 * block + 3 in the stream (key, stream), by
/// Box-Muller.
SPILLWAY_HD inline std::array<float, 4> normals(std::uint64_t key, std::uint64_t stream,
                                                std::uint64_t block) {
  PhiloxBlock const r = philox(key, block, stream);
  std::array<float, 4> result;
  for (std::size_t pair = 0; pair < 4; pair += 2) {
    float const radius = std::sqrt(-2.0f * std::log(static_cast<float>(uniform_open(r[pair]))));
    float const angle = static_cast<float>(6.283185307179586 * uniform_open(r[pair + 1]));
    result[pair] = radius * std::cos(angle);
    result[pair + 1] = radius * std::sin(angle);
  }
  return result;
}

/// One of them. Whoever needs many takes whole blocks.
SPILLWAY_HD inline float normal(std::uint64_t key, std::uint64_t stream, std::uint64_t element) {
  return normals(key, stream, element / 4)[element % 4];
}

/// FNV-1a of a name: the stream of a tensor.
constexpr std::uint64_t hash_name(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace spillway
