// Which kind of token file a file is, from its first bytes, its name and its size.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "io/plain_file.hpp"

namespace spillway::io {

/// Our header as it lies in the file (token_files.hpp); little-endian like every machine this runs
/// on.
struct TokenHeader {
  std::array<char, 8> magic{};
  std::uint32_t version = 0;
  std::uint32_t token_bytes = 0;
  std::uint64_t vocab_size = 0;
  std::uint64_t tokens = 0;
  std::uint64_t tokenizer_hash = 0;
  std::uint64_t source_hash = 0;
  std::array<char, 200> reserved{};
  std::uint64_t header_hash = 0;
};
static_assert(sizeof(TokenHeader) == 256);

inline constexpr std::array<char, 8> kTokenMagic{'\x93', 'S', 'P', 'W', 'T', 'O', 'K', '\n'};
inline constexpr std::uint32_t kTokenVersion = 1;

std::uint64_t header_hash(TokenHeader const& header);

/// Where the tokens of a file lie.
struct TokenLayout {
  std::string_view format;  // "spillway", "llm.c" or "headerless"
  std::uint64_t begin = 0;  // bytes before the first token
  std::size_t width = 2;    // bytes of a token
  std::uint64_t tokens = 0;
  std::uint64_t vocab_size = 0;  // 0 where the file does not say
};

/// Throws Fault::bad_input with one message that says what the file is instead, or what is wrong
/// with it.
TokenLayout recognise(PlainReader const& file);

}  // namespace spillway::io
