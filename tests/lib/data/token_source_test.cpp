// Sequences cut from a row of tokens: every input has a target, and nothing is masked.
#include "lib/data/token_source.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lib/core/error.hpp"

namespace spillway {
namespace {

class Row : public data::TokenSource {
 public:
  explicit Row(std::vector<std::int32_t> tokens) : tokens_(std::move(tokens)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(tokens_.size()); }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override {
    ASSERT_LE(begin + static_cast<std::int64_t>(out.size()), size());
    std::copy_n(tokens_.begin() + begin, out.size(), out.begin());
  }
  std::string description() const override { return "a row in memory"; }

 private:
  std::vector<std::int32_t> tokens_;
};

TEST(SequenceCount, is_tokens_less_one_by_length_rounded_down) {
  struct Case {
    std::int64_t tokens, T, count;
  };
  for (auto [tokens, T, count] : {Case{0, 4, 0},
                                  {1, 4, 0},
                                  {4, 4, 0},
                                  {5, 4, 1},
                                  {8, 4, 1},
                                  {9, 4, 2},
                                  {10, 4, 2},
                                  {2, 1, 1},
                                  {(std::int64_t{1} << 40) + 1, 1024, std::int64_t{1} << 30}})
    EXPECT_EQ(data::sequence_count(tokens, T), count) << tokens << " / " << T;
}

TEST(SequenceCount, a_length_of_zero_is_refused) {
  EXPECT_THROW(data::sequence_count(10, 0), Error);
  EXPECT_THROW(data::sequence_count(10, -1), Error);
}

TEST(ReadSequence, targets_are_the_inputs_one_further) {
  Row const row({10, 11, 12, 13, 14, 15, 16});
  std::vector<std::int32_t> inputs(3), targets(3);
  data::read_sequence(row, 1, inputs, targets);
  EXPECT_EQ(inputs, (std::vector<std::int32_t>{13, 14, 15}));
  EXPECT_EQ(targets, (std::vector<std::int32_t>{14, 15, 16}));
}

TEST(ReadSequence, an_end_of_text_inside_keeps_its_place_among_the_targets) {
  std::int32_t const end = 256;
  Row const row({1, end, 2, end, end});
  std::vector<std::int32_t> inputs(4), targets(4);
  data::read_sequence(row, 0, inputs, targets);
  EXPECT_EQ(targets, (std::vector<std::int32_t>{end, 2, end, end}));
}

TEST(ReadSequence, the_last_sequence_uses_the_last_token_as_target_only) {
  Row const row({1, 2, 3});
  std::vector<std::int32_t> inputs(2), targets(2);
  data::read_sequence(row, 0, inputs, targets);
  EXPECT_EQ(targets.back(), 3);
}

TEST(ReadSequence, a_sequence_beyond_the_last_is_refused) {
  Row const row({1, 2, 3, 4});
  std::vector<std::int32_t> inputs(2), targets(2);
  EXPECT_THROW(data::read_sequence(row, 1, inputs, targets), Error);
  EXPECT_THROW(data::read_sequence(row, -1, inputs, targets), Error);
}

}  // namespace
}  // namespace spillway
