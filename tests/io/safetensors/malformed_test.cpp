// Malformed safetensors: each kind of damage is refused with a message that names it.
#include <gtest/gtest.h>

#include <string>

#include "io/safetensors/safetensors.hpp"
#include "tests/io/safetensors/raw_safetensors.hpp"

namespace spillway {
namespace {

using test::entry;
using test::object;
using test::pairs;
using test::raw_safetensors;

/// The error that a file of these bytes gives; all name the file.
std::string refusal(std::string_view bytes) {
  test::ScratchFolder scratch;
  test::write_file(scratch / "model.safetensors", bytes);
  auto const text = test::error_of([&] { io::SafetensorsFolder folder(scratch.path()); });
  test::expect_parts(text, {(scratch / "model.safetensors").string()});
  return text;
}

std::string with_header(std::string_view header, std::size_t data_bytes = 8) {
  return refusal(raw_safetensors(header, std::string(data_bytes, '\0')));
}

TEST(SafetensorsMalformed, a_file_cut_by_one_byte_says_how_many_bytes_are_there) {
  std::string const whole = pairs({"a", "b"});
  test::expect_parts(refusal(std::string_view(whole).substr(0, whole.size() - 1)),
                     {"cut short", "16 bytes", "15"});
}

TEST(SafetensorsMalformed, a_file_cut_by_half_is_refused) {
  std::string const whole =
      raw_safetensors(object({entry("a", "F32", "[100]", 0, 400)}), std::string(400, 'x'));
  test::expect_parts(refusal(std::string_view(whole).substr(0, whole.size() / 2)),
                     {"cut short", "400 bytes"});
}

TEST(SafetensorsMalformed, a_cut_header_is_refused) {
  test::expect_parts(refusal(pairs({"a", "b"}).substr(0, 40)),
                     {"header of", "only 32 bytes follow"});
  test::expect_parts(refusal("\1\2\3"), {"3 bytes", "header"});
  test::expect_parts(refusal(""), {"0 bytes"});
}

TEST(SafetensorsMalformed, a_header_length_of_2_to_the_63_is_refused) {
  test::expect_parts(refusal(test::bytes_of(std::uint64_t{1} << 63) + "{}      "),
                     {"9223372036854775808", "8 bytes follow"});
  test::expect_parts(refusal(test::bytes_of(~std::uint64_t{0}) + "{}      "),
                     {"18446744073709551615"});
}

TEST(SafetensorsMalformed, a_header_longer_than_the_file_is_refused) {
  test::expect_parts(refusal(test::bytes_of(std::uint64_t{9}) + "{}      "),
                     {"header of 9 bytes", "only 8"});
}

TEST(SafetensorsMalformed, a_header_above_the_limit_of_the_format_is_refused_unread) {
  test::ScratchFolder scratch;
  auto const path = scratch / "model.safetensors";
  test::write_file(path, test::bytes_of(std::uint64_t{200'000'000}) + "{");
  std::filesystem::resize_file(path, 300'000'000);  // sparse
  test::expect_parts(test::error_of([&] { io::SafetensorsFolder folder(scratch.path()); }),
                     {"200000000", "100000000"});
}

TEST(SafetensorsMalformed, a_header_that_is_no_json_object_is_refused) {
  test::expect_parts(with_header("[1,2]"), {"does not begin with '{'"});
  test::expect_parts(with_header(""), {"does not begin with '{'"});
  test::expect_parts(with_header("{\"a\":"), {"not valid JSON"});
  test::expect_parts(with_header("{}x"), {"not valid JSON"});
  test::expect_parts(with_header("{\"\xff\":1}"), {"not valid JSON"});
}

TEST(SafetensorsMalformed, overlapping_tensors_are_named) {
  auto const text =
      with_header(object({entry("a", "F32", "[2]", 0, 8), entry("b", "F32", "[2]", 4, 12)}), 12);
  test::expect_parts(text, {"'b'", "overlaps", "4", "8"});
}

TEST(SafetensorsMalformed, two_tensors_on_the_same_bytes_are_named) {
  auto const text =
      with_header(object({entry("a", "F32", "[2]", 0, 8), entry("b", "F32", "[2]", 0, 8)}));
  test::expect_parts(text, {"overlaps"});
}

TEST(SafetensorsMalformed, a_hole_is_named_with_its_size) {
  auto const text =
      with_header(object({entry("a", "F32", "[1]", 0, 4), entry("b", "F32", "[1]", 12, 16)}), 16);
  test::expect_parts(text, {"'b'", "hole of 8 bytes"});
  test::expect_parts(with_header(object({entry("a", "F32", "[1]", 4, 8)})),
                     {"'a'", "hole of 4 bytes"});
}

TEST(SafetensorsMalformed, bytes_after_the_last_tensor_are_refused) {
  test::expect_parts(refusal(pairs({"a"}) + "xyz"), {"3 bytes after"});
  test::expect_parts(with_header("{}", 5), {"5 bytes after"});
}

TEST(SafetensorsMalformed, a_tensor_that_ends_before_it_begins_is_named) {
  test::expect_parts(with_header(object({entry("a", "F32", "[2]", 8, 0)})),
                     {"'a'", "ends at 0", "begins at 8"});
}

TEST(SafetensorsMalformed, a_name_that_appears_twice_is_refused) {
  auto const text =
      with_header(object({entry("a", "F32", "[1]", 0, 4), entry("a", "F32", "[1]", 4, 8)}));
  test::expect_parts(text, {"'a' appears twice"});
  test::expect_parts(
      with_header(R"({"a":{"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]}})"),
      {"'shape' appears twice"});
}

TEST(SafetensorsMalformed, bytes_that_do_not_fit_shape_and_type_are_named) {
  test::expect_parts(with_header(object({entry("a", "F32", "[3]", 0, 8)})),
                     {"'a'", "8 bytes", "F32", "[3]"});
  test::expect_parts(with_header(object({entry("a", "BF16", "[2]", 0, 8)})),
                     {"'a'", "8 bytes", "BF16"});
  test::expect_parts(with_header(object({entry("a", "F32", "[]", 0, 8)})), {"'a'", "[]"});
  test::expect_parts(with_header(object({entry("a", "F32", "[0]", 0, 8)})), {"'a'", "[0]"});
}

TEST(SafetensorsMalformed, a_shape_whose_product_overflows_is_refused) {
  test::expect_parts(with_header(object({entry("a", "F32", "[4294967296,4294967296,2]", 0, 8)})),
                     {"'a'", "overflow"});
  // Fits 63 bits as elements, wraps to 8 as bytes.
  test::expect_parts(with_header(object({entry("a", "F32", "[4611686018427387906]", 0, 8)})),
                     {"'a'", "4611686018427387906"});
}

TEST(SafetensorsMalformed, sizes_and_offsets_must_be_whole_and_not_negative) {
  test::expect_parts(with_header(object({entry("a", "F32", "[-2]", 0, 8)})), {"'a'", "-2"});
  test::expect_parts(with_header(object({entry("a", "F32", "[2.0]", 0, 8)})), {"'a'", "2.0"});
  test::expect_parts(with_header(object({entry("a", "F32", "[18446744073709551615]", 0, 8)})),
                     {"'a'", "18446744073709551615"});
  test::expect_parts(with_header(object({entry("a", "F32", "2", 0, 8)})), {"'a'", "'shape'"});
  test::expect_parts(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,-8]}})"),
                     {"'a'", "data_offsets"});
  test::expect_parts(with_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})"),
                     {"'a'", "data_offsets"});
  test::expect_parts(with_header(R"({"a":{"dtype":"F32","shape":[2]}})"), {"'a'", "data_offsets"});
  test::expect_parts(with_header(R"({"a":7})"), {"'a'", "no JSON object"});
}

TEST(SafetensorsMalformed, an_unknown_type_is_named) {
  test::expect_parts(with_header(object({entry("a", "Q4_0", "[2]", 0, 8)})), {"'a'", "'Q4_0'"});
  test::expect_parts(with_header(R"({"a":{"shape":[2],"data_offsets":[0,8]}})"), {"'a'", "dtype"});
}

TEST(SafetensorsMalformed, metadata_must_be_strings) {
  test::expect_parts(with_header(R"({"__metadata__":{"step":1}})", 0), {"__metadata__"});
}

TEST(SafetensorsMalformed, deep_nesting_is_an_error_and_no_crash) {
  auto const text = with_header(
      fmt::format(R"({{"a":{}{}}})", std::string(1'000'000, '['), std::string(1'000'000, ']')));
  test::expect_parts(text, {"'a'"});
}

/// Two shards of two tensors each, with the given index.
std::string index_refusal(std::string_view index, std::string_view second_shard = {}) {
  test::ScratchFolder scratch;
  test::write_file(scratch / "one.safetensors", pairs({"a", "b"}));
  test::write_file(scratch / "two.safetensors",
                   second_shard.empty() ? pairs({"c", "d"}) : std::string(second_shard));
  test::write_file(scratch / "model.safetensors.index.json", index);
  std::filesystem::create_directory(scratch / "inner");
  test::write_file(scratch / "inner/three.safetensors", pairs({"e"}));
  auto const text = test::error_of([&] { io::SafetensorsFolder folder(scratch.path()); });
  test::expect_parts(text, {scratch.path().string()});
  return text;
}

constexpr char const* kOne = R"("a":"one.safetensors","b":"one.safetensors")";

std::string map_of(std::string_view more) {
  return fmt::format(R"({{"weight_map":{{{}{}}}}})", kOne, more);
}

TEST(SafetensorsIndex, an_absent_shard_is_named_with_a_tensor_of_it) {
  test::expect_parts(index_refusal(map_of(R"(,"z":"gone.safetensors")")),
                     {"gone.safetensors is absent", "'z'"});
}

TEST(SafetensorsIndex, a_tensor_in_two_shards_is_named_with_both) {
  auto const text = index_refusal(map_of(R"(,"c":"two.safetensors")"), pairs({"a", "c"}));
  test::expect_parts(text, {"'a'", "one.safetensors", "two.safetensors"});
}

TEST(SafetensorsIndex, a_tensor_that_its_shard_does_not_have_is_named) {
  auto const text = index_refusal(
      map_of(R"(,"c":"two.safetensors","d":"two.safetensors","x":"two.safetensors")"));
  test::expect_parts(text, {"'x'", "two.safetensors", "in no shard"});
}

TEST(SafetensorsIndex, a_tensor_in_another_shard_than_stated_is_named) {
  auto const text = index_refusal(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors",)"
                                  R"("c":"two.safetensors","d":"two.safetensors"}})");
  test::expect_parts(text, {"'b'", "one.safetensors", "two.safetensors"});
}

TEST(SafetensorsIndex, a_tensor_that_the_index_lacks_is_named) {
  test::expect_parts(index_refusal(map_of(R"(,"c":"two.safetensors")")),
                     {"'d'", "two.safetensors", "is not in"});
}

TEST(SafetensorsIndex, paths_that_leave_the_folder_are_refused) {
  for (auto shard :
       {"../x", "/etc/passwd", "inner/three.safetensors", "..", ".", "", "a\\\\b", "a\\u0000b"})
    test::expect_parts(index_refusal(map_of(",\"e\":\"" + std::string(shard) + "\"")),
                       {"'e'", "plain file name"});
}

TEST(SafetensorsIndex, a_tensor_that_the_index_names_twice_is_refused) {
  test::expect_parts(index_refusal(map_of(R"(,"a":"two.safetensors")")), {"'a' appears twice"});
}

TEST(SafetensorsIndex, an_index_without_weight_map_is_refused) {
  test::expect_parts(index_refusal(R"({"metadata":{}})"), {"weight_map"});
  test::expect_parts(index_refusal("[]"), {"weight_map"});
  test::expect_parts(index_refusal("{"), {"not valid JSON"});
  test::expect_parts(index_refusal(R"({"weight_map":{"a":1}})"), {"'a'", "no string"});
}

TEST(SafetensorsIndex, damage_in_a_shard_is_found_at_once) {
  std::string const cut = pairs({"c", "d"});
  auto const text = index_refusal(map_of(R"(,"c":"two.safetensors","d":"two.safetensors")"),
                                  cut.substr(0, cut.size() - 1));
  test::expect_parts(text, {"two.safetensors is cut short"});
}

TEST(SafetensorsIndex, a_folder_without_weights_names_what_was_looked_for) {
  test::ScratchFolder scratch;
  auto const text = test::error_of([&] { io::SafetensorsFolder folder(scratch.path()); });
  test::expect_parts(text, {scratch.path().string(), "model.safetensors", "index.json"});
  test::error_of([&] { io::SafetensorsFolder folder(scratch / "absent"); });
}

TEST(SafetensorsIndex, two_sets_of_weights_in_one_folder_are_refused) {
  test::ScratchFolder scratch;
  test::write_file(scratch / "model.safetensors", pairs({"a", "b"}));
  test::write_file(scratch / "model.safetensors.index.json", map_of(""));
  test::expect_parts(test::error_of([&] { io::SafetensorsFolder folder(scratch.path()); }),
                     {"both", "two sets of weights"});
}

}  // namespace
}  // namespace spillway
