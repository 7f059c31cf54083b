#include "io/uring/bench_io.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include "io/file.hpp"
#include "io/uring/scratch.hpp"
#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::io {

namespace {

/// The word at `index` of the file: a bijection of it (splitmix64), so that no two blocks are
/// alike.
std::uint64_t pattern_word(std::uint64_t index) {
  std::uint64_t word = (index + 1) * 0x9e3779b97f4a7c15u;
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
  return word ^ (word >> 31);
}

void fill_pattern(std::span<std::byte> memory, std::uint64_t offset) {
  for (std::size_t at = 0; at < memory.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t const word = pattern_word((offset + at) / sizeof(std::uint64_t));
    std::memcpy(memory.data() + at, &word, sizeof(word));
  }
}

void check_pattern(std::span<std::byte const> memory, std::uint64_t offset) {
  for (std::size_t at = 0; at < memory.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, memory.data() + at, sizeof(word));
    std::uint64_t const expected = pattern_word((offset + at) / sizeof(std::uint64_t));
    if (word == expected) continue;
    fail(Fault::io,
         fmt::format("the disk gave back other bytes than it was given (at offset {}: {:016x} "
                     "instead of {:016x}). Try engine=threads, and test the disk?",
                     offset + at, word, expected));
  }
}

/// Blocks of a file that circulate through a few slots of memory; only the first half of these is
/// registered.
class BlockStream {
 public:
  BlockStream(IoBenchmarkOptions const& options, std::string const& directory)
      : block_bytes_(options.block_bytes),
        bytes_(round_up(std::max<std::uint64_t>(options.bytes, 1), options.block_bytes)),
        file_(detail::scratch_file(directory)),
        memory_(detail::aligned_memory(2 * options.depth * block_bytes_, 4096)),
        tickets_(2 * std::size_t{options.depth}) {
    std::span<std::byte> const all(memory_.get(), tickets_.size() * block_bytes_);
    EngineOptions engine_options{options.depth, options.block_bytes, {all}};
    if (options.verify) engine_options.buffers = {all.first(all.size() / 2)};
    engine_ = make_engine(options.kind, engine_options, directory);
    file_.reserve(bytes_);
  }

  using Visit = std::function<void(std::span<std::byte>, std::uint64_t offset)>;

  /// Each slot is filled by `fill`, if there is one, and written.
  void write_all(Visit const& fill) {
    for (std::uint64_t block = 0; block < bytes_ / block_bytes_; ++block) {
      std::size_t const slot = block % tickets_.size();
      std::uint64_t const offset = block * block_bytes_;
      tickets_[slot].wait();
      if (fill) fill(slot_memory(slot), offset);
      tickets_[slot] = engine_->write(file_, FileOffset{offset}, slot_memory(slot));
    }
    for (Ticket& ticket : tickets_) ticket.wait();
    file_.sync();
  }

  /// What is read goes through `check`, if there is one. `shift` moves blocks to other slots.
  void read_all(Visit const& check, std::size_t shift) {
    std::vector<std::uint64_t> offsets(tickets_.size());
    auto const take = [&](std::size_t slot) {
      if (!tickets_[slot]) return;
      tickets_[slot].wait();
      if (check) check(slot_memory(slot), offsets[slot]);
    };
    for (std::uint64_t block = 0; block < bytes_ / block_bytes_; ++block) {
      std::size_t const slot = (block + shift) % tickets_.size();
      take(slot);
      offsets[slot] = block * block_bytes_;
      tickets_[slot] = engine_->read(file_, FileOffset{offsets[slot]}, slot_memory(slot));
    }
    for (std::size_t slot = 0; slot < tickets_.size(); ++slot) take(slot);
  }

  std::uint64_t bytes() const { return bytes_; }
  std::size_t slots() const { return tickets_.size(); }
  File const& file() const { return file_; }
  Engine const& engine() const { return *engine_; }

 private:
  std::span<std::byte> slot_memory(std::size_t slot) {
    return {memory_.get() + slot * block_bytes_, block_bytes_};
  }

  std::uint64_t block_bytes_;
  std::uint64_t bytes_;
  File file_;
  detail::AlignedMemory memory_;
  std::unique_ptr<Engine> engine_;
  std::vector<Ticket> tickets_;  // last: they wait before what they use goes
};

double gb_per_s(std::uint64_t bytes, std::function<void()> const& action) {
  auto const start = std::chrono::steady_clock::now();
  action();
  std::chrono::duration<double> const elapsed = std::chrono::steady_clock::now() - start;
  return static_cast<double>(bytes) / elapsed.count() / 1e9;
}

}  // namespace

IoBenchmark measure_io(std::string const& directory, IoBenchmarkOptions const& options) {
  if (options.block_bytes == 0 || options.block_bytes % 4096 != 0)
    fail(Fault::usage,
         fmt::format("cannot measure with blocks of {} bytes (not a multiple of 4096). "
                     "Try 1 MiB?",
                     options.block_bytes));
  BlockStream stream(options, directory);
  stream.write_all(
      fill_pattern);  // the first pass over reserved space is not what a run sees later on
  IoBenchmark result;
  result.write_gb_per_s = gb_per_s(stream.bytes(), [&] { stream.write_all(nullptr); });
  if (!stream.file().direct()) stream.file().drop_cache();
  result.read_gb_per_s = gb_per_s(stream.bytes(), [&] { stream.read_all(nullptr, 0); });
  if (options.verify) {
    stream.write_all(fill_pattern);
    for (std::size_t const shift : {std::size_t{0}, stream.slots() / 2}) {
      stream.read_all(check_pattern, shift);
      result.verified_bytes += stream.bytes();
    }
  }
  result.bytes = stream.bytes();
  result.direct = stream.file().direct();
  result.engine = stream.engine().description();
  result.stats = stream.engine().stats();
  return result;
}

}  // namespace spillway::io
