#include "lib/core/bytes.hpp"

#include <fmt/core.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "lib/core/error.hpp"

namespace spillway {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr double kKi = 1024.0;
constexpr std::array<Unit, 15> kUnits{{{"", 1},
                                       {"B", 1},
                                       {"K", kKi},
                                       {"M", kKi* kKi},
                                       {"G", kKi* kKi* kKi},
                                       {"T", kKi* kKi* kKi* kKi},
                                       {"KiB", kKi},
                                       {"MiB", kKi* kKi},
                                       {"GiB", kKi* kKi* kKi},
                                       {"TiB", kKi* kKi* kKi* kKi},
                                       {"kB", 1e3},
                                       {"KB", 1e3},
                                       {"MB", 1e6},
                                       {"GB", 1e9},
                                       {"TB", 1e12}}};

[[noreturn]] void refuse(std::string_view text) {
  fail(Fault::usage, fmt::format("'{}' is not a size (a number and a unit). Write it like 4GiB or "
                                 "512MiB?",
                                 text));
}

}  // namespace

std::uint64_t parse_bytes(std::string_view text) {
  std::string compact;
  for (char c : text)
    if (!std::isspace(static_cast<unsigned char>(c))) compact += c;
  double value = 0;
  auto const [end, error] = std::from_chars(compact.data(), compact.data() + compact.size(), value);
  if (error != std::errc{} || !(value >= 0)) refuse(text);
  std::string_view const unit(end, static_cast<std::size_t>(compact.data() + compact.size() - end));
  for (auto const& known : kUnits) {
    if (known.name != unit) continue;
    double const bytes = value * known.factor;
    if (bytes >= 9.2e18) refuse(text);
    return static_cast<std::uint64_t>(std::llround(bytes));
  }
  refuse(text);
}

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 10 * 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  for (char const* unit : {"KiB", "MiB", "GiB"}) {
    value /= kKi;
    if (value < 1000) return fmt::format("{:.4g} {}", value, unit);
  }
  return fmt::format("{:.4g} TiB", value / kKi);
}

}  // namespace spillway
