// Checks a stream's scratch against what an operation needs.
#include "lib/ops/detail/scratch.hpp"

#include <fmt/core.h>

#include "lib/core/error.hpp"

namespace spillway::ops::detail {

Scratch::Scratch(std::span<std::byte> bytes, std::size_t needed, std::string_view operation)
    : next_(bytes.data()) {
  if (bytes.size() < needed)
    fail(Fault::internal,
         fmt::format(
             "{} needs {} bytes of scratch (the stream has {}). Make the stream with as many?",
             operation, needed, bytes.size()));
  bool const aligned = reinterpret_cast<std::uintptr_t>(next_) % kScratchAlignment == 0;
  expect(needed == 0 || aligned, "a stream's scratch is aligned to 64 bytes");
}

}  // namespace spillway::ops::detail
