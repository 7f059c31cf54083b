#include "lib/core/bytes.hpp"

#include <gtest/gtest.h>

#include "lib/core/error.hpp"

namespace spillway {
namespace {

TEST(ParseBytesTest, units_of_1024_and_of_1000_are_told_apart) {
  EXPECT_EQ(parse_bytes("4GiB"), 4'294'967'296u);
  EXPECT_EQ(parse_bytes("4GB"), 4'000'000'000u);
  EXPECT_EQ(parse_bytes("512 MB"), 512'000'000u);
  EXPECT_EQ(parse_bytes("512MiB"), 536'870'912u);
  EXPECT_EQ(parse_bytes("3 kB"), 3000u);
  EXPECT_EQ(parse_bytes("3KB"), 3000u);
  EXPECT_EQ(parse_bytes("3KiB"), 3072u);
  EXPECT_EQ(parse_bytes("2TB"), 2'000'000'000'000u);
  EXPECT_EQ(parse_bytes("2TiB"), 2'199'023'255'552u);
}

TEST(ParseBytesTest, bare_letters_are_powers_of_1024) {
  EXPECT_EQ(parse_bytes("1K"), 1024u);
  EXPECT_EQ(parse_bytes("1M"), 1'048'576u);
  EXPECT_EQ(parse_bytes("1G"), 1'073'741'824u);
  EXPECT_EQ(parse_bytes("1T"), 1'099'511'627'776u);
}

TEST(ParseBytesTest, plain_numbers_are_bytes) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("4096 B"), 4096u);
}

TEST(ParseBytesTest, fractions_and_spaces_are_read) {
  EXPECT_EQ(parse_bytes("1.5 GiB"), 1'610'612'736u);
  EXPECT_EQ(parse_bytes(" 0.5 MiB "), 524'288u);
  EXPECT_EQ(parse_bytes("1e3"), 1000u);
}

TEST(ParseBytesTest, anything_else_is_refused_with_the_text) {
  for (char const* text : {"", " ", "GiB", "4 gigabytes", "-1GiB", "4GiB!", "4.2.1G", "nan", "inf",
                           "0x10", "1e300", "9000000TiB", "4GiBs", "4 G i B x"}) {
    try {
      parse_bytes(text);
      ADD_FAILURE() << text << " was accepted";
    } catch (Error const& error) {
      EXPECT_EQ(error.fault(), Fault::usage);
      EXPECT_NE(error.problem().find(std::string("'") + text + "'"), std::string::npos);
    }
  }
}

TEST(FormatBytesTest, small_counts_are_exact) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(10'239), "10239 B");
}

TEST(FormatBytesTest, large_counts_have_four_digits_and_a_unit) {
  EXPECT_EQ(format_bytes(10'240), "10 KiB");
  EXPECT_EQ(format_bytes(3'489'660'928), "3.25 GiB");
  EXPECT_EQ(format_bytes(536'870'912), "512 MiB");
  EXPECT_EQ(format_bytes(std::uint64_t{5} << 40), "5 TiB");
  EXPECT_EQ(format_bytes(std::uint64_t{5} << 50), "5120 TiB");
  EXPECT_EQ(format_bytes(1'000'000'000), "953.7 MiB");
}

TEST(FormatBytesTest, what_is_printed_reads_back_to_four_digits) {
  for (std::uint64_t bytes = 1; bytes < (std::uint64_t{1} << 60); bytes = bytes * 3 + 1) {
    double const back = static_cast<double>(parse_bytes(format_bytes(bytes)));
    EXPECT_NEAR(back, static_cast<double>(bytes), 6e-4 * static_cast<double>(bytes));
  }
}

}  // namespace
}  // namespace spillway
