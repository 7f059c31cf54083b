// The order of sequences: a Feistel network of Philox rounds with cycle walking.
#include <fmt/core.h>

#include <bit>

#include "lib/core/error.hpp"
#include "lib/core/philox.hpp"
#include "lib/data/token_source.hpp"

namespace spillway::data {
namespace {

// Four rounds would do for a pseudorandom permutation of wide halves; tiny domains need more to be
// even.
constexpr int kRounds = 10;

/// A balanced Feistel network over pairs of halves, each `half_bits` wide.
class Feistel {
 public:
  /// The smallest network of an even number of bits that covers [0, count): less than 4 * count
  /// values.
  Feistel(std::uint64_t count, std::uint64_t seed, std::uint64_t epoch)
      : half_bits_((static_cast<int>(std::bit_width(count - 1)) + 1) / 2),
        mask_((std::uint64_t{1} << half_bits_) - 1),
        key_(seed ^ hash_name("order of sequences")),
        epoch_(epoch) {}

  std::uint64_t operator()(std::uint64_t value) const {
    std::uint64_t left = value >> half_bits_;
    std::uint64_t right = value & mask_;
    for (std::uint64_t round = 0; round < kRounds; ++round) {
      PhiloxBlock const random = philox(key_, right | round << 32, epoch_);
      std::uint64_t const mixed = left ^ (random[0] & mask_);
      left = right;
      right = mixed;
    }
    return left << half_bits_ | right;
  }

 private:
  int half_bits_;
  std::uint64_t mask_;
  std::uint64_t key_;
  std::uint64_t epoch_;
};

}  // namespace

Sampler::Sampler(std::int64_t sequences, std::uint64_t seed, bool shuffle)
    : sequences_(sequences), seed_(seed), shuffle_(shuffle) {
  if (sequences < 1)
    fail(
        Fault::bad_input,
        fmt::format("the data hold {} sequences (a run needs at least one, which takes seq_len + 1 "
                    "tokens). More data, or a smaller data.seq_len?",
                    sequences));
}

std::int64_t Sampler::sequence_at(std::int64_t position) const {
  expect(position >= 0, "a position in the data is not negative");
  std::int64_t const index = position % sequences_;
  if (!shuffle_ || sequences_ == 1) return index;
  auto const count = static_cast<std::uint64_t>(sequences_);
  Feistel const permute(count, seed_, static_cast<std::uint64_t>(position / sequences_));
  // Cycle walking: the cycle through `index` comes back into [0, count) at the latest at `index`.
  auto value = static_cast<std::uint64_t>(index);
  do value = permute(value);
  while (value >= count);
  return static_cast<std::int64_t>(value);
}

}  // namespace spillway::data
