// What doctor found out, as rows that print as text and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace spillway::app {

/// `warning` where a run would be slower or smaller than it could be; `missing` where something is
/// not there.
enum class Grade { good, warning, missing };

struct Finding {
  std::string section;
  std::string name;
  std::string value;
  Grade grade = Grade::good;
  std::string advice = {};  // empty: none
};

using Findings = std::vector<Finding>;

std::string findings_text(Findings const& findings);
/// {"cpu": {"model": {"value": "...", "grade": "good"}, ...}, ...}
std::string findings_json(Findings const& findings);

void examine_machine(Findings& findings);
void examine_limits(Findings& findings);
void examine_launch(Findings& findings);
/// Also measures the directory's disk, with a file of `bench_bytes`; 0: does not.
void examine_directory(std::string const& directory, std::uint64_t bench_bytes, Findings& findings);
void examine_engine(std::string const& directory, Findings& findings);

}  // namespace spillway::app
