// Look-up of embeddings and the sum of their gradients.
#include "lib/ops/embedding.hpp"

#include "tests/lib/ops/ops_support.hpp"

namespace spillway::ops {
namespace {

using namespace testing_ops;  // NOLINT

template <class T>
class Embedding : public ::testing::Test {
 public:
  static constexpr std::size_t kV = 11, kT = 17, kB = 3, kC = 133;
  std::vector<std::int32_t> tokens;
  std::vector<T> token_table = random_values<T>(kV * kC, "tokens");
  std::vector<T> position_table = random_values<T>(kT * kC, "positions");

  Embedding() {
    // 51 rows of 11 tokens, so that rows share tokens.
    for (std::size_t row = 0; row < kB * kT; ++row)
      tokens.push_back(static_cast<std::int32_t>((row * row + 3) % kV));
  }
};
TYPED_TEST_SUITE(Embedding, FloatTypes);

TYPED_TEST(Embedding, forward_looks_up_tokens_and_adds_positions_that_start_again_each_sequence) {
  std::size_t const C = TestFixture::kC, rows = this->tokens.size();
  std::vector<TypeParam> alone(rows * C), both(rows * C);
  EmbeddingForward<TypeParam> args{.rows = static_cast<std::int64_t>(rows),
                                   .T_ = TestFixture::kT,
                                   .C = TestFixture::kC,
                                   .tokens = this->tokens.data(),
                                   .token_table = this->token_table.data(),
                                   .x = alone.data()};
  embedding_forward(args, *make_stream());
  args.position_table = this->position_table.data();
  args.x = both.data();
  embedding_forward(args, *make_stream());
  Doubles const token = widen(this->token_table), position = widen(this->position_table);
  Doubles expected_alone(rows * C), expected_both(rows * C);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t c = 0; c < C; ++c) {
      auto const id = static_cast<std::size_t>(this->tokens[row]);
      expected_alone[row * C + c] = token[id * C + c];
      expected_both[row * C + c] = token[id * C + c] + position[row % TestFixture::kT * C + c];
    }
  expect_close(alone, expected_alone, 0);
  expect_close(both, expected_both, 1.001);
}

TYPED_TEST(Embedding, backward_adds_every_row_to_its_token_and_position_whatever_the_threads) {
  std::size_t const C = TestFixture::kC, rows = this->tokens.size();
  auto const dx = random_values<TypeParam>(rows * C, "dx");
  auto const start_token = random_values<float>(TestFixture::kV * C, "dtoken");
  auto const start_position = random_values<float>(TestFixture::kT * C, "dposition");
  Doubles expected_token = widen(start_token), expected_position = widen(start_position);
  Doubles const wide = widen(dx);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t c = 0; c < C; ++c) {
      double const d = wide[row * C + c];
      expected_token[static_cast<std::size_t>(this->tokens[row]) * C + c] += d;
      expected_position[row % TestFixture::kT * C + c] += d;
    }
  std::vector<float> first;
  for (int const threads : {1, 2, 3}) {
    auto dtoken = start_token;
    auto dposition = start_position;
    EmbeddingBackward<TypeParam> const args{.rows = static_cast<std::int64_t>(rows),
                                            .T_ = TestFixture::kT,
                                            .C = TestFixture::kC,
                                            .tokens = this->tokens.data(),
                                            .dx = dx.data(),
                                            .dtoken_table = dtoken.data(),
                                            .dposition_table = dposition.data()};
    embedding_backward(args, *make_stream(threads));
    expect_close(dtoken, expected_token, 8, "token");
    expect_close(dposition, expected_position, 8, "position");
    if (first.empty()) first = dtoken;
    EXPECT_TRUE(same_bits(first, dtoken));
  }
}

}  // namespace
}  // namespace spillway::ops
