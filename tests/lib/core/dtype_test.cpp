#include "lib/core/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "lib/core/error.hpp"

namespace spillway {
namespace {

/// bf16 by its definition: a sign, 8 bits of exponent, 7 of fraction. No bit pattern of a float is
/// used.
double value_of(std::uint16_t bits) {
  int const exponent = (bits >> 7) & 0xff;
  int const fraction = bits & 0x7f;
  double const magnitude =
      exponent == 0 ? std::ldexp(fraction, -133) : std::ldexp(128 + fraction, exponent - 134);
  return bits & 0x8000 ? -magnitude : magnitude;
}

bool is_finite(std::uint16_t bits) { return ((bits >> 7) & 0xff) != 0xff; }

TEST(Bf16Test, widening_gives_the_defined_value_of_every_pattern) {
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    bf16 number;
    number.bits = static_cast<std::uint16_t>(pattern);
    float const wide = static_cast<float>(number);
    if (is_finite(number.bits)) {
      ASSERT_EQ(static_cast<double>(wide), value_of(number.bits)) << pattern;
      ASSERT_EQ(std::signbit(wide), pattern >= 0x8000) << pattern;
    } else if ((pattern & 0x7f) == 0) {
      ASSERT_TRUE(std::isinf(wide)) << pattern;
    } else {
      ASSERT_TRUE(std::isnan(wide)) << pattern;
    }
  }
}

TEST(Bf16Test, every_pattern_survives_the_way_there_and_back) {
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    bf16 number;
    number.bits = static_cast<std::uint16_t>(pattern);
    bf16 const back(static_cast<float>(number));
    if (std::isnan(static_cast<float>(number))) {
      ASSERT_TRUE(std::isnan(static_cast<float>(back))) << pattern;
    } else {
      ASSERT_EQ(back.bits, number.bits);
    }
  }
}

TEST(Bf16Test, rounds_to_the_nearest_and_ties_to_even_between_all_neighbours) {
  // Between each pair of neighbours: below, at and above the middle, found in double.
  for (std::uint16_t lower = 0; lower < 0x7f7f; ++lower) {
    std::uint16_t const upper = static_cast<std::uint16_t>(lower + 1);
    float const middle = static_cast<float>((value_of(lower) + value_of(upper)) / 2);
    float const below = std::nextafter(middle, 0.0f);
    float const above = std::nextafter(middle, std::numeric_limits<float>::infinity());
    std::uint16_t const even = lower % 2 == 0 ? lower : upper;
    ASSERT_EQ(bf16(below).bits, lower);
    ASSERT_EQ(bf16(middle).bits, even);
    ASSERT_EQ(bf16(above).bits, upper);
    ASSERT_EQ(bf16(-below).bits, lower | 0x8000);
    ASSERT_EQ(bf16(-middle).bits, even | 0x8000);
    ASSERT_EQ(bf16(-above).bits, upper | 0x8000);
  }
}

TEST(Bf16Test, overflow_rounds_to_infinity_only_past_the_middle) {
  double const largest = value_of(0x7f7f);
  double const middle = largest + std::ldexp(1, 119);  // half of the last place
  EXPECT_EQ(bf16(std::nextafter(static_cast<float>(middle), 0.0f)).bits, 0x7f7f);
  EXPECT_EQ(bf16(static_cast<float>(middle)).bits, 0x7f80);
  EXPECT_EQ(bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(bf16(-std::numeric_limits<float>::infinity()).bits, 0xff80);
}

TEST(Bf16Test, not_a_number_stays_one_whatever_its_payload) {
  for (std::uint32_t payload : {0x7f800001u, 0x7f80ffffu, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
    float value;
    std::memcpy(&value, &payload, sizeof value);
    EXPECT_TRUE(std::isnan(static_cast<float>(bf16(value)))) << payload;
  }
}

TEST(DTypeTest, sizes_and_names_belong_together) {
  EXPECT_EQ(size_of(DType::f32), 4u);
  EXPECT_EQ(size_of(DType::bf16), 2u);
  EXPECT_EQ(size_of(DType::f16), 2u);
  EXPECT_EQ(size_of(DType::i16), 2u);
  EXPECT_EQ(size_of(DType::i8), 1u);
  EXPECT_EQ(size_of(DType::f8_e4m3), 1u);
  EXPECT_EQ(size_of(DType::f8_e5m2), 1u);
  EXPECT_EQ(name_of(DType::f32), "fp32");
  EXPECT_EQ(name_of(DType::bf16), "bf16");
  for (DType type :
       {DType::f32, DType::bf16, DType::f16, DType::i16, DType::i8, DType::f8_e4m3, DType::f8_e5m2})
    EXPECT_EQ(dtype_from_name(name_of(type)), type);
  EXPECT_EQ(dtype_of<float>, DType::f32);
  EXPECT_EQ(dtype_of<bf16>, DType::bf16);
}

TEST(DTypeTest, unknown_names_are_refused_by_name) {
  for (char const* name : {"", "float32", "BF16", "fp64"}) {
    try {
      dtype_from_name(name);
      ADD_FAILURE() << name;
    } catch (Error const& error) {
      EXPECT_EQ(error.fault(), Fault::usage);
      EXPECT_NE(error.problem().find(std::string("'") + name + "'"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace spillway
