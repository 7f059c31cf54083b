// Which checkpoint a path on the command line means.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.hpp"

namespace spillway::app {

/// The folder of checkpoints that `path` is (a checkpoints folder), holds (a run directory) or lies
/// in.
std::filesystem::path checkpoints_folder(std::filesystem::path const& path);

/// `path` itself where it is a checkpoint, else the newest of its folder. Throws Fault::bad_input.
std::filesystem::path one_checkpoint(std::filesystem::path const& path);

/// `path` itself where it is a checkpoint, else all of its folder. Throws Fault::bad_input if there
/// is none.
std::vector<std::filesystem::path> all_checkpoints(std::filesystem::path const& path);

/// Bytes of all files of a checkpoint.
std::uint64_t checkpoint_bytes(std::filesystem::path const& checkpoint);

/// What `latest` points to; empty if there is no such link.
std::filesystem::path latest_checkpoint(std::filesystem::path const& checkpoints);

}  // namespace spillway::app
