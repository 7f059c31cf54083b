#include "app/progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "lib/core/bytes.hpp"

namespace spillway::app {
namespace {

std::string rate(double per_second) {
  if (per_second >= 1e6) return fmt::format("{:.2f}M", per_second / 1e6);
  if (per_second >= 1e3) return fmt::format("{:.1f}k", per_second / 1e3);
  return fmt::format("{:.1f}", per_second);
}

std::string clock(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  auto const whole = static_cast<std::int64_t>(seconds + 0.5);
  std::string const days = whole >= 86400 ? fmt::format("{}d ", whole / 86400) : "";
  return fmt::format("{}{}:{:02}:{:02}", days, whole % 86400 / 3600, whole % 3600 / 60, whole % 60);
}

void put(std::string const& text) {
  // A progress line that cannot be written is no reason to stop.
  [[maybe_unused]] auto const written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

bool stderr_can_update() {
  char const* no_color = std::getenv("NO_COLOR");
  char const* terminal = std::getenv("TERM");
  if (no_color != nullptr && *no_color != '\0') return false;
  if (terminal == nullptr || std::strcmp(terminal, "dumb") == 0) return false;
  return ::isatty(STDERR_FILENO) == 1;
}

std::string progress_text(train::StepReport const& r, std::int64_t steps, double seconds_per_step) {
  double const seconds = r.step_ms / 1e3;
  double const disk =
      seconds > 0 ? static_cast<double>(r.read_bytes + r.written_bytes) / seconds : 0;
  double const stalled = r.step_ms > 0 ? 100 * r.stall_ms / r.step_ms : 0;
  std::string text = fmt::format(
      "step {}/{} | loss {:.5f} | norm {:.4f} | lr {:.3e} | {} tokens/s | MFU {:.1f}% | memory {} "
      "| "
      "disk {:.2f} GB/s | stalled {:.0f}% | {} left",
      r.step, steps, r.loss, r.grad_norm, r.lr, rate(r.tokens_per_s), 100 * r.mfu,
      format_bytes(r.rss_bytes), disk / 1e9, stalled,
      clock(static_cast<double>(steps - r.step) * seconds_per_step));
  if (r.skipped != 0) text += " | update skipped (gradient is not finite)";
  return text;
}

Progress::~Progress() { finish(); }

void Progress::show(train::StepReport const& report) {
  double const seconds = report.step_ms / 1e3;
  seconds_per_step_ = seconds_per_step_ == 0 ? seconds : 0.9 * seconds_per_step_ + 0.1 * seconds;
  std::string const text = progress_text(report, options_.steps, seconds_per_step_);
  if (options_.updating) {
    put("\r" + text + "\x1b[K");
    open_ = true;
    return;
  }
  bool const due = report.step % options_.log_every == 0 || report.step == options_.steps;
  if (due || report.skipped != 0) put(text + "\n");
}

void Progress::finish() {
  if (open_) put("\n");
  open_ = false;
}

}  // namespace spillway::app
