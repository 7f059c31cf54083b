// Tokens to a file of our format, written aside and named when it is whole.
#include <fmt/core.h>

#include <array>
#include <cstring>

#include "io/plain_file.hpp"
#include "io/tokens/token_files.hpp"
#include "io/tokens/token_format.hpp"
#include "lib/core/error.hpp"

namespace spillway::io {
namespace {

constexpr std::size_t kBlockBytes = 256u << 10;

std::uint32_t token_bytes(std::int64_t vocab_size) { return vocab_size <= 65536 ? 2 : 4; }

std::span<std::byte const> bytes_of(TokenHeader const& header) {
  return std::as_bytes(std::span(&header, 1));
}

}  // namespace

struct TokenWriter::Impl {
  PlainWriter file;
  std::int64_t vocab_size;
  std::uint32_t width;
  std::uint64_t tokens = 0;
  std::vector<std::byte> block;  // tokens in the type of the file, not yet written

  Impl(std::filesystem::path path, std::int64_t vocab)
      : file(std::move(path)), vocab_size(vocab), width(token_bytes(vocab)) {
    block.reserve(kBlockBytes);
    file.append(bytes_of(TokenHeader{}));
  }

  void put(std::int32_t token) {
    if (token < 0 || token >= vocab_size)
      fail(Fault::bad_input,
           fmt::format("token {} was to be written to {} at position {} (the vocabulary has {})",
                       token, file.path().string(), tokens, vocab_size));
    std::array<std::byte, 4> raw;
    std::memcpy(raw.data(), &token, 4);  // little-endian: the low bytes are the narrow token
    block.insert(block.end(), raw.begin(), raw.begin() + width);
    ++tokens;
    if (block.size() >= kBlockBytes) flush();
  }

  void flush() {
    file.append(block);
    block.clear();
  }
};

TokenWriter::TokenWriter(std::filesystem::path path, TokenFileInfo info) {
  expect(info.vocab_size > 0 && info.vocab_size <= INT32_MAX,
         "the vocabulary has between 1 and 2^31 - 1 tokens");
  impl_ = std::make_unique<Impl>(std::move(path), info.vocab_size);
}

TokenWriter::~TokenWriter() = default;

void TokenWriter::append(std::span<std::int32_t const> tokens) {
  for (std::int32_t token : tokens) impl_->put(token);
}

std::uint64_t TokenWriter::tokens() const { return impl_->tokens; }

void TokenWriter::commit(TokenFileInfo info) {
  expect(token_bytes(info.vocab_size) == impl_->width, "the type of the tokens stays");
  impl_->flush();
  TokenHeader header{kTokenMagic,
                     kTokenVersion,
                     impl_->width,
                     static_cast<std::uint64_t>(info.vocab_size),
                     impl_->tokens,
                     info.tokenizer_hash,
                     info.source_hash,
                     {},
                     0};
  header.header_hash = header_hash(header);
  impl_->file.overwrite(0, bytes_of(header));
  impl_->file.commit();
}

}  // namespace spillway::io
