#include "app/option_text.hpp"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>

#include "lib/core/bytes.hpp"
#include "lib/core/error.hpp"

namespace spillway::app {
namespace {

/// The whole text as a number, or nothing.
template <class Number>
std::optional<Number> number_from(std::string_view text) {
  Number value{};
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint64_t> bytes_from(std::string_view text) {
  try {
    return parse_bytes(text);
  } catch (Error const&) {
    return std::nullopt;  // the caller names key, value and what is allowed
  }
}

/// The largest unit that divides evenly, so that the text reads back to the same number.
std::string exact_bytes(std::uint64_t bytes) {
  constexpr std::pair<char const*, int> kUnits[] = {
      {"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}};
  for (auto const& [unit, shift] : kUnits)
    if (bytes != 0 && bytes % (std::uint64_t{1} << shift) == 0)
      return fmt::format("{}{}", bytes >> shift, unit);
  return fmt::format("{}B", bytes);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    auto const end = text.find(separator);
    std::string_view part = text.substr(0, end);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    parts.emplace_back(part);
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::string join(std::vector<std::string> const& parts) {
  std::string all;
  for (auto const& part : parts) all += (all.empty() ? "" : ",") + part;
  return all;
}

std::optional<int> signal_from(std::string_view name) {
  if (name.substr(0, 3) == "SIG") name.remove_prefix(3);
  for (int number : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGHUP, SIGALRM, SIGXCPU, SIGPWR})
    if (name == ::sigabbrev_np(number)) return number;
  return std::nullopt;
}

constexpr char const* kAllowedTimes =
    "auto, none, or a time like 3600, 90m, 2h, 04:00:00, 1-12:00:00";

}  // namespace

Codec<std::string> text_codec(std::string allowed) {
  return {[](std::string_view text) { return std::optional<std::string>(text); },
          [](std::string const& value) { return value; }, std::move(allowed)};
}

Codec<bool> boolean_codec() {
  auto const read = [](std::string_view text) -> std::optional<bool> {
    for (char const* yes : {"true", "yes", "on", "1"})
      if (text == yes) return true;
    for (char const* no : {"false", "no", "off", "0"})
      if (text == no) return false;
    return std::nullopt;
  };
  return {read, [](bool const& value) { return std::string(value ? "true" : "false"); },
          "true or false"};
}

Codec<Toggle> toggle_codec() {
  auto const read = [](std::string_view text) -> std::optional<Toggle> {
    if (text == "auto") return Toggle::automatic;
    auto const on = boolean_codec().read(text);
    if (!on) return std::nullopt;
    return *on ? Toggle::on : Toggle::off;
  };
  auto const write = [](Toggle const& value) -> std::string {
    if (value == Toggle::automatic) return "auto";
    return value == Toggle::on ? "true" : "false";
  };
  return {read, write, "auto, true or false"};
}

Codec<std::int64_t> integer_codec(std::int64_t least, std::int64_t most) {
  auto const read = [=](std::string_view text) -> std::optional<std::int64_t> {
    auto const value = number_from<std::int64_t>(text);
    if (!value || *value < least || *value > most) return std::nullopt;
    return value;
  };
  std::string const allowed = most == std::numeric_limits<std::int64_t>::max()
                                  ? fmt::format("a whole number >= {}", least)
                                  : fmt::format("a whole number from {} to {}", least, most);
  return {read, [](std::int64_t const& value) { return std::to_string(value); }, allowed};
}

Codec<std::int64_t> integer_or_auto_codec(std::int64_t most) {
  auto inner = integer_codec(0, most);
  auto const read = [inner](std::string_view text) {
    return text == "auto" ? std::optional<std::int64_t>(0) : inner.read(text);
  };
  auto const write = [](std::int64_t const& value) {
    return value == 0 ? std::string("auto") : std::to_string(value);
  };
  return {read, write, "auto, or a whole number >= 1"};
}

Codec<std::uint64_t> seed_codec() {
  return {[](std::string_view text) { return number_from<std::uint64_t>(text); },
          [](std::uint64_t const& value) { return std::to_string(value); },
          "a whole number from 0 to 2^64 - 1"};
}

Codec<double> real_codec(RealRange range) {
  auto const read = [range](std::string_view text) -> std::optional<double> {
    auto const value = number_from<double>(text);
    if (!value || !std::isfinite(*value) || *value < range.least) return std::nullopt;
    bool const above = range.ends == Ends::closed ? *value > range.most : *value >= range.most;
    if (above) return std::nullopt;
    return value;
  };
  // fmt's shortest form reads back to the same double.
  return {read, [](double const& value) { return fmt::format("{}", value); }, range.words};
}

Codec<std::optional<double>> real_or_auto_codec(RealRange range) {
  using Value = std::optional<double>;
  auto inner = real_codec(range);
  auto const read = [inner](std::string_view text) -> std::optional<Value> {
    if (text == "auto") return Value();
    auto const value = inner.read(text);
    if (!value) return std::nullopt;
    return Value(*value);
  };
  auto const write = [inner](Value const& value) { return value ? inner.write(*value) : "auto"; };
  return {read, write, "auto, or " + range.words};
}

Codec<std::uint64_t> bytes_or_auto_codec() {
  auto const read = [](std::string_view text) {
    return text == "auto" ? std::optional<std::uint64_t>(0) : bytes_from(text);
  };
  auto const write = [](std::uint64_t const& value) {
    return value == 0 ? std::string("auto") : exact_bytes(value);
  };
  return {read, write, "auto, or a size like 16MiB"};
}

Codec<std::optional<std::uint64_t>> optional_bytes_codec() {
  using Value = std::optional<std::uint64_t>;
  auto const read = [](std::string_view text) -> std::optional<Value> {
    if (text == "auto") return Value();
    auto const bytes = bytes_from(text);
    if (!bytes) return std::nullopt;
    return Value(*bytes);
  };
  auto const write = [](Value const& value) { return value ? exact_bytes(*value) : "auto"; };
  return {read, write, "auto, or a size like 4GiB"};
}

Codec<std::vector<std::string>> list_codec(std::string allowed) {
  using Value = std::vector<std::string>;
  auto const read = [](std::string_view text) -> std::optional<Value> {
    if (text.empty()) return Value();
    Value parts = split(text, ',');
    for (auto const& part : parts)
      if (part.empty()) return std::nullopt;
    return parts;
  };
  return {read, [](Value const& value) { return join(value); }, std::move(allowed)};
}

Codec<std::vector<int>> signals_codec() {
  using Value = std::vector<int>;
  auto const read = [](std::string_view text) -> std::optional<Value> {
    Value numbers;
    if (text.empty()) return numbers;
    for (auto const& name : split(text, ',')) {
      auto const number = signal_from(name);
      if (!number) return std::nullopt;
      numbers.push_back(*number);
    }
    return numbers;
  };
  auto const write = [](Value const& value) {
    std::vector<std::string> names;
    for (int number : value) names.emplace_back(::sigabbrev_np(number));
    return join(names);
  };
  return {read, write, "some of USR1, USR2, TERM, INT, HUP, ALRM, XCPU, PWR, separated by commas"};
}

Codec<TimeLimit> time_limit_codec() {
  auto const read = [](std::string_view text) -> std::optional<TimeLimit> {
    if (text == "auto") return TimeLimit{TimeLimit::Kind::automatic, 0};
    // squeue -o %L says UNLIMITED.
    if (text == "none" || text == "UNLIMITED") return TimeLimit{TimeLimit::Kind::none, 0};
    auto const seconds = seconds_from_text(text);
    if (!seconds) return std::nullopt;
    return TimeLimit{TimeLimit::Kind::seconds, *seconds};
  };
  auto const write = [](TimeLimit const& limit) -> std::string {
    if (limit.kind == TimeLimit::Kind::automatic) return "auto";
    if (limit.kind == TimeLimit::Kind::none) return "none";
    return fmt::format("{}s", limit.seconds);
  };
  return {read, write, kAllowedTimes};
}

Codec<int> as_int(Codec<std::int64_t> wide) {
  auto const read = [wide](std::string_view text) -> std::optional<int> {
    auto const value = wide.read(text);
    if (!value) return std::nullopt;
    return static_cast<int>(*value);
  };
  return {read, [wide](int const& value) { return wide.write(value); }, wide.allowed};
}

std::optional<double> seconds_from_text(std::string_view text) {
  double days = 0;
  bool const has_days = text.find('-') != std::string_view::npos && text.find('-') != 0 &&
                        text.find('e') == std::string_view::npos;
  if (has_days) {
    auto const dash = text.find('-');
    auto const value = number_from<unsigned>(text.substr(0, dash));
    if (!value) return std::nullopt;
    days = *value;
    text.remove_prefix(dash + 1);
  }
  if (has_days || text.find(':') != std::string_view::npos) {
    // As Slurm writes times: MM:SS, HH:MM:SS, and after days HH, HH:MM, HH:MM:SS.
    auto const parts = split(text, ':');
    if (parts.size() > 3) return std::nullopt;
    double seconds = 0;
    for (auto const& part : parts) {
      auto const value = number_from<unsigned>(part);
      if (!value) return std::nullopt;
      seconds = seconds * 60 + *value;
    }
    if (has_days) seconds *= parts.size() == 1 ? 3600 : parts.size() == 2 ? 60 : 1;
    return days * 86400 + seconds;
  }
  double factor = 1;
  constexpr std::pair<char, double> kUnits[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
  for (auto const& [unit, seconds] : kUnits) {
    if (text.empty() || text.back() != unit) continue;
    factor = seconds;
    text.remove_suffix(1);
    break;
  }
  auto const value = number_from<double>(text);
  if (!value || !(*value >= 0) || !std::isfinite(*value)) return std::nullopt;
  return *value * factor;
}

}  // namespace spillway::app
