// Any bytes as JSON lines: whole and cut in two must give the same text and the same verdict, and
// what nlohmann's parser takes as one object must be taken here too, with the same text.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "io/tokens/jsonl_scanner.hpp"
#include "lib/core/error.hpp"

namespace {

struct Collect : spillway::io::DocumentSink {
  void text(std::string_view piece) override { all += piece; }
  void end_document() override { all += '\x1e'; }
  std::string all;
};

std::optional<std::string> scan(std::string_view first, std::string_view second) {
  Collect sink;
  try {
    spillway::io::JsonlScanner scanner("fuzz", "text", sink);
    scanner.feed(first);
    scanner.feed(second);
    scanner.finish();
  } catch (spillway::Error const& error) {
    if (error.fault() != spillway::Fault::bad_input) std::abort();
    return std::nullopt;
  }
  return sink.all;
}

/// The text of one line by the other parser; nothing where it refuses, or where the two differ on
/// purpose.
std::optional<std::string> reference(std::string_view line) {
  if (line.find('\n') != std::string_view::npos) return std::nullopt;
  int texts = 0;
  auto const watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    texts += event == nlohmann::json::parse_event_t::key && depth == 1 && parsed == "text";
    return true;
  };
  auto const value = nlohmann::json::parse(line, watch, false);
  // Below 256 bytes no limit of ours on nesting and numbers is met.
  bool const usable =
      value.is_object() && texts == 1 && value["text"].is_string() && line.size() < 256;
  if (!usable) return std::nullopt;
  return value["text"].get<std::string>() + '\x1e';
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  std::string_view const input(reinterpret_cast<char const*>(data), size);
  auto const whole = scan(input, {});
  std::size_t const cut = size == 0 ? 0 : data[size / 2] % (size + 1);
  if (scan(input.substr(0, cut), input.substr(cut)) != whole) std::abort();
  if (input.starts_with("\xef\xbb\xbf")) return 0;  // the tokenizer drops the mark before
  if (auto const expected = reference(input); expected && whole != expected) std::abort();
  return 0;
}
