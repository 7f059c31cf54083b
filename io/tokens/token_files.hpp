// Token files: ours (a small header), llm.c's, and nanoGPT's headerless uint16.
//
// Ours, all little-endian: 256 bytes of header, then the tokens without gaps.
//   0  char[8]  magic "\x93SPWTOK\n"        24  u64  tokens
//   8  u32      version, 1                  32  u64  tokenizer hash
//  12  u32      bytes of a token, 2 or 4    40  u64  source hash (XXH3 of the input)
//  16  u64      size of the vocabulary     248  u64  XXH3 of bytes 0 to 247; the rest is zero
// llm.c: 256 int32 (magic, version, count, zeros), then uint16 (20240520, version 1) or uint32
// (20240801, version 7). The count has 32 bits only, so the size of the file decides and the count
// must agree modulo 2^32. Everything else is read as bare uint16. A bare file is mistaken for one
// with a header if its first tokens spell a magic number: for llm.c's that is the pair 55432, 308
// or 55713, 308, which GPT-2's 50257 tokens cannot spell; for ours four given tokens, one file in
// 2^64 at random.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/data/token_source.hpp"

namespace spillway::io {

/// Opens paths and globs (comma-separated), sorted within a glob, as one row of tokens. Throws
/// Fault::bad_input with one clear message a file: unreadable, empty, odd trailing byte, header
/// that does not match the size, glob without match, the same file twice, Megatron .idx or Parquet
/// (named, with the converter to use), a token >= vocab_size (file, offset). Tokens are checked as
/// they are read, and the first and last block of each file here, because reading terabytes at the
/// start would take hours. Reading is thread-safe and keeps at most a window of a few MiB in the
/// page cache.
std::unique_ptr<data::TokenSource> open_tokens(std::string const& paths, std::int64_t vocab_size);

struct TokenFileInfo {
  std::int64_t vocab_size = 0;  // of the tokenizer; token type is uint16 up to 65536, else uint32
  std::uint64_t tokenizer_hash = 0;
  std::uint64_t source_hash = 0;  // XXH3 of the input
};

/// Writes our header and tokens; aside (*.tmp), synced, renamed.
class TokenWriter {
 public:
  TokenWriter(std::filesystem::path path, TokenFileInfo info);
  ~TokenWriter();
  /// Throws Fault::bad_input for a token that the vocabulary does not have.
  void append(std::span<std::int32_t const> tokens);
  std::uint64_t tokens() const;
  void commit(TokenFileInfo info);  // final hashes; without it the file never appears

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace spillway::io
