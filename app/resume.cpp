#include "app/resume.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "app/collectively.hpp"

namespace spillway::app {
namespace {

using Json = nlohmann::json;

std::int64_t number(ResumePoint const& point, char const* key) {
  Json const json = Json::parse(point.reader->state().json, nullptr, false);
  if (!json.is_object() || !json.contains(key) || !json[key].is_number_integer())
    fail(Fault::bad_input,
         fmt::format(
             "the checkpoint {} has no '{}' in its training state (written by another version?). "
             "Use another one by --checkpoint.resume=PATH?",
             point.reader->directory().string(), key));
  return json[key].get<std::int64_t>();
}

/// Directories that are called like checkpoints, oldest first: empty ones and damaged ones too.
std::vector<std::filesystem::path> candidates(std::filesystem::path const& directory) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (auto const& entry : std::filesystem::directory_iterator(directory, error))
    if (io::checkpoint_step(entry.path().filename().string()) >= 0) found.push_back(entry.path());
  std::sort(found.begin(), found.end(), [](auto const& a, auto const& b) {
    return io::checkpoint_step(a.filename().string()) < io::checkpoint_step(b.filename().string());
  });
  return found;
}

/// Opens the newest candidate that opens on every rank.
void open_newest(comm::Communicator& comm, Log log, ResumePoint& point, bool any_failed) {
  std::string reason;
  while (!point.older.empty()) {
    auto const path = point.older.back();
    point.older.pop_back();
    auto const outcome = try_collectively(comm, [&] {
      point.reader = std::make_unique<io::CheckpointReader>(path);
      point.progress();
      point.waves_for(1);
    });
    if (!outcome.fault) return;
    point.reader.reset();
    any_failed = true;
    reason = outcome.text;
    log.root(Level::warning, "{} is skipped: {}", path.string(), outcome.text);
  }
  if (any_failed)
    throw CollectiveError(Fault::bad_input,
                          "there are checkpoints, but none of them is good (see the warnings "
                          "above). Mend one, or start "
                          "anew with --checkpoint.resume=never and another run.dir?");
}

}  // namespace

train::Progress ResumePoint::progress() const {
  return {.step = reader->state().step,
          .updates = number(*this, "updates"),
          .tokens = reader->state().tokens,
          .skipped_in_a_row = number(*this, "skipped_in_a_row")};
}

int ResumePoint::waves_for(int micro_batches) const {
  if (!reader) return 0;
  bool const same = number(*this, "micro_batches") == micro_batches;
  return same ? static_cast<int>(number(*this, "waves")) : 0;
}

ResumePoint find_resume_point(Options const& options, comm::Communicator& comm, Log log) {
  ResumePoint point;
  if (options.checkpoint.resume == "never") return point;
  if (options.checkpoint.resume != "auto") {
    collectively(comm, [&] {
      point.reader = std::make_unique<io::CheckpointReader>(options.checkpoint.resume);
      point.progress();
    });
    return point;
  }
  point.older = candidates(options.checkpoint_dir());
  open_newest(comm, log, point, false);
  return point;
}

void fall_back(Options const& options, comm::Communicator& comm, Log log, std::string const& text,
               Fault fault, ResumePoint& point) {
  bool const automatic = options.checkpoint.resume == "auto";
  if (!automatic || fault != Fault::bad_input) throw CollectiveError(fault, text);
  log.root(Level::warning, "{} is skipped: {}", point.reader->directory().string(), text);
  point.reader.reset();
  open_newest(comm, log, point, true);
}

}  // namespace spillway::app
