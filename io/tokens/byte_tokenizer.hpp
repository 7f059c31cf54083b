// The tokenizer that needs no files: every byte is a token, 0 to 255.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace spillway::io {

/// automatic: .jsonl and .ndjson are JSON lines, .json is refused (it may be either), all else is
/// text.
enum class TextFormat { automatic, text, jsonl };

struct ByteTokenizerOptions {
  TextFormat format = TextFormat::automatic;
  std::string field = "text";  // of JSON lines
  bool end_of_text = true;     // token 256 after each document; without it the vocabulary is 256
};

struct TokenizeCounts {
  std::uint64_t documents = 0;
  std::uint64_t empty_documents = 0;  // skipped: not a byte of text, no end-of-text
  std::uint64_t input_bytes = 0;
  std::uint64_t tokens = 0;
  std::uint64_t replaced_surrogates = 0;  // half a surrogate pair in JSON: written as U+FFFD
};

inline constexpr std::int32_t kEndOfText = 256;

/// 257 with end-of-text, 256 without.
std::int64_t byte_vocab_size(bool end_of_text);

/// Writes a token file (token_files.hpp) of `inputs`, in order; "-" is stdin. A text file is one
/// document and goes in as it is, line ends and NUL included; a JSON line is one document, its
/// field's text; a blank line is none. A UTF-8 byte order mark at the start of a file is dropped.
/// Documents of nothing but white space are documents. Streams: memory does not grow with files,
/// lines or documents. Throws Fault::bad_input naming file and line: no JSON object, field missing,
/// twice or no string, invalid UTF-8 in JSON, UTF-16, no token at all.
TokenizeCounts tokenize_bytes(std::span<std::string const> inputs,
                              std::filesystem::path const& output,
                              ByteTokenizerOptions const& options);

/// Bytes for printing: end-of-text as "<|endoftext|>", tokens that are no byte as U+FFFD.
std::string detokenize_bytes(std::span<std::int32_t const> tokens);

}  // namespace spillway::io
