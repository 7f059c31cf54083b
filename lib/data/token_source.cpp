#include "lib/data/token_source.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "lib/core/error.hpp"

namespace spillway::data {

std::int64_t sequence_count(std::int64_t tokens, std::int64_t T) {
  if (T < 1)
    fail(Fault::usage, fmt::format("data.seq_len is {} (a sequence has at least one token)", T));
  return tokens < 1 ? 0 : (tokens - 1) / T;
}

void read_sequence(TokenSource const& source, std::int64_t sequence, std::span<std::int32_t> inputs,
                   std::span<std::int32_t> targets) {
  expect(inputs.size() == targets.size(), "there are as many inputs as targets");
  auto const T = static_cast<std::int64_t>(inputs.size());
  std::int64_t const count = sequence_count(source.size(), T);
  if (sequence < 0 || sequence >= count)
    fail(Fault::internal, fmt::format("sequence {} of {} was asked for in {}", sequence, count,
                                      source.description()));
  std::vector<std::int32_t> tokens(inputs.size() + 1);
  source.read(sequence * T, tokens);
  std::copy(tokens.begin(), tokens.end() - 1, inputs.begin());
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
}

}  // namespace spillway::data
