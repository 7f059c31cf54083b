// `spillway tokenize`: text and JSON lines to a token file.
#include <fmt/core.h>

#include "app/commands.hpp"
#include "app/option_text.hpp"
#include "app/options.hpp"
#include "io/tokens/byte_tokenizer.hpp"
#include "lib/core/bytes.hpp"
#include "lib/core/error.hpp"

namespace spillway::app {
namespace {

Syntax tokenize_syntax() {
  Syntax syntax;
  syntax.usage = "spillway tokenize --out=FILE INPUT ...";
  syntax.summary = "Writes the tokens of text and JSON lines files ('-' is stdin) to FILE.";
  syntax.flags = {
      {"out", "FILE", "token file to write"},
      {"tokenizer", "NAME", "bytes: every byte is a token [bytes]"},
      {"format", "NAME", "auto, text or jsonl; auto goes by the name of the file [auto]"},
      {"field", "NAME", "JSON lines: the field that holds the text [text]"},
      {"end-of-text", "BOOL", "a token of its own after each document [true]"}};
  syntax.positional_max = 1 << 20;
  return syntax;
}

template <class T>
T flag_value(CommandLine const& line, std::string const& name, std::string const& otherwise,
             Codec<T> const& codec) {
  std::string const text = line.flag(name, otherwise);
  auto const value = codec.read(text);
  if (!value)
    fail(Fault::usage,
         fmt::format("bad value '{}' for --{} (it takes {}).", text, name, codec.allowed));
  return *value;
}

io::ByteTokenizerOptions tokenizer_options(CommandLine const& line) {
  std::string const name = line.flag("tokenizer", "bytes");
  if (name != "bytes")
    fail(Fault::usage, fmt::format("--tokenizer={} is not available in this version (it knows: "
                                   "bytes). Leave it out?",
                                   name));
  io::ByteTokenizerOptions options;
  options.format = flag_value(line, "format", "auto",
                              choice_codec<io::TextFormat>({{"auto", io::TextFormat::automatic},
                                                            {"text", io::TextFormat::text},
                                                            {"jsonl", io::TextFormat::jsonl}}));
  options.field = line.flag("field", options.field);
  options.end_of_text = flag_value(line, "end-of-text", "true", boolean_codec());
  return options;
}

}  // namespace

int run_tokenize(Arguments const& arguments) {
  Syntax const syntax = tokenize_syntax();
  CommandLine const line = parse_command_line(syntax, arguments.words);
  if (answer_questions(line, syntax)) return 0;
  if (!line.has("out") || line.positional.empty())
    fail(Fault::usage,
         fmt::format("{} (usage: {}).", line.has("out") ? "no input is given" : "--out is missing",
                     syntax.usage));
  auto const options = tokenizer_options(line);
  std::string const out = line.flag("out");
  io::TokenizeCounts const counts = io::tokenize_bytes(line.positional, out, options);
  fmt::print("{}: {} tokens of a vocabulary of {}, from {} documents, {}\n", out, counts.tokens,
             io::byte_vocab_size(options.end_of_text), counts.documents,
             format_bytes(counts.input_bytes));
  if (counts.empty_documents > 0)
    fmt::print("{} empty documents were skipped\n", counts.empty_documents);
  if (counts.replaced_surrogates > 0)
    fmt::print("{} halves of surrogate pairs were replaced by U+FFFD\n",
               counts.replaced_surrogates);
  return 0;
}

}  // namespace spillway::app
