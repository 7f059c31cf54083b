#include "io/uring/self_test.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "io/file.hpp"
#include "lib/core/error.hpp"

namespace spillway::io::detail {

namespace {

/// Bytes that differ between the places of one block, between blocks and between rounds.
void fill(std::span<std::byte> memory, std::uint64_t round) {
  for (std::size_t index = 0; index < memory.size(); ++index)
    memory[index] = static_cast<std::byte>((index * 131 + (index >> 9) * 17 + round * 29) & 0xff);
}

struct Round {
  std::size_t first_block;
  std::size_t blocks;
  std::uint64_t number;
};

/// One write and one read between the blocks and a place of the file that changes from round to
/// round.
bool survives(Engine& engine, File const& file, std::span<std::byte> memory, Round round) {
  std::size_t const block = memory.size() / self_test_blocks;
  auto const part = memory.subspan(round.first_block * block, round.blocks * block);
  FileOffset const place{round.number % self_test_blocks * block};

  fill(memory, round.number);
  std::vector<std::byte> const written(part.begin(), part.end());
  engine.write(file, place, part).wait();
  fill(memory, round.number + 1);
  std::vector<std::byte> expected(memory.begin(), memory.end());
  std::copy(written.begin(), written.end(),
            expected.begin() + static_cast<std::ptrdiff_t>(round.first_block * block));
  engine.read(file, place, part).wait();
  return std::equal(memory.begin(), memory.end(), expected.begin());
}

}  // namespace

std::string self_test(Engine& engine, File const& file, std::span<std::byte> memory) {
  std::uint64_t number = 0;
  for (std::size_t first = 0; first < self_test_blocks; ++first) {
    for (std::size_t blocks = 1; blocks <= self_test_blocks - first; ++blocks, ++number) {
      try {
        if (!survives(engine, file, memory, {first, blocks, number}))
          return fmt::format("its self-test read {} blocks at block {} wrongly", blocks, first);
      } catch (Error const& error) {
        if (error.fault() != Fault::io) throw;
        return fmt::format("its self-test failed: {}", error.problem());
      }
    }
  }
  return "";
}

}  // namespace spillway::io::detail
