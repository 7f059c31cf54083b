// `spillway bench io`: what a disk gives.
#include "io/uring/bench_io.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "app/bench.hpp"
#include "app/option_text.hpp"
#include "app/options.hpp"
#include "lib/core/bytes.hpp"
#include "lib/core/error.hpp"

namespace spillway::app {
namespace {

Syntax io_syntax() {
  Syntax syntax;
  syntax.usage = "spillway bench io [DIR] [flags]";
  syntax.summary = "Writes and reads a file of its own in DIR (default: .) and prints GB/s.";
  syntax.flags = {{"bytes", "SIZE", "size of the file [1GiB]"},
                  {"block", "SIZE", "size of a request [1MiB]"},
                  {"depth", "N", "requests in flight [32]"},
                  {"engine", "KIND", "auto, uring or threads [auto]"},
                  {"verify", "", "check a pattern in every block"},
                  {"json", "", "print one JSON object"}};
  syntax.positional_max = 1;
  return syntax;
}

io::EngineKind engine_from(std::string const& name) {
  if (name == "auto") return io::EngineKind::automatic;
  if (name == "uring") return io::EngineKind::uring;
  if (name == "threads") return io::EngineKind::threads;
  fail(Fault::usage,
       fmt::format("bad value '{}' for --engine (it takes auto, uring or threads).", name));
}

io::IoBenchmarkOptions io_options(CommandLine const& line) {
  io::IoBenchmarkOptions options;
  options.bytes = parse_bytes(line.flag("bytes", "1GiB"));
  options.block_bytes = parse_bytes(line.flag("block", "1MiB"));
  if (options.block_bytes < 4096 || options.block_bytes % 4096 != 0)
    fail(Fault::usage, fmt::format("bad value '{}' for --block (it takes a multiple of 4KiB).",
                                   line.flag("block")));
  options.depth = static_cast<std::uint32_t>(whole_flag(line, "depth", {1, 4096, 32}));
  options.kind = engine_from(line.flag("engine", "auto"));
  options.verify = line.has("verify");
  return options;
}

}  // namespace

int bench_io(std::vector<std::string> const& words) {
  Syntax const syntax = io_syntax();
  CommandLine const line = parse_command_line(syntax, words);
  if (answer_questions(line, syntax)) return 0;
  std::string const directory = line.positional.empty() ? "." : line.positional.front();
  io::IoBenchmark const result = io::measure_io(directory, io_options(line));
  if (line.has("json")) {
    nlohmann::json const all = {{"directory", directory},
                                {"engine", result.engine},
                                {"direct", result.direct},
                                {"bytes", result.bytes},
                                {"write_gb_per_s", result.write_gb_per_s},
                                {"read_gb_per_s", result.read_gb_per_s},
                                {"verified_bytes", result.verified_bytes},
                                {"retries", result.stats.retries}};
    fmt::print("{}\n", all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }
  fmt::print("{}: {}, {}\n", directory, result.engine,
             result.direct ? "past the page cache" : "through the page cache");
  fmt::print("write  {:.2f} GB/s\nread   {:.2f} GB/s   ({})\n", result.write_gb_per_s,
             result.read_gb_per_s, format_bytes(result.bytes));
  if (line.has("verify")) fmt::print("verified {}\n", format_bytes(result.verified_bytes));
  return 0;
}

}  // namespace spillway::app
