// Token files of all kinds, read and written: against files that numpy wrote, and each kind of
// damage.
#include "io/tokens/token_files.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/io/safetensors/test_files.hpp"

namespace spillway {
namespace {

using io::open_tokens;

std::int32_t expected(std::int64_t i, std::int64_t vocab) {
  return static_cast<std::int32_t>((i * 7919 + 13) % vocab);
}

std::vector<std::int32_t> all_of(data::TokenSource const& source) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source.size()));
  source.read(0, tokens);
  return tokens;
}

std::string words(std::vector<std::uint16_t> const& tokens) {
  return {reinterpret_cast<char const*>(tokens.data()), 2 * tokens.size()};
}

std::string llmc_header(std::uint32_t magic, std::uint32_t version, std::uint32_t count) {
  return test::bytes_of(magic, version, count) + std::string(1024 - 12, '\0');
}

class TokenFiles : public testing::Test {
 protected:
  std::string path(std::string_view name) const { return (scratch / name).string(); }
  std::string put(std::string_view name, std::string_view bytes) const {
    test::write_file(scratch / name, bytes);
    return path(name);
  }
  /// The error that opening gives; it must name the file.
  std::string refusal(std::string const& file, std::int64_t vocab = 50257) const {
    auto const text = test::error_of([&] { open_tokens(file, vocab); });
    test::expect_parts(text, {file});
    return text;
  }
  /// Writes a file of ours with tokens 0, 1, 2, ...
  std::string ours(std::string_view name, int count, std::int64_t vocab = 300) const {
    io::TokenWriter writer(scratch / name, {vocab, 0x1111, 0});
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) tokens[static_cast<std::size_t>(i)] = i;
    writer.append(tokens);
    writer.commit({vocab, 0x1111, 0x2222});
    return path(name);
  }

  test::ScratchFolder scratch;
};

TEST_F(TokenFiles, files_that_numpy_wrote_are_read_token_by_token) {
  test::python(SPILLWAY_REFERENCE, "write '" + scratch.path().string() + "'");
  for (auto [name, vocab] :
       {std::pair{"bare.bin", 50257}, {"narrow.llmc", 50257}, {"wide.llmc", 128256}}) {
    auto const source = open_tokens(path(name), vocab);
    auto const tokens = all_of(*source);
    ASSERT_EQ(tokens.size(), 5000u) << name;
    for (std::int64_t i = 0; i < 5000; ++i)
      ASSERT_EQ(tokens[static_cast<std::size_t>(i)], expected(i, vocab)) << name;
  }
}

TEST_F(TokenFiles, numpy_reads_what_we_write) {
  auto const file = ours("a.bin", 5);
  auto const text = test::python(SPILLWAY_REFERENCE, "read '" + file + "'");
  test::expect_parts(text, {"2 300 5 1111 2222 ", "\n0 1 2 3 4\n"});
  // The hash as the program xxhsum has it: "XXH3 (stdin) = ...".
  auto const hash = test::output_of("head -c 248 '" + file + "' | xxhsum -H3");
  auto const digits = hash.substr(hash.find("= ") + 2, 16);
  EXPECT_EQ(std::stoull(digits, nullptr, 16), std::stoull(text.substr(18), nullptr, 16));
}

TEST_F(TokenFiles, a_vocabulary_above_65536_takes_four_bytes_a_token) {
  for (auto [vocab, width] : {std::pair{65536, "2 65536 2"}, {65537, "4 65537 2"}}) {
    io::TokenWriter writer(scratch / "a.bin", {vocab, 0, 0});
    std::vector<std::int32_t> const tokens{7, vocab - 1};
    writer.append(tokens);
    writer.commit({vocab, 0, 0});
    EXPECT_EQ(all_of(*open_tokens(path("a.bin"), vocab)), tokens);
    test::expect_parts(test::python(SPILLWAY_REFERENCE, "read '" + path("a.bin") + "'"), {width});
  }
}

TEST_F(TokenFiles, several_files_are_one_row_in_the_order_given) {
  auto const b = put("b.bin", words({1, 2, 3}));
  auto const a = put("a.bin", words({4, 5}));
  auto const c = ours("c.tokens", 2);
  auto const source = open_tokens(b + "," + a + "," + c, 300);
  EXPECT_EQ(source->size(), 7);
  EXPECT_EQ(all_of(*source), (std::vector<std::int32_t>{1, 2, 3, 4, 5, 0, 1}));
  std::vector<std::int32_t> middle(3);
  source->read(2, middle);
  EXPECT_EQ(middle, (std::vector<std::int32_t>{3, 4, 5}));
  source->read(4, middle);
  EXPECT_EQ(middle, (std::vector<std::int32_t>{5, 0, 1}));
}

TEST_F(TokenFiles, a_glob_is_sorted_by_name) {
  put("train_2.bin", words({2}));
  put("train_10.bin", words({10}));
  put("train_1.bin", words({1}));
  put("val_0.bin", words({9}));
  EXPECT_EQ(all_of(*open_tokens(path("train_*.bin"), 300)), (std::vector<std::int32_t>{1, 10, 2}));
  EXPECT_EQ(all_of(*open_tokens(path("val_[0-9].bin") + "," + path("train_?.bin"), 300)),
            (std::vector<std::int32_t>{9, 1, 2}));
}

TEST_F(TokenFiles, a_name_with_the_characters_of_a_glob_is_taken_as_it_is) {
  put("a[1].bin", words({5}));
  EXPECT_EQ(all_of(*open_tokens(path("a[1].bin"), 300)), std::vector<std::int32_t>{5});
}

TEST_F(TokenFiles, a_glob_that_matches_nothing_is_named) {
  test::expect_parts(refusal(path("none_*.bin")), {"matches no file"});
}

TEST_F(TokenFiles, an_empty_path_is_refused) {
  put("a.bin", words({5}));
  test::expect_parts(test::error_of([&] { open_tokens(path("a.bin") + ",", 300); }),
                     {"empty path"});
  test::expect_parts(test::error_of([&] { open_tokens("", 300); }), {"empty path"});
}

TEST_F(TokenFiles, files_that_cannot_be_opened_are_named_with_the_reason) {
  test::expect_parts(refusal(path("absent.bin")), {"ENOENT"});
  std::filesystem::create_symlink(path("loop.bin"), path("loop.bin"));
  test::expect_parts(refusal(path("loop.bin")), {"ELOOP"});
  std::filesystem::create_directory(path("folder"));
  test::expect_parts(refusal(path("folder")), {"directory"});
}

TEST_F(TokenFiles, an_empty_file_is_refused) {
  test::expect_parts(refusal(put("a.bin", "")), {"empty", "0 bytes"});
  test::expect_parts(refusal(put("b.bin", llmc_header(20240520, 1, 0))), {"no tokens"});
}

TEST_F(TokenFiles, an_odd_trailing_byte_is_refused) {
  test::expect_parts(refusal(put("a.bin", words({1, 2}) + "x")),
                     {"5 bytes", "one byte is left over"});
  test::expect_parts(refusal(put("b.bin", llmc_header(20240520, 1, 2) + words({1, 2}) + "x")),
                     {"2 tokens", "5 bytes"});
}

TEST_F(TokenFiles, the_same_file_twice_is_named_with_both_names) {
  auto const a = put("a.bin", words({1, 2}));
  std::filesystem::create_symlink("a.bin", path("link.bin"));
  test::expect_parts(test::error_of([&] { open_tokens(a + "," + a, 300); }), {a, "same file"});
  auto const text = test::error_of([&] { open_tokens(a + "," + path("link.bin"), 300); });
  test::expect_parts(text, {path("a.bin"), path("link.bin"), "same file"});
}

TEST_F(TokenFiles, every_bad_file_gets_one_line) {
  auto const odd = put("a.bin", "xxx");
  auto const good = put("b.bin", words({1}));
  auto const empty = put("c.bin", "");
  auto const text =
      test::error_of([&] { open_tokens(odd + "," + good + "," + empty + "," + path("d*"), 300); });
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  test::expect_parts(text, {odd, empty, path("d*")});
  EXPECT_EQ(text.find(good), std::string::npos);
}

TEST_F(TokenFiles, a_header_that_does_not_match_the_size_is_refused) {
  auto const text = refusal(put("a.bin", llmc_header(20240520, 1, 3) + words({1, 2})));
  test::expect_parts(text, {"3 tokens", "4 bytes"});
  auto bytes = test::read_file(ours("b.bin", 5));
  test::expect_parts(refusal(put("c.bin", bytes + "xx"), 300), {"5 tokens", "12 bytes"});
  test::expect_parts(refusal(put("d.bin", bytes.substr(0, bytes.size() - 1)), 300),
                     {"5 tokens", "9 bytes"});
  test::expect_parts(refusal(put("e.bin", bytes.substr(0, 100)), 300), {"100 bytes", "256"});
  test::expect_parts(refusal(put("f.bin", llmc_header(20240520, 1, 3).substr(0, 600))),
                     {"600 bytes", "1024"});
}

TEST_F(TokenFiles, a_changed_header_of_ours_is_refused) {
  auto const bytes = test::read_file(ours("a.bin", 5));
  for (std::size_t at : {8u, 12u, 16u, 24u, 32u, 40u, 100u, 247u, 250u}) {
    auto changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    auto const text = refusal(put("b.bin", changed), 300);
    test::expect_parts(text, {at == 8 ? "version 0" : "hash"});
  }
}

TEST_F(TokenFiles, other_versions_of_llmc_are_named) {
  test::expect_parts(refusal(put("a.bin", llmc_header(20240520, 2, 1) + words({1}))),
                     {"version 2", "llm.c"});
  test::expect_parts(refusal(put("b.bin", llmc_header(20240801, 1, 1) + words({1, 0}))),
                     {"version 1", "llm.c"});
  test::expect_parts(refusal(put("c.bin", llmc_header(20240522, 1, 1) + words({1}))),
                     {"multiple-choice"});
}

TEST_F(TokenFiles, two_thousand_million_tokens_overflow_no_count) {
  // A sparse file: the header's int32 would be negative.
  std::uint64_t const count = (std::uint64_t{1} << 31) + 5;
  auto const file = put("big.bin", llmc_header(20240520, 1, static_cast<std::uint32_t>(count)));
  std::filesystem::resize_file(file, 1024 + 2 * count);
  auto const source = open_tokens(file, 50257);
  EXPECT_EQ(source->size(), 2147483653);
  std::vector<std::int32_t> last(4, -1);
  source->read(source->size() - 4, last);
  EXPECT_EQ(last, std::vector<std::int32_t>(4, 0));
}

TEST_F(TokenFiles, a_count_that_wrapped_around_32_bits_gives_the_true_length) {
  std::uint64_t const count = (std::uint64_t{1} << 32) + 3;
  auto const file = put("big.bin", llmc_header(20240520, 1, static_cast<std::uint32_t>(count)));
  std::filesystem::resize_file(file, 1024 + 2 * count);
  EXPECT_EQ(open_tokens(file, 50257)->size(), 4294967299);
}

TEST_F(TokenFiles, a_big_file_of_another_length_than_stated_is_refused) {
  std::uint64_t const count = (std::uint64_t{1} << 31) + 5;
  auto const file = put("big.bin", llmc_header(20240520, 1, static_cast<std::uint32_t>(count)));
  std::filesystem::resize_file(file, 1024 + 2 * count - 2);
  test::expect_parts(refusal(file), {"2147483653 tokens", "4294967304 bytes"});
}

TEST_F(TokenFiles, a_token_outside_the_vocabulary_at_either_end_is_found_at_open) {
  test::expect_parts(refusal(put("a.bin", words({1, 300, 2})), 300),
                     {"token 300", "byte 2", "uint16", "has 300"});
  std::vector<std::uint16_t> row(100'000, 1);
  row.back() = 299;
  EXPECT_EQ(open_tokens(put("b.bin", words(row)), 300)->size(), 100'000);
  row.back() = 300;
  test::expect_parts(refusal(put("c.bin", words(row)), 300), {"token 300", "byte 199998"});
}

TEST_F(TokenFiles, a_token_outside_the_vocabulary_in_the_middle_is_found_when_read) {
  std::vector<std::uint16_t> row(200'000, 1);
  row[100'001] = 65535;
  auto const source =
      open_tokens(put("a.bin", llmc_header(20240520, 1, 200'000) + words(row)), 50257);
  std::vector<std::int32_t> tokens(1000);
  source->read(99'001, tokens);
  auto const text = test::error_of([&] { source->read(99'002, tokens); });
  test::expect_parts(text, {path("a.bin"), "token 65535", "byte 201026", "llm.c"});
}

TEST_F(TokenFiles, tokens_above_2_to_the_31_are_not_negative) {
  auto const text =
      refusal(put("a.bin", llmc_header(20240801, 7, 1) + test::bytes_of(0xffffffffu)), INT32_MAX);
  test::expect_parts(text, {"token 4294967295"});
}

TEST_F(TokenFiles, a_file_of_another_tokenizer_is_refused_at_open) {
  test::expect_parts(refusal(ours("a.bin", 5, 300), 299), {"vocabulary of 300", "299"});
  EXPECT_EQ(open_tokens(path("a.bin"), 304)->size(), 5);
}

TEST_F(TokenFiles, megatron_data_is_named_with_a_converter) {
  std::string const index = std::string("MMIDIDX\0\0", 9) + test::bytes_of(std::uint64_t{1}) +
                            '\4' + std::string(16, '\0');
  put("a.bin", words({1, 0, 2, 0}));
  put("a.idx", index);
  test::expect_parts(refusal(path("a.idx")), {"Megatron", "int32", "numpy", path("a.bin")});
  test::expect_parts(refusal(path("a.bin")), {"Megatron", path("a.idx"), "int32"});
}

TEST_F(TokenFiles, files_of_other_programs_are_named) {
  test::expect_parts(refusal(put("a.parquet", "PAR1xxxx")),
                     {"Parquet", "pandas", "spillway tokenize"});
  test::expect_parts(refusal(put("a.npy", "\x93NUMPY\1")), {"NumPy", "tofile"});
  test::expect_parts(refusal(put("a.h5", "\x89HDF\r\n\x1a\n")), {"HDF5"});
  test::expect_parts(refusal(put("a.jsonl", "{\"text\":\"\"}")), {"text", "spillway tokenize"});
  test::expect_parts(refusal(put("a.txt", "To be, or not")), {"text", "spillway tokenize"});
  test::expect_parts(refusal(put("a.bin.tmp", "xx")), {"unfinished"});
}

TEST_F(TokenFiles, a_file_that_shrinks_while_it_is_read_is_an_error) {
  auto const file = put("a.bin", std::string(100'000, '\0'));
  auto const source = open_tokens(file, 300);
  std::filesystem::resize_file(file, 1000);
  std::vector<std::int32_t> tokens(100);
  test::expect_parts(test::error_of([&] { source->read(40'000, tokens); }, Fault::io),
                     {file, "ends at byte"});
}

TEST_F(TokenFiles, a_range_beyond_the_row_is_refused) {
  auto const source = open_tokens(put("a.bin", words({1, 2, 3})), 300);
  std::vector<std::int32_t> two(2);
  test::error_of([&] { source->read(2, two); }, Fault::internal);
  test::error_of([&] { source->read(-1, two); }, Fault::internal);
  source->read(3, std::span<std::int32_t>());
}

TEST_F(TokenFiles, description_says_what_the_data_are) {
  test::expect_parts(open_tokens(put("a.bin", words({1, 2, 3})), 300)->description(),
                     {path("a.bin"), "headerless uint16", "3 tokens"});
  test::expect_parts(open_tokens(path("a.bin") + "," + ours("b.bin", 4), 300)->description(),
                     {"2 files", "1 of headerless uint16", "1 of spillway uint16", "7 tokens"});
}

TEST_F(TokenFiles, more_files_than_stay_open_are_read_all_the_same) {
  std::vector<std::int32_t> numbers;
  for (int i = 0; i < 600; ++i) {
    std::string const number = std::to_string(1000 + i);
    put("f" + number, words({static_cast<std::uint16_t>(i)}));
    numbers.push_back(i);
  }
  ::rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  auto const before = limit.rlim_cur;
  limit.rlim_cur = std::min<rlim_t>(before, 560);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(all_of(*open_tokens(path("f*"), 600)), numbers);
  limit.rlim_cur = before;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
}

TEST_F(TokenFiles, threads_read_at_the_same_time_across_the_cache_window) {
  std::vector<std::uint16_t> row(3'000'000);
  for (std::size_t i = 0; i < row.size(); ++i)
    row[i] = static_cast<std::uint16_t>(expected(static_cast<std::int64_t>(i), 50257));
  auto const source = open_tokens(put("a.bin", words(row)) + "," + put("b.bin", words(row)), 50257);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::vector<std::int32_t> tokens(100'000);
      for (int k = 0; k < 58; ++k) {
        std::int64_t const begin = (k * 100'000 + t * 1'300'007) % 5'900'000;
        source->read(begin, tokens);
        for (std::int64_t i = 0; i < 100'000; ++i)
          wrong += tokens[static_cast<std::size_t>(i)] != expected((begin + i) % 3'000'000, 50257);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(TokenFiles, a_token_that_the_vocabulary_lacks_is_not_written) {
  io::TokenWriter writer(scratch / "a.bin", {300, 0, 0});
  std::vector<std::int32_t> const tokens{1, 299, 300};
  test::expect_parts(test::error_of([&] { writer.append(tokens); }),
                     {"token 300", "a.bin", "position 2"});
  std::vector<std::int32_t> const negative{-1};
  test::error_of([&] { writer.append(negative); });
}

TEST_F(TokenFiles, without_commit_the_file_never_appears) {
  put("a.bin", "the old one");
  {
    io::TokenWriter writer(scratch / "a.bin", {300, 0, 0});
    writer.append(std::vector<std::int32_t>(500'000, 1));
    EXPECT_TRUE(std::filesystem::exists(path("a.bin.tmp")));
  }
  EXPECT_EQ(test::read_file(path("a.bin")), "the old one");
  EXPECT_FALSE(std::filesystem::exists(path("a.bin.tmp")));
}

}  // namespace
}  // namespace spillway
