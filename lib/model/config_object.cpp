#include "lib/model/config_object.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/core/error.hpp"

namespace spillway::model {
namespace {

using nlohmann::json;

std::string shown(json const& value) {
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() > 80 ? text.substr(0, 80) + "..." : text;
}

json parse(std::string const& text, std::string const& origin) {
  try {
    return json::parse(text);
  } catch (json::exception const& error) {
    fail(Fault::bad_input,
         fmt::format("{} is not valid JSON ({}). Is it a config.json?", origin, error.what()));
  }
}

}  // namespace

struct ConfigObject::Value {
  json object;
};

ConfigObject::ConfigObject(std::string const& text, std::string origin)
    : ConfigObject(std::make_unique<Value const>(Value{parse(text, origin)}), origin, "") {}

ConfigObject::ConfigObject(std::unique_ptr<Value const> value, std::string origin, std::string path)
    : value_(std::move(value)), origin_(std::move(origin)), path_(std::move(path)) {
  if (!value_->object.is_object())
    fail(Fault::bad_input, fmt::format("{}: {} is {} (an object is needed). Correct it?", origin_,
                                       path_.empty() ? "the file" : path_, shown(value_->object)));
}

ConfigObject::~ConfigObject() = default;

bool ConfigObject::has(std::string const& key) const {
  return value_->object.contains(key) && !value_->object[key].is_null();
}

bool ConfigObject::is_null(std::string const& key) const {
  return value_->object.contains(key) && value_->object[key].is_null();
}

bool ConfigObject::same(std::string const& key, std::string const& other) const {
  return value_->object[key] == value_->object[other];
}

ConfigObject ConfigObject::child(std::string const& key) const {
  return {std::make_unique<Value const>(Value{value_->object[key]}), origin_, path_ + key + "."};
}

std::int64_t ConfigObject::integer(std::string const& key, std::int64_t least, std::int64_t most,
                                   std::optional<std::int64_t> otherwise) const {
  if (!has(key) && otherwise) return *otherwise;
  if (!has(key)) missing(key);
  json const& value = value_->object[key];
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
  json const& value = value_->object[key];
  bool const fits =
      value.is_number() && value.get<double>() >= least && value.get<double>() <= most;
  if (!fits) refuse(key, fmt::format("a number from {} to {} is needed", least, most));
  return value.get<double>();
}

bool ConfigObject::boolean(std::string const& key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!value_->object[key].is_boolean()) refuse(key, "true or false is needed");
  return value_->object[key].get<bool>();
}

std::string ConfigObject::text(std::string const& key, std::optional<std::string> otherwise) const {
  if (!has(key) && otherwise) return *otherwise;
  if (!has(key)) missing(key);
  if (!value_->object[key].is_string()) refuse(key, "a text is needed");
  return value_->object[key].get<std::string>();
}

std::vector<std::string> ConfigObject::texts(std::string const& key, std::int64_t count) const {
  json const& list = value_->object[key];
  bool const fits =
      list.is_array() && list.size() == static_cast<std::size_t>(count) &&
      std::all_of(list.begin(), list.end(), [](auto& item) { return item.is_string(); });
  if (!fits) refuse(key, fmt::format("a list of {} texts is needed", count));
  return list.get<std::vector<std::string>>();
}

void ConfigObject::refuse(std::string const& key, std::string const& why) const {
  std::string const found = value_->object.contains(key)
                                ? fmt::format("is {}", shown(value_->object[key]))
                                : std::string("is missing");
  fail(Fault::bad_input, fmt::format("{}: {}{} {} ({}). Use another model or correct the file?",
                                     origin_, path_, key, found, why));
}

void ConfigObject::missing(std::string const& key) const {
  fail(Fault::bad_input,
       fmt::format("{}: {}{} is missing (the model cannot be built without it). Add it?", origin_,
                   path_, key));
}

}  // namespace spillway::model
