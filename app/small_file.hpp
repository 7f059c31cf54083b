// Whole small text files: configuration, provenance, locks.
#pragma once

#include <filesystem>
#include <string>

namespace spillway::app {

/// The text of a file. Throws `Fault::bad_input` with path and reason.
std::string read_small_file(std::filesystem::path const& path);

/// Written aside, synced and renamed: readers see the old text or the new one. Throws with path and
/// reason.
void write_small_file(std::filesystem::path const& path, std::string const& text);

/// All of `text` in as few calls as the kernel allows; `path` names the file in errors.
void write_all(int fd, std::string const& text, std::filesystem::path const& path);

}  // namespace spillway::app
