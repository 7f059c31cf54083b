// JSON lines of any length, pushed in pieces: hands on the text of one field and keeps nothing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway::io {

/// Takes documents in pieces.
class DocumentSink {
 public:
  virtual ~DocumentSink() = default;
  virtual void text(std::string_view piece) = 0;
  virtual void end_document() = 0;
};

/// Every line is one JSON object whose `field` is a string. Strict: what is no JSON is an error
/// naming the line. Memory is bounded: one output block, a short key, one number, nesting up to
/// 256.
class JsonlScanner {
 public:
  /// `origin` names the input in errors. The sink gets text before its line is known to be right.
  JsonlScanner(std::string origin, std::string field, DocumentSink& sink);

  void feed(std::string_view bytes);
  void finish();  // the last line may lack its newline

  std::uint64_t replaced_surrogates() const { return replaced_surrogates_; }

 private:
  enum class State {
    line_start,
    key_or_end,
    key,
    colon,
    value,
    value_or_end,
    after_value,
    scalar,
    string,
    escape,
    hex,
    line_end
  };
  enum class Role { key, field, other };  // of the string being read

  [[noreturn]] void fault(std::string const& what) const;
  [[noreturn]] void unexpected(char c) const;
  void structure(char c);
  void newline();
  void open(char bracket);
  void close(char bracket);
  void begin_value(char c);
  void begin_string(Role role);
  void end_string();
  void end_scalar();
  void string_byte(char c);
  void utf8_byte(unsigned char c);
  void escape_byte(char c);
  void hex_byte(char c);
  void code_unit(std::uint32_t unit);
  void code_point(std::uint32_t point);
  void replace_lone_surrogate();
  void emit(std::string_view piece);
  void flush();

  std::string origin_;
  std::string field_;
  DocumentSink& sink_;
  State state_ = State::line_start;
  Role role_ = Role::other;
  std::uint64_t line_ = 1;
  std::string open_;       // brackets around the current place
  std::string key_;        // of the outermost object, cut one byte beyond field_'s length
  bool in_field_ = false;  // the value to come is that of field_
  bool seen_field_ = false;
  std::string scalar_;  // number or literal
  std::uint32_t hex_ = 0;
  int hex_digits_ = 0;
  std::uint32_t high_surrogate_ = 0;              // waits for its other half
  int utf8_left_ = 0;                             // continuation bytes to come
  unsigned char utf8_least_ = 0, utf8_most_ = 0;  // bounds of the next one
  std::string out_;
  std::uint64_t replaced_surrogates_ = 0;
};

}  // namespace spillway::io
