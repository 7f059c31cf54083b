#include "app/metrics.hpp"

#include <fcntl.h>
#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "app/small_file.hpp"
#include "lib/core/error.hpp"

namespace spillway::app {
namespace {

void add_number(std::string& line, std::string const& key, double value) {
  line += line.size() > 1 ? ", " : "";
  // fmt's shortest form is a JSON number and reads back to the same double.
  if (std::isfinite(value))
    line += fmt::format("\"{}\": {}", key, value);
  else
    line += fmt::format("\"{0}\": null, \"{0}_text\": \"{1}\"", key,
                        std::isnan(value) ? "nan"
                        : value > 0       ? "inf"
                                          : "-inf");
}

template <class Int>
void add_integer(std::string& line, char const* key, Int value) {
  line += fmt::format("{}\"{}\": {}", line.size() > 1 ? ", " : "", key, value);
}

/// The step of a line, or -1 if it is torn.
std::int64_t step_of(std::string const& line) {
  auto const object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer())
    return -1;
  return object["step"].get<std::int64_t>();
}

}  // namespace

std::string metrics_line(train::StepReport const& report, ExtraMetrics const& extra) {
  std::string line = "{";
  add_integer(line, "step", report.step);
  add_number(line, "loss", report.loss);
  add_number(line, "grad_norm", report.grad_norm);
  add_number(line, "lr", report.lr);
  add_integer(line, "tokens", report.tokens);
  add_number(line, "tokens_per_s", report.tokens_per_s);
  add_number(line, "step_ms", report.step_ms);
  add_number(line, "stall_ms", report.stall_ms);
  add_number(line, "mfu", report.mfu);
  add_integer(line, "read_bytes", report.read_bytes);
  add_integer(line, "written_bytes", report.written_bytes);
  add_integer(line, "sent_bytes", report.sent_bytes);
  add_integer(line, "rss_bytes", report.rss_bytes);
  add_integer(line, "skipped", report.skipped);
  for (auto const& [key, value] : extra) add_number(line, key, value);
  return line + "}\n";
}

Metrics::Metrics(std::filesystem::path path) : path_(std::move(path)) { open(); }

void Metrics::open() {
  fd_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd_)
    fail(Fault::io, fmt::format("cannot open '{}' ({}).", path_.string(), errno_text(errno)));
}

void Metrics::write(train::StepReport const& report, ExtraMetrics const& extra) {
  write_all(fd_.get(), metrics_line(report, extra), path_);
}

std::int64_t Metrics::cut_back(std::int64_t step) {
  std::string const text = read_small_file(path_);
  std::string kept;
  std::int64_t removed = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t const end = text.find('\n', begin);
    // A line without its end may have been torn within a number, even where it parses.
    bool const whole = end != std::string::npos;
    std::string const line = text.substr(begin, whole ? end - begin : std::string::npos);
    std::int64_t const line_step = whole ? step_of(line) : -1;
    if (line_step >= 0 && line_step <= step)
      kept += line + "\n";
    else
      ++removed;
    begin = whole ? end + 1 : text.size();
  }
  if (removed == 0) return 0;
  write_small_file(path_, kept);
  open();
  return removed;
}

}  // namespace spillway::app
