// Token files: ours (a small header), llm.c's, and nanoGPT's headerless uint16.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/data/token_source.hpp"

namespace spillway::io {

/// Opens paths and globs (comma-separated), sorted within a glob, as one row of tokens. Throws Fault::bad_input with one
/// clear message a file: unreadable, empty, odd trailing byte, header that does not match the size, glob without match,
/// the same file twice, Megatron .idx or Parquet (named, with the converter to use), a token >= vocab_size (file, offset).
std::unique_ptr<data::TokenSource> open_tokens(std::string const& paths, std::int64_t vocab_size);

struct TokenFileInfo {
  std::int64_t vocab_size = 0;        // of the tokenizer; token type is uint16 up to 65536, else uint32
  std::uint64_t tokenizer_hash = 0;
  std::uint64_t source_hash = 0;      // XXH3 of the text
};

/// Writes our header and tokens; aside, synced, renamed.
class TokenWriter {
 public:
  TokenWriter(std::filesystem::path path, TokenFileInfo info);
  ~TokenWriter();
  void append(std::span<std::int32_t const> tokens);
  void commit(TokenFileInfo info);    // final hashes; without it the file never appears

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::io
