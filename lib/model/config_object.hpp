// A JSON object whose values are read by key, type and bounds, with the place named in every error.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace spillway::model {

// Bound that keeps every product of two extents within int64.
inline constexpr std::int64_t kExtentMax = (std::int64_t{1} << 31) - 1;

/// Refers to `value`, which outlives it. Errors are Fault::bad_input.
class ConfigObject {
 public:
  ConfigObject(nlohmann::json const& value, std::string origin, std::string path = "");

  /// Null counts as absent ...
  bool has(std::string const& key) const;
  /// ... but where null says something of its own.
  bool is_null(std::string const& key) const;
  nlohmann::json const& raw(std::string const& key) const;
  ConfigObject child(std::string const& key) const;

  /// Without `otherwise` the key has to be there.
  std::int64_t integer(std::string const& key, std::int64_t least, std::int64_t most,
                       std::optional<std::int64_t> otherwise = {}) const;
  double number(std::string const& key, double least, double most,
                std::optional<double> otherwise = {}) const;
  bool boolean(std::string const& key, bool otherwise) const;
  std::string text(std::string const& key, std::optional<std::string> otherwise = {}) const;

  [[noreturn]] void refuse(std::string const& key, std::string const& why) const;

 private:
  [[noreturn]] void missing(std::string const& key) const;

  nlohmann::json const& value_;
  std::string origin_;
  std::string path_;
};

}  // namespace spillway::model
