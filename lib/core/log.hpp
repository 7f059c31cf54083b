// Human text to stderr: root() speaks for the run, local() for one rank.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

#include "lib/core/strong.hpp"

namespace spillway {

enum class Level { debug, info, warning, error };

/// Cheap to copy. One line per call, written whole, so that ranks do not mix within a line.
class Log {
 public:
  explicit Log(Rank rank = Rank{0}, Level least = Level::info) : rank_(rank), least_(least) {}

  /// Only rank 0 prints.
  template <class... Args>
  void root(Level level, fmt::format_string<Args...> text, Args&&... args) const {
    if (rank_ == Rank{0} && level >= least_)
      write(level, "", fmt::format(text, std::forward<Args>(args)...));
  }
  template <class... Args>
  void root(fmt::format_string<Args...> text, Args&&... args) const {
    root(Level::info, text, std::forward<Args>(args)...);
  }
  /// Every rank prints, with its number in front: "[r3] ...".
  template <class... Args>
  void local(Level level, fmt::format_string<Args...> text, Args&&... args) const {
    if (level >= least_)
      write(level, fmt::format("[r{}] ", rank_.get()),
            fmt::format(text, std::forward<Args>(args)...));
  }

  Rank rank() const { return rank_; }

 private:
  static void write(Level level, std::string_view prefix, std::string_view text);

  Rank rank_;
  Level least_;
};

}  // namespace spillway
