#include "lib/model/config_object.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "lib/core/error.hpp"

namespace spillway::model {
namespace {

using nlohmann::json;

std::string shown(json const& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() > 80 ? text.substr(0, 80) + "..." : text;
}

}  // namespace

ConfigObject::ConfigObject(json const& value, std::string origin, std::string path)
    : value_(value), origin_(std::move(origin)), path_(std::move(path)) {
  if (!value.is_object())
    fail(Fault::bad_input, fmt::format("{}: {} is {} (an object is needed). Correct it?", origin_,
                                       path_.empty() ? "the file" : path_, shown(value)));
}

bool ConfigObject::has(std::string const& key) const {
  return value_.contains(key) && !value_[key].is_null();
}

bool ConfigObject::is_null(std::string const& key) const {
  return value_.contains(key) && value_[key].is_null();
}

json const& ConfigObject::raw(std::string const& key) const { return value_[key]; }

ConfigObject ConfigObject::child(std::string const& key) const {
  return {value_[key], origin_, path_ + key + "."};
}

std::int64_t ConfigObject::integer(std::string const& key, std::int64_t least, std::int64_t most,
                                   std::optional<std::int64_t> otherwise) const {
  if (!has(key) && otherwise) return *otherwise;
  if (!has(key)) missing(key);
  json const& value = value_[key];
  bool const fits = value.is_number_unsigned()
                        ? value.get<std::uint64_t>() <= std::uint64_t(kExtentMax)
                        : value.is_number_integer();
  if (!fits || value.get<std::int64_t>() < least || value.get<std::int64_t>() > most)
    refuse(key, fmt::format("an integer from {} to {} is needed", least, most));
  return value.get<std::int64_t>();
}

double ConfigObject::number(std::string const& key, double least, double most,
                            std::optional<double> otherwise) const {
  if (!has(key) && otherwise) return *otherwise;
  if (!has(key)) missing(key);
  json const& value = value_[key];
  bool const fits =
      value.is_number() && value.get<double>() >= least && value.get<double>() <= most;
  if (!fits) refuse(key, fmt::format("a number from {} to {} is needed", least, most));
  return value.get<double>();
}

bool ConfigObject::boolean(std::string const& key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!value_[key].is_boolean()) refuse(key, "true or false is needed");
  return value_[key].get<bool>();
}

std::string ConfigObject::text(std::string const& key, std::optional<std::string> otherwise) const {
  if (!has(key) && otherwise) return *otherwise;
  if (!has(key)) missing(key);
  if (!value_[key].is_string()) refuse(key, "a text is needed");
  return value_[key].get<std::string>();
}

void ConfigObject::refuse(std::string const& key, std::string const& why) const {
  std::string const found =
      value_.contains(key) ? fmt::format("is {}", shown(value_[key])) : std::string("is missing");
  fail(Fault::bad_input, fmt::format("{}: {}{} {} ({}). Use another model or correct the file?",
                                     origin_, path_, key, found, why));
}

void ConfigObject::missing(std::string const& key) const {
  fail(Fault::bad_input,
       fmt::format("{}: {}{} is missing (the model cannot be built without it). Add it?", origin_,
                   path_, key));
}

}  // namespace spillway::model
