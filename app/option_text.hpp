// Between the text of a value and its type: one Codec for each kind of value that keys take.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/options.hpp"

namespace spillway::app {

/// read(write(value)) == value, and read gives nothing for a text that is not allowed.
template <class T>
struct Codec {
  std::function<std::optional<T>(std::string_view)> read;
  std::function<std::string(T const&)> write;
  std::string allowed;  // for messages: "a number in [0, 1)"
};

enum class Ends { closed, open_right };

/// Bounds of a real number.
struct RealRange {
  double least;
  double most;
  Ends ends = Ends::closed;
  std::string words;  // how messages say it
};

Codec<std::string> text_codec(std::string allowed);
Codec<bool> boolean_codec();
Codec<Toggle> toggle_codec();
Codec<std::int64_t> integer_codec(std::int64_t least, std::int64_t most);
/// 0 is written "auto"; "auto" and "0" both give 0.
Codec<std::int64_t> integer_or_auto_codec(std::int64_t most);
Codec<std::uint64_t> seed_codec();
Codec<double> real_codec(RealRange range);
Codec<std::optional<double>> real_or_auto_codec(RealRange range);
Codec<std::uint64_t> bytes_or_auto_codec();  // 0 stands for auto
Codec<std::optional<std::uint64_t>> optional_bytes_codec();
Codec<std::vector<std::string>> list_codec(std::string allowed);
Codec<std::vector<int>> signals_codec();
Codec<TimeLimit> time_limit_codec();

/// An enum by the names of its values.
template <class E>
Codec<E> choice_codec(std::vector<std::pair<std::string, E>> choices) {
  std::string allowed;
  for (auto const& choice : choices) allowed += (allowed.empty() ? "" : ", ") + choice.first;
  auto const read = [choices](std::string_view text) -> std::optional<E> {
    for (auto const& [name, value] : choices)
      if (name == text) return value;
    return std::nullopt;
  };
  auto const write = [choices](E const& value) {
    for (auto const& [name, known] : choices)
      if (known == value) return name;
    return std::string("?");
  };
  return {read, write, "one of " + allowed};
}

/// The same codec for a narrower integer.
Codec<int> as_int(Codec<std::int64_t> wide);

/// "90" (seconds), "90s", "30m", "2h", "1d", "HH:MM:SS", "D-HH:MM:SS"; nothing for other texts.
std::optional<double> seconds_from_text(std::string_view text);

}  // namespace spillway::app
