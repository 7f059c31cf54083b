// Merged gradients against double precision: sums, rounding, squares that no cut shows in.
#include "lib/ops/gradient.hpp"

#include "tests/lib/ops/ops_support.hpp"

namespace spillway::ops {
namespace {

using namespace testing_ops;  // NOLINT

constexpr std::size_t kCount = 2 * kSquarePiece + 4097;

template <class T>
void merge(std::vector<float>& part, std::vector<T>& stored, bool add, double* squares,
           int threads = 2) {
  MergeGradient<T> const args{static_cast<std::int64_t>(part.size()), part.data(), stored.data(),
                              add};
  merge_gradient(args, squares, *make_stream(threads));
}

template <class T>
class MergeGradientTest : public ::testing::Test {};
TYPED_TEST_SUITE(MergeGradientTest, FloatTypes);

TYPED_TEST(MergeGradientTest, sets_or_adds_and_returns_what_is_stored_with_its_squares) {
  for (bool const add : {false, true}) {
    auto part = random_values<float>(kCount, "part");
    auto stored = random_values<TypeParam>(kCount, "stored");
    auto const before = widen(stored);
    Doubles expected = widen(part);
    for (std::size_t i = 0; add && i < kCount; ++i) expected[i] += before[i];
    double squares = 3;
    merge(part, stored, add, &squares);
    expect_close(stored, expected, 1.01);
    double sum = 3;
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(part[i], static_cast<float>(stored[i]));
      sum += static_cast<double>(part[i]) * static_cast<double>(part[i]);
    }
    EXPECT_NEAR(squares, sum, 1e-10 * sum);
  }
}

TYPED_TEST(MergeGradientTest, squares_depend_neither_on_threads_nor_on_cuts_between_pieces) {
  auto const values = random_values<float>(kCount, "part");
  std::vector<TypeParam> stored(kCount);
  double whole = 0, cut = 0;
  auto part = values;
  merge(part, stored, false, &whole, 5);
  for (std::size_t from = 0; from < kCount; from += kSquarePiece) {
    auto const begin = values.begin() + static_cast<std::ptrdiff_t>(from);
    std::vector<float> piece(begin, begin + static_cast<std::ptrdiff_t>(std::min<std::size_t>(
                                                kSquarePiece, kCount - from)));
    std::vector<TypeParam> kept(piece.size());
    merge(piece, kept, false, &cut, 1);
  }
  EXPECT_EQ(whole, cut);
}

TEST(MergeGradient, what_is_already_in_place_is_only_counted) {
  auto values = random_values<float>(5000, "part");
  auto const before = values;
  double squares = 0;
  merge_gradient<float>({5000, values.data(), values.data(), false}, &squares, *make_stream());
  EXPECT_TRUE(same_bits(values, before));
  EXPECT_GT(squares, 4000);
}

}  // namespace
}  // namespace spillway::ops
