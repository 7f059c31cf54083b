// Sizes as people write and read them: "4GiB", "512 MB", "1.5 GiB".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace spillway {

/// Accepts digits with an optional fraction and an optional unit B, kB, KB, MB, GB, TB (powers of
/// 1000), KiB, MiB, GiB, TiB or bare K, M, G, T (powers of 1024). Throws Fault::usage with the text
/// otherwise.
std::uint64_t parse_bytes(std::string_view text);

/// "3.25 GiB"; exact byte counts below 10 KiB.
std::string format_bytes(std::uint64_t bytes);

}  // namespace spillway
