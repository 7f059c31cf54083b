// The order of writes and renames by which a checkpoint exists whole or not at all.
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "io/checkpoint/checkpoint.hpp"
#include "io/checkpoint/durable.hpp"
#include "io/checkpoint/index.hpp"
#include "io/checkpoint/manifest.hpp"
#include "io/file.hpp"
#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::io {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kInProgress = ".tmp";  // being written, or being removed: never whole
constexpr std::string_view kSetAside =
    ".tmp-old";  // whole, waiting for its successor to take the name
constexpr char kLatest[] = "latest";
constexpr char kLatestNew[] = "latest.tmp";

fs::path in_progress(fs::path const& checkpoints, std::int64_t step) {
  return checkpoints / (checkpoint_name(step) + std::string(kInProgress));
}

/// Step of "step-NNNNNNNNN<suffix>", -1 for other names.
std::int64_t step_before(std::string const& name, std::string_view suffix) {
  if (!std::string_view(name).ends_with(suffix)) return -1;
  return checkpoint_step(name.substr(0, name.size() - suffix.size()));
}

Manifest assemble(CheckpointSchema const& schema, TrainingState const& state,
                  std::vector<std::vector<std::byte>> const& shard_parts) {
  Manifest manifest{schema, state, {}};
  for (auto const& part : shard_parts)
    manifest.shards.push_back(unpack_shard(part, schema, narrow<int>(shard_parts.size())));
  check_complete(manifest);
  return manifest;
}

/// Fails unless every shard is there as its rank described it; removes shards that a killed save
/// with another number of ranks has left.
void check_directory(fs::path const& directory, Manifest const& manifest) {
  for (auto const& shard : manifest.shards) {
    std::error_code error;
    auto const size = fs::file_size(directory / shard.file, error);
    if (error || size != shard.size)
      fail(Fault::io,
           fmt::format(
               "shard '{}' is not as its rank wrote it ({}). Do all ranks see the same directory?",
               (directory / shard.file).string(),
               error ? error.message() : fmt::format("{} bytes, {} written", size, shard.size)));
  }
  for (auto const& entry : fs::directory_iterator(directory)) {
    auto const name = entry.path().filename().string();
    bool expected = name == kIndexFile || name == kChecksumsFile;
    for (auto const& shard : manifest.shards) expected = expected || shard.file == name;
    if (!expected) remove_tree(entry.path());
  }
}

/// Gives the directory its final name. One that has the name already is whole until that instant.
void take_name(fs::path const& temporary, fs::path const& final_path, CommitHook const& passed) {
  if (!fs::exists(fs::symlink_status(final_path))) {
    rename_entry(temporary, final_path);
    passed("renamed");
    return;
  }
  if (exchange_entries(temporary, final_path)) {
    passed("exchanged");
    return;
  }
  fs::path aside = final_path;
  aside += kSetAside;
  remove_tree(aside);
  rename_entry(final_path, aside);
  passed("set aside");
  rename_entry(temporary, final_path);
  passed("renamed");
  rename_entry(aside, temporary);
}

void point_latest(fs::path const& checkpoints, std::string const& name, CommitHook const& passed) {
  auto const link = checkpoints / kLatestNew;
  remove_tree(link);
  std::error_code error;
  fs::create_symlink(name, link, error);
  if (error)
    fail(Fault::io,
         fmt::format("cannot create the link '{}' ({})", link.string(), error.message()));
  passed("latest written");
  rename_entry(link, checkpoints / kLatest);
  passed("latest renamed");
  sync_directory(checkpoints);
  passed("latest synced");
}

}  // namespace

std::string checkpoint_name(std::int64_t step) { return fmt::format("{}{:09}", kPrefix, step); }

std::int64_t checkpoint_step(std::string const& directory_name) {
  if (!std::string_view(directory_name).starts_with(kPrefix)) return -1;
  std::int64_t step = -1;
  char const* const end = directory_name.data() + directory_name.size();
  auto const [stop, error] = std::from_chars(directory_name.data() + kPrefix.size(), end, step);
  if (error != std::errc{} || stop != end || step < 0) return -1;
  return checkpoint_name(step) == directory_name ? step : -1;
}

fs::path prepare_checkpoint(fs::path const& checkpoints, std::int64_t step) {
  auto const directory = in_progress(checkpoints, step);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error)
    fail(error.value() == ENOSPC || error.value() == EDQUOT ? Fault::no_room : Fault::io,
         fmt::format("cannot create directory '{}' ({})", directory.string(), error.message()));
  return directory;
}

void discard_checkpoint(fs::path const& checkpoints, std::int64_t step) {
  remove_tree(in_progress(checkpoints, step));
}

fs::path commit_checkpoint(fs::path const& checkpoints, CheckpointSchema const& schema,
                           TrainingState const& state,
                           std::vector<std::vector<std::byte>> const& shard_parts,
                           CommitHook const& hook) {
  auto const passed = [&](std::string_view point) {
    if (hook) hook(point);
  };
  auto const name = checkpoint_name(state.step);
  auto const temporary = in_progress(checkpoints, state.step);
  auto const final_path = checkpoints / name;
  doing(fmt::format("committing checkpoint '{}'", final_path.string()), [&] {
    auto const manifest = assemble(schema, state, shard_parts);
    check_directory(temporary, manifest);
    auto const index = build_index(manifest);
    write_file(temporary / kIndexFile, index);
    passed("index written");
    sync_file(temporary / kIndexFile);
    passed("index synced");
    auto const checksums = checksums_text(index);
    write_file(temporary / kChecksumsFile, std::as_bytes(std::span(checksums)));
    passed("checksums written");
    sync_file(temporary / kChecksumsFile);
    passed("checksums synced");
    sync_directory(temporary);
    passed("directory synced");
    take_name(temporary, final_path, passed);
    sync_directory(checkpoints);
    passed("parent synced");
    point_latest(checkpoints, name, passed);
    remove_tree(temporary);  // the predecessor of the same step, if there was one
  });
  return final_path;
}

std::vector<std::string> clean_leftovers(fs::path const& checkpoints) {
  std::vector<std::string> removed;
  if (!fs::is_directory(checkpoints)) return removed;
  std::vector<fs::path> entries;
  for (auto const& entry : fs::directory_iterator(checkpoints)) entries.push_back(entry.path());
  for (auto const& entry : entries) {
    auto const name = entry.filename().string();
    if (auto const step = step_before(name, kSetAside); step >= 0) {
      auto const final_path = checkpoints / checkpoint_name(step);
      if (!fs::exists(final_path)) {
        rename_entry(entry, final_path);
        continue;
      }
    } else if (step_before(name, kInProgress) < 0 && name != kLatestNew) {
      continue;
    }
    remove_tree(entry);
    removed.push_back(name);
  }
  sync_directory(checkpoints);
  std::sort(removed.begin(), removed.end());
  return removed;
}

}  // namespace spillway::io
