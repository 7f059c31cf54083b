// `spillway doctor`: what this machine offers to a run, and what it lacks.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "app/findings.hpp"
#include "app/options.hpp"
#include "lib/core/bytes.hpp"

namespace spillway::app {
namespace {

Syntax doctor_syntax() {
  Syntax syntax;
  syntax.usage = "spillway doctor [DIR ...] [--json]";
  syntax.summary =
      "Prints what this machine offers. Each DIR, and those of offload.nvme, is measured.";
  syntax.flags = {{"json", "", "print one JSON object"},
                  {"bytes", "SIZE", "bytes to write and read in each DIR; 0: none [256MiB]"}};
  syntax.sections = {"offload"};
  syntax.positional_max = 64;
  return syntax;
}

char const* grade_name(Grade grade) {
  switch (grade) {
    case Grade::good: return "good";
    case Grade::warning: return "warning";
    case Grade::missing: return "missing";
  }
  return "";
}

}  // namespace

std::string findings_text(Findings const& findings) {
  std::string text;
  std::string section;
  for (auto const& finding : findings) {
    if (finding.section != section) text += fmt::format("[{}]\n", section = finding.section);
    char const* mark = finding.grade == Grade::good ? " " : "!";
    text += fmt::format("{} {:<18} {}\n", mark, finding.name, finding.value);
    if (!finding.advice.empty()) text += fmt::format("  {:<18} -> {}\n", "", finding.advice);
  }
  return text;
}

std::string findings_json(Findings const& findings) {
  nlohmann::ordered_json all;
  for (auto const& finding : findings) {
    auto& entry = all[finding.section][finding.name];
    entry["value"] = finding.value;
    entry["grade"] = grade_name(finding.grade);
    if (!finding.advice.empty()) entry["advice"] = finding.advice;
  }
  return all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

int run_doctor(Arguments const& arguments) {
  Syntax const syntax = doctor_syntax();
  CommandLine const line = parse_command_line(syntax, arguments.words);
  if (answer_questions(line, syntax)) return 0;
  std::uint64_t const bench_bytes = parse_bytes(line.flag("bytes", "256MiB"));
  std::vector<std::string> directories = line.positional;
  directories.insert(directories.end(), line.options.offload.nvme.begin(),
                     line.options.offload.nvme.end());

  Findings findings;
  examine_machine(findings);
  examine_limits(findings);
  examine_engine(directories.empty() ? "." : directories.front(), findings);
  examine_launch(findings);
  for (auto const& directory : directories) examine_directory(directory, bench_bytes, findings);
  fmt::print("{}", line.has("json") ? findings_json(findings) : findings_text(findings));
  // A directory that was named has to be usable; the rest is information.
  bool const unusable = std::any_of(findings.begin(), findings.end(), [](Finding const& finding) {
    return finding.name == "usable" && finding.grade == Grade::missing;
  });
  return unusable ? 3 : 0;
}

}  // namespace spillway::app
