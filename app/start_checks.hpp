// What a run makes sure of, or says, before its first step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "lib/core/log.hpp"

namespace spillway::app {

/// Makes the directory of checkpoints and removes, by name, what killed saves have left in it.
void prepare_checkpoints(std::filesystem::path const& directory, Log log);

/// Throws Fault::no_room where not even one checkpoint of `bytes` fits, unless there is one already
/// (`resumed`); warns where a second one would not fit beside the first.
void check_room(std::filesystem::path const& directory, std::uint64_t bytes, bool resumed, Log log);

/// Warns of everything that gives a position of the sampler another meaning than it had in the
/// checkpoint. Both are objects as the training state keeps them.
void compare_data_order(std::string const& saved, std::string const& now, Log log);

}  // namespace spillway::app
