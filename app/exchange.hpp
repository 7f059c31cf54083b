// Checkpoints to and from Hugging Face folders.
#pragma once

#include "app/options.hpp"

namespace spillway::app {

/// `ckpt export CKPT FOLDER`.
int export_checkpoint(CommandLine const& line);

/// `ckpt import FOLDER DIR`.
int import_checkpoint(CommandLine const& line);

}  // namespace spillway::app
