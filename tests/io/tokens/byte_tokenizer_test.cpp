// Text and JSON lines to byte tokens.
#include "io/tokens/byte_tokenizer.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/tokens/jsonl_scanner.hpp"
#include "io/tokens/token_files.hpp"
#include "tests/io/safetensors/test_files.hpp"

namespace spillway {
namespace {

using io::ByteTokenizerOptions;
using io::TextFormat;
using io::TokenizeCounts;
using namespace std::string_literals;

class ByteTokenizer : public testing::Test {
 protected:
  std::string put(std::string_view name, std::string_view text) const {
    test::write_file(scratch / name, text);
    return (scratch / name).string();
  }
  /// Tokenizes and shows the tokens as text, end-of-text as '|'.
  std::string tokens_of(std::vector<std::string> const& inputs,
                        ByteTokenizerOptions const& options = {}) {
    counts = io::tokenize_bytes(inputs, scratch / "out.bin", options);
    auto const source =
        io::open_tokens((scratch / "out.bin").string(), io::byte_vocab_size(options.end_of_text));
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(source->size()));
    source->read(0, tokens);
    EXPECT_EQ(counts.tokens, tokens.size());
    std::string text;
    for (auto token : tokens)
      text.push_back(token == io::kEndOfText ? '|' : static_cast<char>(token));
    return text;
  }
  std::string lines(std::string_view jsonl) { return tokens_of({put("in.jsonl", jsonl)}); }
  std::string refusal(std::string_view jsonl, ByteTokenizerOptions const& options = {}) {
    std::vector<std::string> const inputs{put("in.jsonl", jsonl)};
    std::filesystem::remove(scratch / "out.bin");
    auto const text =
        test::error_of([&] { io::tokenize_bytes(inputs, scratch / "out.bin", options); });
    EXPECT_FALSE(std::filesystem::exists(scratch / "out.bin"));
    test::expect_parts(text, {inputs[0]});
    return text;
  }

  test::ScratchFolder scratch;
  TokenizeCounts counts;
};

TEST_F(ByteTokenizer, a_text_file_is_one_document_as_it_is) {
  EXPECT_EQ(tokens_of({put("a.txt", "one\r\ntwo\0\xff\n"s)}), "one\r\ntwo\0\xff\n|"s);
  EXPECT_EQ(counts.documents, 1u);
  EXPECT_EQ(counts.input_bytes, 11u);
  EXPECT_EQ(counts.tokens, 12u);
}

TEST_F(ByteTokenizer, files_follow_each_other_in_the_order_given) {
  EXPECT_EQ(tokens_of({put("b.txt", "b"), put("a.jsonl", R"({"text":"j"})"), put("c", "c")}),
            "b|j|c|");
  EXPECT_EQ(counts.documents, 3u);
}

TEST_F(ByteTokenizer, without_end_of_text_documents_run_on) {
  ByteTokenizerOptions options;
  options.end_of_text = false;
  EXPECT_EQ(tokens_of({put("a.txt", "a"), put("b.txt", "b")}, options), "ab");
  EXPECT_EQ(io::byte_vocab_size(false), 256);
  EXPECT_EQ(io::byte_vocab_size(true), 257);
}

TEST_F(ByteTokenizer, numpy_reads_tokens_and_hash_of_the_input) {
  ASSERT_EQ(tokens_of({put("a.txt", "hello")}), "hello|");
  // xxhsum -H3 of the five bytes.
  auto const text =
      test::python(SPILLWAY_REFERENCE, "read '" + (scratch / "out.bin").string() + "'");
  test::expect_parts(text, {"2 257 6 ", " 9555e8555c62dcfd ", "\n104 101 108 108 111 256\n"});
}

TEST_F(ByteTokenizer, an_empty_text_file_is_counted_and_skipped) {
  EXPECT_EQ(tokens_of({put("empty.txt", ""), put("b.txt", "b")}), "b|");
  EXPECT_EQ(counts.documents, 1u);
  EXPECT_EQ(counts.empty_documents, 1u);
}

TEST_F(ByteTokenizer, nothing_at_all_is_refused) {
  std::vector<std::string> const inputs{put("empty.jsonl", "{\"text\":\"\"}\n\n")};
  auto const text = test::error_of([&] { io::tokenize_bytes(inputs, scratch / "out.bin", {}); });
  test::expect_parts(text, {"no text", "1 empty documents"});
}

TEST_F(ByteTokenizer, a_byte_order_mark_is_dropped) {
  EXPECT_EQ(tokens_of({put("a.txt", "\xef\xbb\xbfone")}), "one|");
  EXPECT_EQ(lines("\xef\xbb\xbf{\"text\":\"two\"}\n"), "two|");
}

TEST_F(ByteTokenizer, utf_16_is_refused_with_the_converter) {
  test::expect_parts(refusal("\xff\xfe{\0"s), {"UTF-16", "iconv"});
}

TEST_F(ByteTokenizer, every_line_is_one_document) {
  EXPECT_EQ(
      lines("{\"text\":\"one\"}\n{\"id\":7,\"text\":\"two\",\"meta\":{\"text\":[1,\"x\"]}}\n"),
      "one|two|");
  EXPECT_EQ(counts.documents, 2u);
}

TEST_F(ByteTokenizer, the_last_line_may_lack_its_newline) {
  EXPECT_EQ(lines("{\"text\":\"one\"}\n{\"text\":\"two\"}"), "one|two|");
}

TEST_F(ByteTokenizer, carriage_returns_at_line_ends_are_no_text) {
  EXPECT_EQ(lines("{\"text\":\"one\"}\r\n\r\n{\"text\":\"two\"}\r\n"), "one|two|");
}

TEST_F(ByteTokenizer, empty_documents_first_and_last_are_counted_and_skipped) {
  EXPECT_EQ(lines("{\"text\":\"\"}\n{\"text\":\"one\"}\n{\"text\":\"\"}\n"), "one|");
  EXPECT_EQ(counts.documents, 1u);
  EXPECT_EQ(counts.empty_documents, 2u);
}

TEST_F(ByteTokenizer, white_space_is_text_but_blank_lines_are_no_documents) {
  EXPECT_EQ(lines("\n  \t\n{\"text\":\" \\n\"}\n\n"), " \n|");
  EXPECT_EQ(counts.documents, 1u);
  EXPECT_EQ(counts.empty_documents, 0u);
}

TEST_F(ByteTokenizer, all_escapes_are_decoded) {
  EXPECT_EQ(lines(R"({"text":"\" \\ \/ \b \f \n \r \t \u0000 \u0041 \u00e9 \u20AC \ud83d\ude00"})"),
            "\" \\ / \b \f \n \r \t \0 A \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80|"s);
  EXPECT_EQ(counts.replaced_surrogates, 0u);
}

TEST_F(ByteTokenizer, other_scripts_pass_unchanged) {
  std::string const text = "z\u00fcrich \u4e2d\u6587 \U0001F469\u200D\U0001F52C \U0010FFFF \uD7FF";
  EXPECT_EQ(lines("{\"text\":\"" + text + "\"}"), text + "|");
}

TEST_F(ByteTokenizer, half_a_surrogate_pair_is_replaced_and_counted) {
  std::string const mark = "\xef\xbf\xbd";
  EXPECT_EQ(lines(R"({"text":"a\ud83d"})"), "a" + mark + "|");
  EXPECT_EQ(lines(R"({"text":"\ude00b"})"), mark + "b|");
  EXPECT_EQ(lines(R"({"text":"\ud83d\ud83d\ude00"})"), mark + "\xf0\x9f\x98\x80|");
  EXPECT_EQ(lines(R"({"text":"\ud83d\u0041 \ud83d\n \ud83dx \ud83d)"s + "\u00e9\"}"),
            mark + "A " + mark + "\n " + mark + "x " + mark + "\u00e9|");
  EXPECT_EQ(counts.replaced_surrogates, 4u);
  EXPECT_EQ(lines(R"({"\ud83d":"\ud83d","text":"a"})"), "a|");
  EXPECT_EQ(counts.replaced_surrogates, 0u);
}

TEST_F(ByteTokenizer, a_missing_field_is_an_error_with_the_line) {
  test::expect_parts(refusal("{\"text\":\"a\"}\n\n{\"content\":\"b\"}\n"),
                     {"line 3", "no field 'text'"});
  test::expect_parts(refusal("{}"), {"line 1", "no field 'text'"});
  test::expect_parts(refusal(R"({"meta":{"text":"inner"}})"), {"no field 'text'"});
  test::expect_parts(refusal(R"({"texts":"a","tex":"b","Text":"c"})"), {"no field 'text'"});
}

TEST_F(ByteTokenizer, another_field_can_be_named) {
  ByteTokenizerOptions options;
  options.field = "content";
  EXPECT_EQ(tokens_of({put("a.jsonl", R"({"text":"a","content":"b"})")}, options), "b|");
  test::expect_parts(refusal(R"({"text":"a"})", options), {"no field 'content'"});
}

TEST_F(ByteTokenizer, an_escaped_name_is_the_same_name) {
  EXPECT_EQ(lines(R"({"t\u0065xt":"a"})"), "a|");
}

TEST_F(ByteTokenizer, a_field_that_is_no_string_is_an_error_with_the_line) {
  for (auto value : {"null", "7", "[\"a\"]", "{}", "true"})
    test::expect_parts(refusal("{\"text\":\"a\"}\n{\"text\":"s + value + "}"),
                       {"line 2", "'text' is no string"});
}

TEST_F(ByteTokenizer, a_field_that_appears_twice_is_an_error) {
  test::expect_parts(refusal(R"({"text":"a","text":"b"})"), {"line 1", "'text' appears twice"});
}

TEST_F(ByteTokenizer, control_characters_in_a_string_are_errors) {
  test::expect_parts(refusal("{\"text\":\"a\0b\"}"s), {"line 1", "0x00", "\\u0000"});
  test::expect_parts(refusal("{\"text\":\"a\tb\"}"), {"0x09"});
  test::expect_parts(refusal("{\"text\":\"a\nb\"}"), {"line 1", "ends inside a string"});
}

TEST_F(ByteTokenizer, bytes_that_are_no_utf_8_are_errors) {
  for (auto bad : {"\xff", "\xe9 ", "\x80", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80",
                   "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xe2\x82\""})
    test::expect_parts(refusal("{\"text\":\"ok\"}\n{\"text\":\""s + bad + "\"}"),
                       {"line 2", "not UTF-8"});
}

TEST_F(ByteTokenizer, what_is_no_json_is_an_error_with_the_line) {
  std::string const good = "{\"text\":\"a\"}\n";
  for (std::string bad : {"plain text",
                          "[1]",
                          "\"text\"",
                          "7",
                          "{text:1}",
                          "{\"text\" \"a\"}",
                          "{\"text\":}",
                          "{\"text\":\"a\",}",
                          "{\"text\":\"a\"",
                          "{\"text\":\"a",
                          "{\"text\":\"a\"]",
                          "{\"text\":\"a\"}}",
                          "{\"text\":\"a\"}{\"text\":\"b\"}",
                          "{\"text\":\"a\"},",
                          "{\"n\":01,\"text\":\"a\"}",
                          "{\"n\":1.,\"text\":\"a\"}",
                          "{\"n\":-,\"text\":\"a\"}",
                          "{\"n\":1e,\"text\":\"a\"}",
                          "{\"n\":NaN,\"text\":\"a\"}",
                          "{\"n\":nul,\"text\":\"a\"}",
                          "{\"n\":[1,],\"text\":\"a\"}",
                          "{\"n\":[1 2],\"text\":\"a\"}",
                          "{\"n\":[1},\"text\":\"a\"}",
                          "{\"text\":\"\\x\"}",
                          "{\"text\":\"\\u12g4\"}",
                          "{,\"text\":\"a\"}",
                          "{\"n\":1,,\"text\":\"a\"}"})
    test::expect_parts(refusal(good + bad), {"line 2"});
}

TEST_F(ByteTokenizer, values_of_other_fields_may_be_anything_that_is_json) {
  EXPECT_EQ(
      lines(R"({"a":-0.5e+10,"b":[],"c":[[1,2],{"d":{}}],"e":null,"f":true,"g":false,"h":0,"i":1E5)"
            R"( , "text" : "x" , "j":"\u0001"})"),
      "x|");
}

TEST_F(ByteTokenizer, an_object_spread_over_lines_is_an_error) {
  test::expect_parts(refusal("{\n\"text\":\"a\"}"), {"line 1", "inside an object"});
}

TEST_F(ByteTokenizer, nesting_without_end_is_an_error_and_no_crash) {
  test::expect_parts(refusal("{\"a\":" + std::string(1'000'000, '[')), {"line 1", "256"});
}

TEST_F(ByteTokenizer, a_json_file_is_refused_unless_the_format_is_given) {
  std::vector<std::string> const inputs{put("a.json", "{\"text\":\"a\"}\n")};
  test::expect_parts(test::error_of([&] { io::tokenize_bytes(inputs, scratch / "out.bin", {}); }),
                     {inputs[0], ".jsonl"});
  ByteTokenizerOptions options;
  options.format = TextFormat::jsonl;
  EXPECT_EQ(tokens_of(inputs, options), "a|");
  options.format = TextFormat::text;
  EXPECT_EQ(tokens_of(inputs, options), "{\"text\":\"a\"}\n|");
}

TEST_F(ByteTokenizer, inputs_that_cannot_be_read_are_named) {
  for (std::string path : {(scratch / "absent.txt").string(), scratch.path().string()}) {
    std::vector<std::string> const inputs{path};
    test::expect_parts(test::error_of([&] { io::tokenize_bytes(inputs, scratch / "out.bin", {}); }),
                       {path});
  }
}

TEST_F(ByteTokenizer, the_output_is_never_an_input) {
  std::vector<std::string> const inputs{put("a.txt", "precious")};
  test::expect_parts(test::error_of([&] { io::tokenize_bytes(inputs, inputs[0], {}); }),
                     {inputs[0], "input and output"});
  EXPECT_EQ(test::read_file(inputs[0]), "precious");
}

TEST_F(ByteTokenizer, stdin_is_read_as_dash) {
  int const saved = ::dup(STDIN_FILENO);
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ASSERT_EQ(::write(ends[1], "from a pipe", 11), 11);
  ::close(ends[1]);
  ::dup2(ends[0], STDIN_FILENO);
  ::close(ends[0]);
  EXPECT_EQ(tokens_of({"-", put("b.txt", "b")}), "from a pipe|b|");
  ::dup2(saved, STDIN_FILENO);
  ::close(saved);
}

TEST_F(ByteTokenizer, documents_across_reading_blocks_are_whole) {
  std::string text, expected;
  for (int i = 0; i < 40'000; ++i) {
    std::string const word = "line " + std::to_string(i) + " \u20ac";
    text += "{\"n\":" + std::to_string(i) + ",\"text\":\"" + word + "\\n\"}\n";
    expected += word + "\n|";
  }
  ASSERT_GT(text.size(), std::size_t{1} << 20);
  EXPECT_EQ(lines(text), expected);
}

TEST_F(ByteTokenizer, the_scanner_does_not_care_where_its_input_is_cut) {
  struct Collect : io::DocumentSink {
    void text(std::string_view piece) override { all += piece; }
    void end_document() override { all += '|'; }
    std::string all;
  };
  std::string const input =
      "{\"a\":-1.5,\"text\":\"\\ud83d\\ude00 \u20ac\\n\\u0041\"}\r\n\n{\"text\":\"x\\ud800\"}";
  for (std::size_t cut = 1; cut <= input.size(); ++cut) {
    Collect sink;
    io::JsonlScanner scanner("test", "text", sink);
    for (std::size_t at = 0; at < input.size(); at += cut)
      scanner.feed(std::string_view(input).substr(at, cut));
    scanner.finish();
    ASSERT_EQ(sink.all, "\xf0\x9f\x98\x80 \u20ac\nA|x\xef\xbf\xbd|") << cut;
  }
}

TEST_F(ByteTokenizer, a_line_of_a_gigabyte_takes_no_memory) {
  struct Count : io::DocumentSink {
    void text(std::string_view piece) override { bytes += piece.size(); }
    void end_document() override { ++documents; }
    std::uint64_t bytes = 0, documents = 0;
  } sink;
  io::JsonlScanner scanner("test", "text", sink);
  std::string const block = std::string((1u << 20) - 2, 'x') + "\\n";
  ::rusage before{}, after{};
  ::getrusage(RUSAGE_SELF, &before);
  scanner.feed("{\"text\":\"");
  for (int i = 0; i < 1024; ++i) scanner.feed(block);
  scanner.feed("\"}\n");
  scanner.finish();
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_EQ(sink.documents, 1u);
  EXPECT_EQ(sink.bytes, 1024u * ((1u << 20) - 1));
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 16 * 1024);
}

TEST(Detokenize, bytes_become_text_again) {
  std::vector<std::int32_t> const tokens{104, 105, 0xc3, 0xa9, 256, 300, -1};
  EXPECT_EQ(io::detokenize_bytes(tokens), "hi\u00e9<|endoftext|>\ufffd\ufffd");
}

}  // namespace
}  // namespace spillway
