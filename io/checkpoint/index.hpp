// index.h5 as bytes: the manifest for this program, virtual datasets and attributes for everybody
// else.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/manifest.hpp"

namespace spillway::io {

inline constexpr char kIndexFile[] = "index.h5";
inline constexpr char kChecksumsFile[] = "CHECKSUMS";

std::vector<std::byte> build_index(Manifest const& manifest);

/// Throws Fault::bad_input when the bytes are not an index of ours.
Manifest parse_index(std::span<std::byte const> image);

/// The text of CHECKSUMS for these bytes of index.h5; `xxhsum -c` accepts it. Two hashes of the one
/// file: when only one disagrees, it is CHECKSUMS that is damaged.
std::string checksums_text(std::span<std::byte const> index);

/// The bytes of a directory's index.h5 after comparing them with its CHECKSUMS. Throws
/// Fault::bad_input naming the file that is missing or damaged.
std::vector<std::byte> read_verified_index(std::filesystem::path const& directory);

}  // namespace spillway::io
