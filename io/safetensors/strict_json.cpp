#include "io/safetensors/strict_json.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "lib/core/error.hpp"

namespace spillway::io {

void require_strict_json(std::string_view text, std::string const& origin) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::set<std::string>> open;  // keys of the objects around the current place
  auto const watch = [&](int, Event event, nlohmann::json& parsed) {
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key) {
      auto const& key = parsed.get_ref<std::string const&>();
      if (!open.back().insert(key).second)
        fail(Fault::bad_input,
             fmt::format("{}: {} appears twice (readers disagree on which one counts). Damaged or "
                         "written by a faulty program?",
                         origin, printable(key)));
    }
    return true;
  };
  try {
    [[maybe_unused]] auto const value = nlohmann::json::parse(text, watch);
  } catch (nlohmann::json::exception const& error) {
    fail(Fault::bad_input, fmt::format("{}: not valid JSON ({})", origin, error.what()));
  }
}

std::string printable(std::string_view text) {
  std::string const escaped =
      nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return fmt::format("'{}'", std::string_view(escaped).substr(1, escaped.size() - 2));
}

}  // namespace spillway::io
