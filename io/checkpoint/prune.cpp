// Which checkpoints there are, which open, and which go.
#include <fmt/core.h>

#include <algorithm>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/durable.hpp"
#include "io/file.hpp"
#include "lib/core/error.hpp"

namespace spillway::io {

namespace fs = std::filesystem;

namespace {

/// For paths that may end in a slash.
fs::path without_slash(fs::path const& path) {
  return path.has_filename() ? path : path.parent_path();
}

std::int64_t step_of(fs::path const& checkpoint) {
  return checkpoint_step(without_slash(checkpoint).filename().string());
}

/// The same directory under whatever spelling, links resolved.
bool same_place(fs::path const& one, fs::path const& other) {
  std::error_code ignored;
  return fs::weakly_canonical(without_slash(one), ignored) ==
         fs::weakly_canonical(without_slash(other), ignored);
}

}  // namespace

std::vector<fs::path> list_checkpoints(fs::path const& checkpoints) {
  std::vector<fs::path> found;
  if (!fs::is_directory(checkpoints)) return found;
  for (auto const& entry : fs::directory_iterator(checkpoints))
    if (entry.is_directory() && step_of(entry.path()) >= 0) found.push_back(entry.path());
  std::sort(found.begin(), found.end(),
            [](auto const& a, auto const& b) { return step_of(a) < step_of(b); });
  return found;
}

std::unique_ptr<CheckpointReader> open_newest(fs::path const& checkpoints,
                                              std::vector<std::string>& skipped) {
  auto const found = list_checkpoints(checkpoints);
  for (auto at = found.rbegin(); at != found.rend(); ++at) {
    try {
      return std::make_unique<CheckpointReader>(*at);
    } catch (Error const& error) {
      skipped.push_back(fmt::format("{}: {}", at->filename().string(), error.problem()));
    }
  }
  return nullptr;
}

std::vector<fs::path> superseded(std::span<fs::path const> own, int keep,
                                 std::span<fs::path const> kept) {
  expect(keep >= 0, "the number of checkpoints to keep is not negative");
  std::vector<fs::path> removable(own.begin(), own.end());
  std::sort(removable.begin(), removable.end(),
            [](auto const& a, auto const& b) { return step_of(a) < step_of(b); });
  if (keep == 0 || removable.size() <= static_cast<std::size_t>(keep)) return {};
  removable.resize(removable.size() - static_cast<std::size_t>(keep));
  std::erase_if(removable, [&](fs::path const& path) {
    return std::any_of(kept.begin(), kept.end(),
                       [&](fs::path const& other) { return same_place(path, other); });
  });
  return removable;
}

void remove_checkpoint(fs::path const& checkpoint) {
  if (step_of(checkpoint) < 0)
    fail(Fault::usage, fmt::format("'{}' is not a checkpoint (its name is not step-NNNNNNNNN)",
                                   checkpoint.string()));
  auto const path = without_slash(checkpoint);
  auto const parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  fs::path going = path;
  going += ".tmp";
  remove_tree(going);
  rename_entry(path, going);
  sync_directory(parent);
  remove_tree(going);
}

}  // namespace spillway::io
