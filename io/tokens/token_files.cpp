#include "io/tokens/token_files.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <optional>

#include "io/plain_file.hpp"
#include "io/tokens/token_format.hpp"
#include "io/tokens/token_paths.hpp"
#include "lib/core/error.hpp"

namespace spillway::io {
namespace {

constexpr std::size_t kBlockBytes = 32u << 10;     // of one read; on the stack
constexpr std::uint64_t kCacheWindow = 16u << 20;  // bytes read before the page cache is emptied
constexpr std::size_t kFilesKeptOpen = 512;        // half of the usual limit of a process

struct TokenFile {
  std::string path;
  TokenLayout layout;
  std::uint64_t size = 0;            // bytes of the file
  std::int64_t begin = 0;            // position of its first token in the row
  std::optional<PlainReader> open;   // files beyond kFilesKeptOpen are opened for each read
  std::atomic<bool> cached = false;  // read from since the page cache was emptied

  std::int64_t end() const { return begin + static_cast<std::int64_t>(layout.tokens); }
};

template <class Word>
std::ptrdiff_t decode(std::span<std::byte const> raw, std::uint32_t vocab_size,
                      std::span<std::int32_t> out) {
  std::ptrdiff_t first_bad = -1;
  for (std::size_t i = 0; i < out.size(); ++i) {
    Word word = 0;
    std::memcpy(&word, raw.data() + i * sizeof(Word), sizeof(Word));
    out[i] = static_cast<std::int32_t>(word);
    if (word >= vocab_size && first_bad < 0) first_bad = static_cast<std::ptrdiff_t>(i);
  }
  return first_bad;
}

std::string type_name(TokenLayout const& layout) { return layout.width == 2 ? "uint16" : "uint32"; }

class TokenRow : public data::TokenSource {
 public:
  explicit TokenRow(std::uint32_t vocab_size) : vocab_size_(vocab_size) {}

  void add(PlainReader file, TokenLayout layout);

  std::int64_t size() const override { return size_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const override;
  std::string description() const override;

 private:
  void check_ends(TokenFile const& file) const;
  void read_file(TokenFile const& file, std::uint64_t token, std::span<std::int32_t> out) const;
  void read_open(PlainReader const& file, TokenLayout const& layout, std::uint64_t token,
                 std::span<std::int32_t> out) const;
  void bound_cache(TokenFile& file, std::uint64_t bytes) const;

  std::uint32_t vocab_size_;
  std::int64_t size_ = 0;
  std::vector<std::unique_ptr<TokenFile>>
      files_;  // in the order of the row; an atomic does not move
  mutable std::atomic<std::uint64_t> read_bytes_ = 0;  // since the page cache was emptied
};

void TokenRow::add(PlainReader file, TokenLayout layout) {
  auto added = std::make_unique<TokenFile>();
  added->path = file.path();
  added->layout = layout;
  added->size = file.size();
  added->begin = size_;
  added->open.emplace(std::move(file));
  check_ends(*added);
  added->open->drop_cache();
  if (files_.size() >= kFilesKeptOpen) added->open.reset();
  size_ = added->end();
  files_.push_back(std::move(added));
}

/// A wrong vocabulary mostly shows in the first block or in the last.
void TokenRow::check_ends(TokenFile const& file) const {
  std::uint64_t const tokens = file.layout.tokens;
  std::vector<std::int32_t> block(std::min<std::uint64_t>(tokens, kBlockBytes / file.layout.width));
  read_file(file, 0, block);
  read_file(file, tokens - block.size(), block);
}

void TokenRow::read(std::int64_t begin, std::span<std::int32_t> out) const {
  auto const count = static_cast<std::int64_t>(out.size());
  if (begin < 0 || begin > size_ || count > size_ - begin)
    fail(Fault::internal,
         fmt::format("tokens {} to {} were asked for in {}", begin, begin + count, description()));
  auto const ends_before = [](std::int64_t position, auto const& file) {
    return position < file->end();
  };
  auto place = std::upper_bound(files_.begin(), files_.end(), begin, ends_before);
  for (; !out.empty(); ++place) {
    TokenFile& file = **place;
    auto const part =
        std::min<std::uint64_t>(out.size(), static_cast<std::uint64_t>(file.end() - begin));
    read_file(file, static_cast<std::uint64_t>(begin - file.begin), out.first(part));
    bound_cache(file, part * file.layout.width);
    out = out.subspan(part);
    begin += static_cast<std::int64_t>(part);
  }
}

void TokenRow::read_file(TokenFile const& file, std::uint64_t token,
                         std::span<std::int32_t> out) const {
  if (file.open) return read_open(*file.open, file.layout, token, out);
  PlainReader const opened(file.path);
  if (opened.size() != file.size)
    fail(Fault::io,
         fmt::format("{} has {} bytes (it had {} at the start). Is another program changing it?",
                     file.path, opened.size(), file.size));
  read_open(opened, file.layout, token, out);
}

void TokenRow::read_open(PlainReader const& file, TokenLayout const& layout, std::uint64_t token,
                         std::span<std::int32_t> out) const {
  std::array<std::byte, kBlockBytes> block;
  while (!out.empty()) {
    std::size_t const count = std::min(out.size(), kBlockBytes / layout.width);
    std::span<std::byte> const raw = std::span(block).first(count * layout.width);
    std::uint64_t const offset = layout.begin + token * layout.width;
    file.read(offset, raw);
    std::span<std::int32_t> const tokens = out.first(count);
    std::ptrdiff_t const bad = layout.width == 2 ? decode<std::uint16_t>(raw, vocab_size_, tokens)
                                                 : decode<std::uint32_t>(raw, vocab_size_, tokens);
    if (bad >= 0)
      fail(Fault::bad_input,
           fmt::format(
               "{} holds token {} at byte {} (read as {} {}; the model's vocabulary has {}). Is "
               "it of another tokenizer, or no token file?",
               file.path(), static_cast<std::uint32_t>(tokens[static_cast<std::size_t>(bad)]),
               offset + static_cast<std::uint64_t>(bad) * layout.width, layout.format,
               type_name(layout), vocab_size_));
    token += count;
    out = out.subspan(count);
  }
}

/// Empties the page cache once a window was read through it, so that readahead still serves reads
/// in order.
void TokenRow::bound_cache(TokenFile& file, std::uint64_t bytes) const {
  constexpr std::uint64_t kPage = 4096;  // a read costs at least this much of the cache
  file.cached = true;
  if (read_bytes_.fetch_add(bytes + kPage) + bytes + kPage < kCacheWindow) return;
  read_bytes_ = 0;
  for (auto const& each : files_)
    if (each->cached.exchange(false)) {
      if (each->open)
        each->open->drop_cache();
      else
        PlainReader(each->path).drop_cache();
    }
}

std::string TokenRow::description() const {
  std::map<std::string, int> kinds;
  for (auto const& file : files_)
    ++kinds[fmt::format("{} {}", file->layout.format, type_name(file->layout))];
  std::vector<std::string> counted;
  for (auto const& [kind, count] : kinds)
    counted.push_back(kinds.size() == 1 ? kind : fmt::format("{} of {}", count, kind));
  std::string const names = files_.size() == 1
                                ? files_[0]->path
                                : fmt::format("{} files from {} to {}", files_.size(),
                                              files_.front()->path, files_.back()->path);
  return fmt::format("{} ({}, {} tokens)", names, fmt::join(counted, ", "), size_);
}

void add_file(TokenRow& row, std::string const& path, std::int64_t vocab_size,
              std::map<std::pair<std::uint64_t, std::uint64_t>, std::string>& seen) {
  PlainReader file(path);
  auto const [first, is_new] = seen.emplace(file.identity(), path);
  if (!is_new)
    fail(Fault::bad_input,
         fmt::format("{} is the same file as {} (its tokens would count twice). Name it once?",
                     path, first->second));
  TokenLayout const layout = recognise(file);
  if (layout.vocab_size > static_cast<std::uint64_t>(vocab_size))
    fail(Fault::bad_input,
         fmt::format("{} was made with a vocabulary of {} (the model's has {}). Is it of "
                     "another tokenizer?",
                     path, layout.vocab_size, vocab_size));
  row.add(std::move(file), layout);
}

}  // namespace

std::unique_ptr<data::TokenSource> open_tokens(std::string const& paths, std::int64_t vocab_size) {
  expect(vocab_size > 0 && vocab_size <= INT32_MAX,
         "the vocabulary has between 1 and 2^31 - 1 tokens");
  std::vector<std::string> problems;
  auto row = std::make_unique<TokenRow>(static_cast<std::uint32_t>(vocab_size));
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::string> seen;
  for (auto const& path : expand_paths(paths, problems)) {
    try {
      add_file(*row, path, vocab_size, seen);
    } catch (Error const& error) {
      if (error.fault() != Fault::bad_input) throw;
      problems.push_back(error.problem());
    }
  }
  if (!problems.empty()) fail(Fault::bad_input, fmt::format("{}", fmt::join(problems, "\n")));
  return row;
}

}  // namespace spillway::io
