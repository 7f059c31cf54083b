#include "offload/spill_checksums.hpp"

#include <fmt/core.h>

#include "io/checkpoint/checksum.hpp"
#include "lib/core/error.hpp"

namespace spillway::offload {

void SpillChecksums::set(int tile, SpillPart part, std::span<std::byte const> bytes) {
  if (sums_.empty() || bytes.empty()) return;
  sums_[static_cast<std::size_t>(tile)].sums[static_cast<std::size_t>(part)] = io::xxh3(bytes);
}

void SpillChecksums::check(int tile, SpillPart part, std::span<std::byte const> bytes,
                           std::string const& file, std::uint64_t offset) const {
  if (sums_.empty() || bytes.empty()) return;
  std::uint64_t const expected =
      sums_[static_cast<std::size_t>(tile)].sums[static_cast<std::size_t>(part)];
  std::uint64_t const found = io::xxh3(bytes);
  if (found == expected) return;
  constexpr char const* kNames[] = {"weights", "moments", "gradient"};
  fail(Fault::io,
       fmt::format(
           "spilled {} came back changed from '{}' ({} bytes at offset {}: XXH3 {}, written {}). "
           "Is the disk or its cable failing? The last checkpoint is good.",
           kNames[static_cast<std::size_t>(part)], file, bytes.size(), offset, io::hex(found),
           io::hex(expected)));
}

}  // namespace spillway::offload
