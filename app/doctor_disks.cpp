// What doctor says of the I/O engine and of each directory.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "app/findings.hpp"
#include "app/system_files.hpp"
#include "io/engine.hpp"
#include "io/file.hpp"
#include "io/uring/bench_io.hpp"
#include "lib/core/bytes.hpp"
#include "lib/core/error.hpp"

namespace spillway::app {
namespace {

/// Opens a file of our own, as swap space is opened, to see how the directory wants it.
void examine_alignment(std::string const& section, std::string const& directory,
                       Findings& findings) {
  auto const path =
      std::filesystem::path(directory) / fmt::format(".spillway-doctor-{}", ::getpid());
  io::File file(path, io::Access::write_new);
  file.unlink();
  Finding finding{section, "direct I/O",
                  file.direct() ? fmt::format("yes, aligned to {} bytes", file.alignment()) : "no"};
  if (!file.direct()) {
    finding.grade = Grade::warning;
    finding.advice = "data goes through the page cache here, which costs memory of the job";
  }
  findings.push_back(finding);
}

void examine_speed(std::string const& section, std::string const& directory,
                   std::uint64_t bench_bytes, Findings& findings) {
  std::uint64_t const bytes = std::min(bench_bytes, io::free_bytes(directory) / 4);
  if (bytes < (1u << 20)) {
    findings.push_back(
        {section, "speed", bench_bytes == 0 ? "not measured" : "not measured (no room)"});
    return;
  }
  io::IoBenchmarkOptions options;
  options.bytes = bytes;
  io::IoBenchmark const result = io::measure_io(directory, options);
  findings.push_back({section, "read", fmt::format("{:.2f} GB/s", result.read_gb_per_s)});
  findings.push_back({section, "write", fmt::format("{:.2f} GB/s", result.write_gb_per_s)});
}

}  // namespace

void examine_directory(std::string const& directory, std::uint64_t bench_bytes,
                       Findings& findings) {
  std::string const section = "disk " + directory;
  try {
    std::error_code code;
    auto const real = std::filesystem::canonical(directory, code);
    if (code || !std::filesystem::is_directory(real))
      fail(Fault::bad_input, code ? code.message() : "it is no directory");
    findings.push_back(
        {section, "file system",
         file_system_of(real.string(), system_text("/proc/self/mountinfo").value_or(""))});
    findings.push_back({section, "free", format_bytes(io::free_bytes(directory))});
    examine_alignment(section, directory, findings);
    examine_speed(section, directory, bench_bytes, findings);
    findings.push_back({section, "usable", "yes"});
  } catch (Error const& error) {
    findings.push_back({section, "usable", fmt::format("no: {}", error.problem()), Grade::missing});
  }
}

void examine_engine(std::string const& directory, Findings& findings) {
  try {
    auto const engine = io::make_engine(io::EngineKind::automatic, {}, directory);
    std::string const description = engine->description();
    bool const uring = description.rfind("io_uring", 0) == 0;
    Finding finding{"io", "engine", description, uring ? Grade::good : Grade::warning};
    if (!uring)
      finding.advice = "runs work with threads as well; io_uring costs less processor time";
    findings.push_back(finding);
  } catch (Error const& error) {
    findings.push_back({"io", "engine", fmt::format("none: {}", error.problem()), Grade::missing});
  }
}

}  // namespace spillway::app
