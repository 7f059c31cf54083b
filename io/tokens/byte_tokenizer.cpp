#include "io/tokens/byte_tokenizer.hpp"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "io/tokens/jsonl_scanner.hpp"
#include "io/tokens/text_hash.hpp"
#include "io/tokens/token_files.hpp"
#include "lib/core/error.hpp"
#include "lib/core/unique_handle.hpp"

namespace spillway::io {
namespace {

constexpr std::size_t kBlockBytes = 1u << 20;
constexpr std::string_view kUtf8Mark = "\xef\xbb\xbf";

/// A file, pipe or stdin, read once from its start.
class InputStream {
 public:
  explicit InputStream(std::string const& path) : name_(path == "-" ? "stdin" : path) {
    fd_.reset(path == "-" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                          : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd_) fail(Fault::bad_input, fmt::format("cannot open {}: {}", name_, errno_text(errno)));
  }

  std::string const& name() const { return name_; }

  /// As much as fits, less only at the end.
  std::string_view next(std::span<char> block) {
    std::size_t have = 0;
    while (have < block.size()) {
      ssize_t const got = ::read(fd_.get(), block.data() + have, block.size() - have);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0)
        fail(errno == EISDIR ? Fault::bad_input : Fault::io,
             fmt::format("cannot read {} at byte {}: {}", name_, position_ + have,
                         errno_text(errno)));
      if (got == 0) break;
      have += static_cast<std::size_t>(got);
    }
    position_ += have;
    // Advice, refused for pipes: what was read will not be read again.
    static_cast<void>(
        ::posix_fadvise(fd_.get(), 0, static_cast<off_t>(position_), POSIX_FADV_DONTNEED));
    return {block.data(), have};
  }

 private:
  std::string name_;
  Fd fd_;
  std::uint64_t position_ = 0;
};

/// Documents to tokens.
class ByteSink : public DocumentSink {
 public:
  ByteSink(TokenWriter& writer, bool end_of_text, TokenizeCounts& counts)
      : writer_(writer), end_of_text_(end_of_text), counts_(counts) {}

  void text(std::string_view piece) override {
    tokens_.assign(piece.size(), 0);
    std::transform(piece.begin(), piece.end(), tokens_.begin(),
                   [](char c) { return static_cast<unsigned char>(c); });
    writer_.append(tokens_);
    document_bytes_ += piece.size();
  }

  void end_document() override {
    ++(document_bytes_ == 0 ? counts_.empty_documents : counts_.documents);
    if (document_bytes_ > 0 && end_of_text_) writer_.append(std::span(&kEndOfText, 1));
    document_bytes_ = 0;
  }

 private:
  TokenWriter& writer_;
  bool end_of_text_;
  TokenizeCounts& counts_;
  std::uint64_t document_bytes_ = 0;
  std::vector<std::int32_t> tokens_;
};

bool is_jsonl(std::string const& path, TextFormat format) {
  if (format != TextFormat::automatic) return format == TextFormat::jsonl;
  if (path.ends_with(".json"))
    fail(Fault::bad_input,
         fmt::format("{} may be one JSON document or JSON lines. Rename it to .jsonl, or say "
                     "which with the format option?",
                     path));
  return path.ends_with(".jsonl") || path.ends_with(".ndjson");
}

std::string_view without_mark(std::string_view start, std::string const& name) {
  if (start.starts_with("\xff\xfe") || start.starts_with("\xfe\xff"))
    fail(Fault::bad_input,
         fmt::format("{} is UTF-16. Convert it with: iconv -f UTF-16 -t UTF-8", name));
  return start.starts_with(kUtf8Mark) ? start.substr(kUtf8Mark.size()) : start;
}

void check_output(std::string const& input, std::filesystem::path const& output) {
  std::error_code ignored;
  if (input != "-" && std::filesystem::equivalent(input, output, ignored))
    fail(Fault::bad_input,
         fmt::format("{} is input and output at once. Another output path?", input));
}

}  // namespace

std::int64_t byte_vocab_size(bool end_of_text) { return end_of_text ? kEndOfText + 1 : kEndOfText; }

TokenizeCounts tokenize_bytes(std::span<std::string const> inputs,
                              std::filesystem::path const& output,
                              ByteTokenizerOptions const& options) {
  for (auto const& path : inputs) check_output(path, output);
  TokenFileInfo info{byte_vocab_size(options.end_of_text),
                     hash_text(fmt::format("bytes, end of text {}", options.end_of_text)), 0};
  TokenWriter writer(output, info);
  TokenizeCounts counts;
  ByteSink sink(writer, options.end_of_text, counts);
  TextHash hash;
  std::vector<char> block(kBlockBytes);
  for (auto const& path : inputs) {
    InputStream input(path);
    bool const lines = is_jsonl(path, options.format);
    JsonlScanner scanner(input.name(), options.field, sink);
    bool at_start = true;
    for (auto piece = input.next(block); !piece.empty(); piece = input.next(block)) {
      hash.update(piece);
      counts.input_bytes += piece.size();
      std::string_view const text =
          std::exchange(at_start, false) ? without_mark(piece, input.name()) : piece;
      if (lines)
        scanner.feed(text);
      else
        sink.text(text);
    }
    if (lines)
      scanner.finish();
    else
      sink.end_document();
    counts.replaced_surrogates += scanner.replaced_surrogates();
  }
  counts.tokens = writer.tokens();
  if (counts.tokens == 0)
    fail(Fault::bad_input, fmt::format("no text in {} input files ({} empty documents)",
                                       inputs.size(), counts.empty_documents));
  info.source_hash = hash.value();
  writer.commit(info);
  return counts;
}

std::string detokenize_bytes(std::span<std::int32_t const> tokens) {
  std::string text;
  for (std::int32_t token : tokens) {
    if (token == kEndOfText)
      text += "<|endoftext|>";
    else if (token >= 0 && token < kEndOfText)
      text.push_back(static_cast<char>(token));
    else
      text += "\xef\xbf\xbd";
  }
  return text;
}

}  // namespace spillway::io
