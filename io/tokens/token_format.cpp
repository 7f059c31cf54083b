#include "io/tokens/token_format.hpp"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <string>

#include "lib/core/error.hpp"

namespace spillway::io {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are mapped as they lie");

constexpr std::uint64_t kLlmcHeaderBytes = 1024;
constexpr std::uint32_t kLlmcEvaluation = 20240522;
constexpr std::string_view kMegatronMagic("MMIDIDX\0\0", 9);

struct LlmcKind {
  std::uint32_t magic;
  std::uint32_t version;
  std::size_t width;
};
constexpr std::array<LlmcKind, 2> kLlmcKinds{{{20240520, 1, 2}, {20240801, 7, 4}}};

/// Files that would otherwise be read as bare uint16.
struct ForeignKind {
  std::string_view start;   // of the content, or empty
  std::string_view ending;  // of the name, or empty
  std::string_view what;
  std::string_view advice;
};
constexpr std::array<ForeignKind, 15> kForeignKinds{{
    {"PAR1", "", "a Parquet file",
     "Convert it with: python3 -c \"import pandas; pandas.read_parquet('IN.parquet').to_json("
     "'OUT.jsonl', orient='records', lines=True)\" and then: spillway tokenize"},
    {"\x93NUMPY", "", "a NumPy array file",
     "Write the bare tokens with: array.astype('uint16').tofile(...)"},
    {"\x89HDF\r\n", "", "an HDF5 file",
     "Write the bare tokens with: array.astype('uint16').tofile(...)"},
    {"", ".txt", "text", "Convert it with: spillway tokenize"},
    {"", ".md", "text", "Convert it with: spillway tokenize"},
    {"", ".json", "text", "Convert it with: spillway tokenize"},
    {"", ".jsonl", "text", "Convert it with: spillway tokenize"},
    {"", ".ndjson", "text", "Convert it with: spillway tokenize"},
    {"", ".csv", "text", "Convert it to JSON lines, and those with: spillway tokenize"},
    {"", ".gz", "compressed", "Unpack it?"},
    {"", ".xz", "compressed", "Unpack it?"},
    {"", ".zst", "compressed", "Unpack it?"},
    {"", ".zip", "compressed", "Unpack it?"},
    {"", ".tmp", "an unfinished file", "Is it still being written?"},
    {"", ".safetensors", "a file of weights", "Is it the wrong path?"},
}};

std::string read_start(PlainReader const& file, std::uint64_t bytes) {
  std::string start(std::min(file.size(), bytes), '\0');
  file.read(0, std::as_writable_bytes(std::span(start)));
  return start;
}

std::uint32_t word_at(std::string_view start, std::size_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, start.data() + 4 * index, 4);
  return word;
}

[[noreturn]] void bad(PlainReader const& file, std::string const& what) {
  fail(Fault::bad_input, fmt::format("{} {}", file.path(), what));
}

std::string_view megatron_type(std::string_view index) {
  static constexpr std::array<std::string_view, 9> kNames{
      "", "uint8", "int8", "int16", "int32", "int64", "float64", "float32", "uint16"};
  auto const code = index.size() > 17 ? static_cast<unsigned char>(index[17]) : 0u;
  return code < kNames.size() ? kNames[code] : "";
}

/// `index` is the start of a Megatron index; its tokens are in the .bin beside it.
[[noreturn]] void refuse_megatron(PlainReader const& file, std::string_view index,
                                  std::string const& what) {
  std::string const type(megatron_type(index));
  std::string const bin = std::filesystem::path(file.path()).replace_extension(".bin").string();
  bad(file,
      fmt::format(
          "{} (its index is not read). Convert its {} tokens with: python3 -c \"import numpy; "
          "numpy.fromfile('{}', '{}').astype('uint16').tofile('OUT.tokens')\"?",
          what, type, bin, type));
}

void refuse_foreign(PlainReader const& file, std::string_view start) {
  std::string const& path = file.path();
  for (auto const& kind : kForeignKinds) {
    bool const by_start = !kind.start.empty() && start.starts_with(kind.start);
    bool const by_name = !kind.ending.empty() && path.ends_with(kind.ending);
    if (by_start || by_name)
      bad(file, fmt::format("is {}, not tokens. {}", kind.what, kind.advice));
  }
  if (start.starts_with(kMegatronMagic))
    refuse_megatron(file, start, "is the index of a Megatron dataset");
  if (start.size() >= 4 && word_at(start, 0) == kLlmcEvaluation)
    bad(file, "is a multiple-choice evaluation file of llm.c, not a row of tokens");
}

/// A .bin with its Megatron index beside it may hold any type of token.
void refuse_megatron_tokens(PlainReader const& file) {
  std::filesystem::path const index = std::filesystem::path(file.path()).replace_extension(".idx");
  std::error_code ignored;
  if (index == file.path() || !std::filesystem::is_regular_file(index, ignored)) return;
  std::string const start = read_start(PlainReader(index), 64);
  if (start.starts_with(kMegatronMagic))
    refuse_megatron(file, start, fmt::format("belongs to the Megatron index {}", index.string()));
}

TokenLayout read_ours(PlainReader const& file, std::string_view start) {
  if (start.size() < sizeof(TokenHeader))
    bad(file, fmt::format("has {} bytes (the header alone takes {}). Cut short?", start.size(),
                          sizeof(TokenHeader)));
  TokenHeader header;
  std::memcpy(&header, start.data(), sizeof header);
  if (header.version != kTokenVersion)
    bad(file,
        fmt::format("has version {} of the token format (this program reads {}). A newer program?",
                    header.version, kTokenVersion));
  if (header.header_hash != header_hash(header))
    bad(file, "has a damaged header (its hash does not fit). Make it again?");
  if (header.token_bytes != 2 && header.token_bytes != 4)
    bad(file, fmt::format("states tokens of {} bytes (2 and 4 are known)", header.token_bytes));
  std::uint64_t const have = file.size() - sizeof header;
  if (have % header.token_bytes != 0 || have / header.token_bytes != header.tokens)
    bad(file,
        fmt::format(
            "states {} tokens of {} bytes, but holds {} bytes of them. Cut short or appended to?",
            header.tokens, header.token_bytes, have));
  return {"spillway", sizeof header, header.token_bytes, header.tokens, header.vocab_size};
}

TokenLayout read_llmc(PlainReader const& file, std::string_view start, LlmcKind const& kind) {
  if (file.size() < kLlmcHeaderBytes)
    bad(file, fmt::format(
                  "begins like a file of llm.c, but has {} bytes (its header takes {}). Cut short?",
                  file.size(), kLlmcHeaderBytes));
  std::uint32_t const version = word_at(start, 1);
  if (version != kind.version)
    bad(file, fmt::format("has version {} of llm.c's format {} (version {} is read)", version,
                          kind.magic, kind.version));
  std::uint64_t const have = file.size() - kLlmcHeaderBytes;
  std::uint64_t const tokens = have / kind.width;
  std::uint32_t const count = word_at(start, 2);
  if (have % kind.width != 0 || static_cast<std::uint32_t>(tokens) != count)
    bad(file,
        fmt::format(
            "states {} tokens of {} bytes in its llm.c header, but holds {} bytes of them. Cut "
            "short or appended to?",
            count, kind.width, have));
  return {"llm.c", kLlmcHeaderBytes, kind.width, tokens, 0};
}

TokenLayout read_headerless(PlainReader const& file) {
  if (file.size() % 2 != 0)
    bad(file,
        fmt::format(
            "has {} bytes (without a header it is read as uint16 tokens, and one byte is left "
            "over). Cut short, or not a token file?",
            file.size()));
  return {"headerless", 0, 2, file.size() / 2, 0};
}

}  // namespace

std::uint64_t header_hash(TokenHeader const& header) {
  return XXH3_64bits(&header, offsetof(TokenHeader, header_hash));
}

TokenLayout recognise(PlainReader const& file) {
  if (file.size() == 0) bad(file, "is empty (0 bytes)");
  std::string const start = read_start(file, sizeof(TokenHeader));
  TokenLayout layout;
  auto const llmc = std::find_if(kLlmcKinds.begin(), kLlmcKinds.end(), [&](LlmcKind const& kind) {
    return start.size() >= 12 && word_at(start, 0) == kind.magic;
  });
  if (start.starts_with(std::string_view(kTokenMagic.data(), kTokenMagic.size()))) {
    layout = read_ours(file, start);
  } else if (llmc != kLlmcKinds.end()) {
    layout = read_llmc(file, start, *llmc);
  } else {
    refuse_foreign(file, start);
    refuse_megatron_tokens(file);
    layout = read_headerless(file);
  }
  if (layout.tokens == 0) bad(file, "holds no tokens behind its header");
  return layout;
}

}  // namespace spillway::io
