#include "io/tokens/jsonl_scanner.hpp"

#include <fmt/core.h>

#include <array>
#include <utility>

#include "lib/core/error.hpp"

namespace spillway::io {
namespace {

constexpr std::size_t kBlockBytes = 64u << 10;
constexpr std::size_t kDepthMax = 256;
constexpr std::size_t kScalarMax = 1024;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Printable ASCII of a string, without what ends or escapes.
bool is_plain(char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; }

std::size_t digits(std::string_view text, std::size_t at) {
  while (at < text.size() && is_digit(text[at])) ++at;
  return at;
}

bool is_number(std::string_view text) {
  std::size_t at = text.starts_with('-') ? 1 : 0;
  std::size_t const whole = digits(text, at);
  if (whole == at || (text[at] == '0' && whole > at + 1)) return false;
  at = whole;
  if (at < text.size() && text[at] == '.') {
    std::size_t const fraction = digits(text, at + 1);
    if (fraction == at + 1) return false;
    at = fraction;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    std::size_t const sign =
        at + 1 < text.size() && (text[at + 1] == '+' || text[at + 1] == '-') ? 1 : 0;
    std::size_t const exponent = digits(text, at + 1 + sign);
    if (exponent == at + 1 + sign) return false;
    at = exponent;
  }
  return at == text.size();
}

}  // namespace

JsonlScanner::JsonlScanner(std::string origin, std::string field, DocumentSink& sink)
    : origin_(std::move(origin)), field_(std::move(field)), sink_(sink) {
  out_.reserve(kBlockBytes);
}

void JsonlScanner::fault(std::string const& what) const {
  fail(Fault::bad_input, fmt::format("{}, line {}: {}", origin_, line_, what));
}

void JsonlScanner::unexpected(char c) const {
  auto const code = static_cast<unsigned char>(c);
  std::string const shown =
      code > ' ' && code < 0x7f ? fmt::format("'{}'", c) : fmt::format("byte 0x{:02x}", code);
  if (state_ == State::line_start)
    fault(fmt::format(
        "begins with {}, not with '{{' (JSON lines hold one object each). Is it plain text?",
        shown));
  if (state_ == State::line_end) fault(fmt::format("{} follows the object", shown));
  fault(fmt::format("{} where JSON does not permit it", shown));
}

void JsonlScanner::feed(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size();) {
    if (state_ == State::string && utf8_left_ == 0 && high_surrogate_ == 0) {
      std::size_t end = i;
      while (end < bytes.size() && is_plain(bytes[end])) ++end;
      emit(bytes.substr(i, end - i));
      i = end;
      if (i == bytes.size()) break;
    }
    char const c = bytes[i++];
    switch (state_) {
      case State::string: string_byte(c); break;
      case State::escape: escape_byte(c); break;
      case State::hex: hex_byte(c); break;
      default: structure(c);
    }
  }
}

void JsonlScanner::finish() {
  if (state_ != State::line_start) newline();
}

void JsonlScanner::structure(char c) {
  if (state_ == State::scalar) {
    bool const more = !is_space(c) && c != '\n' && c != ',' && c != '}' && c != ']';
    if (more && scalar_.size() == kScalarMax)
      fault(fmt::format("a number of more than {} characters", kScalarMax));
    if (more) return scalar_.push_back(c);
    end_scalar();
  }
  if (is_space(c)) return;
  if (c == '\n') return newline();
  switch (state_) {
    case State::line_start:
      if (c != '{') unexpected(c);
      seen_field_ = false;
      return open(c);
    case State::key_or_end:
      if (c == '}') return close(c);
      [[fallthrough]];
    case State::key:
      if (c != '"') unexpected(c);
      return begin_string(Role::key);
    case State::colon:
      if (c != ':') unexpected(c);
      state_ = State::value;
      return;
    case State::value_or_end:
      if (c == ']') return close(c);
      [[fallthrough]];
    case State::value: return begin_value(c);
    case State::after_value:
      if (c == '}' || c == ']') return close(c);
      if (c != ',') unexpected(c);
      state_ = open_.back() == '{' ? State::key : State::value;
      return;
    default: unexpected(c);
  }
}

void JsonlScanner::newline() {
  if (state_ != State::line_start && state_ != State::line_end)
    fault(
        "ends inside an object (JSON lines hold a whole object each). Cut short, or spread over "
        "lines?");
  state_ = State::line_start;
  ++line_;
}

void JsonlScanner::open(char bracket) {
  if (open_.size() == kDepthMax)
    fault(fmt::format("more than {} brackets in each other", kDepthMax));
  open_.push_back(bracket);
  state_ = bracket == '{' ? State::key_or_end : State::value_or_end;
}

void JsonlScanner::close(char bracket) {
  if (open_.back() != (bracket == '}' ? '{' : '[')) unexpected(bracket);
  open_.pop_back();
  state_ = State::after_value;
  if (!open_.empty()) return;
  if (!seen_field_) fault(fmt::format("no field '{}'. Is it called otherwise?", field_));
  flush();
  sink_.end_document();
  state_ = State::line_end;
}

void JsonlScanner::begin_value(char c) {
  bool const is_field = std::exchange(in_field_, false);
  if (is_field && std::exchange(seen_field_, true))
    fault(fmt::format("field '{}' appears twice", field_));
  if (c == '"') return begin_string(is_field ? Role::field : Role::other);
  bool const scalar = c == '-' || is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  if (c != '{' && c != '[' && !scalar) unexpected(c);
  if (is_field) fault(fmt::format("field '{}' is no string", field_));
  if (!scalar) return open(c);
  scalar_.assign(1, c);
  state_ = State::scalar;
}

void JsonlScanner::end_scalar() {
  if (scalar_ != "true" && scalar_ != "false" && scalar_ != "null" && !is_number(scalar_))
    fault(fmt::format("'{}' is no JSON value", scalar_));
  state_ = State::after_value;
}

void JsonlScanner::begin_string(Role role) {
  role_ = role;
  key_.clear();
  state_ = State::string;
}

void JsonlScanner::end_string() {
  replace_lone_surrogate();
  state_ = role_ == Role::key ? State::colon : State::after_value;
  if (role_ == Role::key) in_field_ = open_.size() == 1 && key_ == field_;
}

void JsonlScanner::string_byte(char c) {
  auto const code = static_cast<unsigned char>(c);
  if (utf8_left_ > 0 || code >= 0x80) return utf8_byte(code);
  if (c == '\\') {
    state_ = State::escape;
    return;
  }
  if (c == '"') return end_string();
  if (c == '\n') fault("ends inside a string. Cut short, or a line end that should be \\n?");
  if (code < ' ')
    fault(fmt::format("byte 0x{:02x} inside a string (JSON wants \\u{:04x})", code, code));
  replace_lone_surrogate();
  emit(std::string_view(&c, 1));
}

/// Well-formed UTF-8 only: no overlong forms, no surrogates, nothing above U+10FFFF.
void JsonlScanner::utf8_byte(unsigned char c) {
  bool good = true;
  if (utf8_left_ == 0) {
    utf8_least_ = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    utf8_most_ = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    utf8_left_ = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : 1;
    good = c >= 0xc2 && c <= 0xf4;
    replace_lone_surrogate();
  } else {
    good = c >= utf8_least_ && c <= utf8_most_;
    utf8_least_ = 0x80;
    utf8_most_ = 0xbf;
    --utf8_left_;
  }
  if (!good) fault(fmt::format("byte 0x{:02x} is not UTF-8 here. Another encoding?", c));
  char const byte = static_cast<char>(c);
  emit(std::string_view(&byte, 1));
}

void JsonlScanner::escape_byte(char c) {
  static constexpr std::array<std::pair<char, char>, 8> kEscapes{{{'"', '"'},
                                                                  {'\\', '\\'},
                                                                  {'/', '/'},
                                                                  {'b', '\b'},
                                                                  {'f', '\f'},
                                                                  {'n', '\n'},
                                                                  {'r', '\r'},
                                                                  {'t', '\t'}}};
  state_ = State::string;
  if (c == 'u') {
    state_ = State::hex;
    hex_ = 0;
    hex_digits_ = 0;
    return;
  }
  for (auto const& [escape, meaning] : kEscapes)
    if (c == escape) {
      replace_lone_surrogate();
      return emit(std::string_view(&meaning, 1));
    }
  unexpected(c);
}

void JsonlScanner::hex_byte(char c) {
  char const lower = static_cast<char>(c | 0x20);
  if (is_digit(c))
    hex_ = hex_ * 16 + static_cast<std::uint32_t>(c - '0');
  else if (lower >= 'a' && lower <= 'f')
    hex_ = hex_ * 16 + static_cast<std::uint32_t>(lower - 'a' + 10);
  else
    unexpected(c);
  if (++hex_digits_ < 4) return;
  state_ = State::string;
  code_unit(hex_);
}

void JsonlScanner::code_unit(std::uint32_t unit) {
  bool const high = unit >= 0xd800 && unit < 0xdc00;
  bool const low = unit >= 0xdc00 && unit < 0xe000;
  if (low && high_surrogate_ != 0)
    return code_point(0x10000 + ((std::exchange(high_surrogate_, 0) - 0xd800) << 10) +
                      (unit - 0xdc00));
  replace_lone_surrogate();
  if (high || low) high_surrogate_ = unit;
  if (low) replace_lone_surrogate();
  if (!high && !low) code_point(unit);
}

void JsonlScanner::replace_lone_surrogate() {
  if (std::exchange(high_surrogate_, 0) == 0) return;
  if (role_ == Role::field) ++replaced_surrogates_;
  code_point(0xfffd);
}

void JsonlScanner::code_point(std::uint32_t point) {
  std::array<char, 4> bytes;
  auto const tail = [&](int shift) { return static_cast<char>(0x80u | (point >> shift & 0x3fu)); };
  std::size_t size = 0;
  if (point < 0x80) {
    bytes[size++] = static_cast<char>(point);
  } else if (point < 0x800) {
    bytes[size++] = static_cast<char>(0xc0u | point >> 6);
  } else if (point < 0x10000) {
    bytes[size++] = static_cast<char>(0xe0u | point >> 12);
    bytes[size++] = tail(6);
  } else {
    bytes[size++] = static_cast<char>(0xf0u | point >> 18);
    bytes[size++] = tail(12);
    bytes[size++] = tail(6);
  }
  if (point >= 0x80) bytes[size++] = tail(0);
  emit(std::string_view(bytes.data(), size));
}

void JsonlScanner::emit(std::string_view piece) {
  if (role_ == Role::field) {
    out_.append(piece);
    if (out_.size() >= kBlockBytes) flush();
  } else if (role_ == Role::key && key_.size() <= field_.size()) {
    key_.append(piece.substr(0, field_.size() + 1 - key_.size()));
  }
}

void JsonlScanner::flush() {
  if (!out_.empty()) sink_.text(out_);
  out_.clear();
}

}  // namespace spillway::io
