#include "lib/core/log.hpp"

#include <unistd.h>

namespace spillway {
namespace {

std::string_view label(Level level) {
  switch (level) {
    case Level::debug: return "debug: ";
    case Level::info: return "";
    case Level::warning: return "warning: ";
    case Level::error: return "error: ";
  }
  return "";
}

}  // namespace

void Log::write(Level level, std::string_view prefix, std::string_view text) {
  std::string const line = fmt::format("spillway: {}{}{}\n", prefix, label(level), text);
  // One write(2) a line: lines of several ranks on one terminal stay whole.
  [[maybe_unused]] auto const written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace spillway
