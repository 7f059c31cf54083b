// Tokens by position, and the order in which a run reads sequences.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace spillway::data {

/// One long row of tokens, wherever it lies; io/tokens implements it over files.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  virtual std::int64_t size() const = 0;
  /// Fills `out` with tokens [begin, begin + out.size()).
  virtual void read(std::int64_t begin, std::span<std::int32_t> out) const = 0;
  /// What the data is, for provenance and for messages: path(s), token type, tokens.
  virtual std::string description() const = 0;
};

/// Deterministic resumable order: global position p (0, 1, 2, ... over the whole run) -> sequence
/// index in [0, n). Epoch e = p / n is one keyed bijection (Feistel network with cycle walking,
/// keyed by seed and e) of p % n, or the identity without shuffling. One global position is the
/// whole sampler state, on any number of ranks.
class Sampler {
 public:
  Sampler(std::int64_t sequences, std::uint64_t seed, bool shuffle);
  std::int64_t sequences() const { return sequences_; }
  std::int64_t sequence_at(std::int64_t position) const;

 private:
  std::int64_t sequences_;
  std::uint64_t seed_;
  bool shuffle_;
};

/// Sequences of T tokens in `tokens` tokens where every input has a target: i < (tokens - 1) / T.
std::int64_t sequence_count(std::int64_t tokens, std::int64_t T);

/// Inputs [T] and targets [T] of sequence i: tokens [i*T, i*T+T) and one further.
void read_sequence(TokenSource const& source, std::int64_t sequence, std::span<std::int32_t> inputs,
                   std::span<std::int32_t> targets);

}  // namespace spillway::data
