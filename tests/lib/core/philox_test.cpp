#include "lib/core/philox.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace spillway {
namespace {

constexpr std::uint64_t kOnes = ~std::uint64_t{0};

// The known answers that come with Random123 (Salmon et al.), philox4x32-10.
TEST(PhiloxTest, gives_the_published_known_answers) {
  EXPECT_EQ(philox(0, 0, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(kOnes, kOnes, kOnes),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  // Counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0: digits of pi.
  EXPECT_EQ(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(PhiloxTest, every_bit_of_key_and_counter_matters) {
  std::set<PhiloxBlock> seen{philox(0, 0, 0)};
  for (int bit = 0; bit < 64; ++bit) {
    std::uint64_t const one = std::uint64_t{1} << bit;
    EXPECT_TRUE(seen.insert(philox(one, 0, 0)).second);
    EXPECT_TRUE(seen.insert(philox(0, one, 0)).second);
    EXPECT_TRUE(seen.insert(philox(0, 0, one)).second);
  }
}

TEST(UniformTest, lies_strictly_between_zero_and_one) {
  EXPECT_GT(uniform_open(0), 0.0);
  EXPECT_LT(uniform_open(0xffffffffu), 1.0);
  EXPECT_NEAR(uniform_open(0x80000000u), 0.5, 1e-9);
}

TEST(NormalTest, tails_have_the_weight_of_the_normal_law) {
  int const n = 200'000;
  int beyond_one = 0, beyond_two = 0, beyond_three = 0, positive = 0;
  for (int i = 0; i < n; ++i) {
    float const x = normal(11, 5, static_cast<std::uint64_t>(i));
    ASSERT_TRUE(std::isfinite(x));
    positive += x > 0;
    beyond_one += std::abs(x) > 1;
    beyond_two += std::abs(x) > 2;
    beyond_three += std::abs(x) > 3;
  }
  EXPECT_NEAR(positive, 0.5 * n, 1200);  // five standard errors each
  EXPECT_NEAR(beyond_one, 0.317311 * n, 1050);
  EXPECT_NEAR(beyond_two, 0.045500 * n, 470);
  EXPECT_NEAR(beyond_three, 0.0026998 * n, 120);
}

TEST(NormalTest, blocks_hold_the_numbers_of_four_elements) {
  for (std::uint64_t block : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 40}) {
    auto const four = normals(3, 9, block);
    for (std::uint64_t lane = 0; lane < 4; ++lane)
      EXPECT_EQ(four[lane], normal(3, 9, 4 * block + lane));
  }
}

TEST(NormalTest, is_the_box_muller_transform_of_the_words) {
  PhiloxBlock const words = philox(3, 5, 9);
  double const radius = std::sqrt(-2 * std::log((words[2] + 0.5) / 4294967296.0));
  double const angle = 2 * 3.14159265358979323846 * (words[3] + 0.5) / 4294967296.0;
  EXPECT_NEAR(normal(3, 9, 22), radius * std::cos(angle), 2e-6);
  EXPECT_NEAR(normal(3, 9, 23), radius * std::sin(angle), 2e-6);
}

TEST(HashNameTest, is_fnv_1a) {
  EXPECT_EQ(hash_name(""), 0xcbf29ce484222325u);  // published test vectors
  EXPECT_EQ(hash_name("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(hash_name("foobar"), 0x85944171f73967e8u);
}

}  // namespace
}  // namespace spillway
