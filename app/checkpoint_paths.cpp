#include "app/checkpoint_paths.hpp"

#include <fmt/core.h>

#include "lib/core/error.hpp"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

/// By its name or by what is in it: a checkpoint that lost its index is still meant as one.
bool is_checkpoint(fs::path const& path) {
  fs::path const named = path.has_filename() ? path : path.parent_path();
  return fs::exists(path / "index.h5") ||
         (fs::is_directory(path) && io::checkpoint_step(named.filename().string()) >= 0);
}

void require_directory(fs::path const& path) {
  std::error_code code;
  if (fs::is_directory(path, code)) return;
  fail(Fault::bad_input, fmt::format("'{}' is no directory ({}). Is the path right?", path.string(),
                                     code ? code.message() : "it is a file"));
}

}  // namespace

fs::path checkpoints_folder(fs::path const& path) {
  require_directory(path);
  if (fs::is_directory(path / "checkpoints")) return path / "checkpoints";
  if (is_checkpoint(path)) return fs::canonical(path).parent_path();
  return path;
}

std::vector<fs::path> all_checkpoints(fs::path const& path) {
  require_directory(path);
  if (is_checkpoint(path)) return {path};
  auto const found = io::list_checkpoints(checkpoints_folder(path));
  if (found.empty())
    fail(Fault::bad_input, fmt::format("'{}' holds no checkpoint (no step-* folder is in it). Is "
                                       "the path right?",
                                       path.string()));
  return found;
}

fs::path one_checkpoint(fs::path const& path) { return all_checkpoints(path).back(); }

std::uint64_t checkpoint_bytes(fs::path const& checkpoint) {
  std::uint64_t bytes = 0;
  for (auto const& entry : fs::directory_iterator(checkpoint))
    if (entry.is_regular_file()) bytes += entry.file_size();
  return bytes;
}

fs::path latest_checkpoint(fs::path const& checkpoints) {
  fs::path const link = checkpoints / "latest";
  std::error_code code;
  fs::path const target = fs::canonical(link, code);
  return code ? fs::path() : target;
}

}  // namespace spillway::app
