// A JSON object whose values are read by key, type and bounds, with the place named in every error.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace spillway::model {

// Bound that keeps every product of two extents within int64.
inline constexpr std::int64_t kExtentMax = (std::int64_t{1} << 31) - 1;

/// Errors are Fault::bad_input.
class ConfigObject {
 public:
  /// The text of a file that `origin` names in errors.
  ConfigObject(std::string const& text, std::string origin);
  ~ConfigObject();

  /// Null counts as absent ...
  bool has(std::string const& key) const;
  /// ... but where null says something of its own.
  bool is_null(std::string const& key) const;
  bool same(std::string const& key, std::string const& other) const;
  ConfigObject child(std::string const& key) const;

  /// Without `otherwise` the key has to be there.
  std::int64_t integer(std::string const& key, std::int64_t least, std::int64_t most,
                       std::optional<std::int64_t> otherwise = {}) const;
  double number(std::string const& key, double least, double most,
                std::optional<double> otherwise = {}) const;
  bool boolean(std::string const& key, bool otherwise) const;
  std::string text(std::string const& key, std::optional<std::string> otherwise = {}) const;

  /// `count` texts.
  std::vector<std::string> texts(std::string const& key, std::int64_t count) const;

  [[noreturn]] void refuse(std::string const& key, std::string const& why) const;

 private:
  struct Value;  // the JSON library's
  ConfigObject(std::unique_ptr<Value const> value, std::string origin, std::string path);
  [[noreturn]] void missing(std::string const& key) const;

  std::unique_ptr<Value const> value_;
  std::string origin_;
  std::string path_;
};

}  // namespace spillway::model
