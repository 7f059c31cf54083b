// The load-balancing loss by hand, and its gradient by differences.
#include "lib/model/balance.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace spillway::model {
namespace {

TEST(BalanceTest, an_even_load_costs_k_and_a_lopsided_one_more) {
  // 8 positions choose 2 of 4 experts each.
  std::vector<double> const even{4, 4, 4, 4, 2, 2, 2, 2};
  EXPECT_DOUBLE_EQ(balance_loss({even, 8}), 2);
  std::vector<double> const lopsided{8, 8, 0, 0, 4, 3, 0.5, 0.5};
  EXPECT_DOUBLE_EQ(balance_loss({lopsided, 8}), 4 * (4.0 / 8 + 3.0 / 8));
}

TEST(BalanceTest, the_gradient_is_that_of_the_probabilities_alone) {
  std::vector<double> sums{5, 2, 1, 3.5, 2.5, 2};
  std::vector<float> gradient(3);
  balance_gradient({sums, 8}, 0.25, gradient);
  for (std::size_t e = 0; e < 3; ++e) {
    double const before = balance_loss({sums, 8});
    sums[3 + e] += 1;  // one position's probability; the loss is linear in it
    EXPECT_NEAR(gradient[e], 0.25 * (balance_loss({sums, 8}) - before), 1e-7);
    sums[3 + e] -= 1;
  }
}

}  // namespace
}  // namespace spillway::model
