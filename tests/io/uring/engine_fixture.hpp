// The engines that the contract tests run on: ring and threads, on disk and in memory, undisturbed
// and disturbed.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "io/engine.hpp"
#include "io/file.hpp"
#include "io/uring/scratch.hpp"
#include "tests/io/uring/scratch_directory.hpp"
#include "tests/support/fault_engine.hpp"

namespace spillway::io {

enum class Place { disk, memory };

struct EngineCase {
  EngineKind kind;
  Place place;
  bool disturbed;
};

inline std::string case_name(EngineCase const& engine_case) {
  return std::string(engine_case.kind == EngineKind::uring ? "uring" : "threads") +
         (engine_case.place == Place::disk ? "_on_disk" : "_in_memory") +
         (engine_case.disturbed ? "_disturbed" : "");
}

inline void PrintTo(EngineCase const& engine_case, std::ostream* out) {
  *out << case_name(engine_case);
}

inline std::vector<EngineCase> all_engines() {
  std::vector<EngineCase> cases;
  for (EngineKind const kind : {EngineKind::uring, EngineKind::threads})
    for (Place const place : {Place::disk, Place::memory})
      for (bool const disturbed : {false, true}) cases.push_back({kind, place, disturbed});
  return cases;
}

class EngineTest : public testing::TestWithParam<EngineCase> {
 protected:
  static constexpr std::uint64_t block_bytes = 64 << 10;

  std::unique_ptr<Engine> engine(EngineOptions options = {8, block_bytes, {}}) const {
    test::FaultPlan plan;
    if (GetParam().disturbed)
      plan = {.seed = 7, .again = 0.1, .interrupted = 0.1, .shortened = 0.3, .delay_us_max = 50};
    return test::make_fault_engine(plan, options, GetParam().kind);
  }
  /// A file whose content can be seen under path_of(), without the engine.
  File new_file(std::string const& name) const {
    if (GetParam().place == Place::memory) return detail::scratch_file("");
    return File(directory_ / name, Access::write_new);
  }
  std::string path_of(File const& file) const {
    return "/proc/self/fd/" + std::to_string(file.fd());
  }
  std::string directory() const { return directory_.path(); }

 private:
  test::ScratchDirectory directory_;
};

/// Aligned for any file.
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : bytes_(bytes), memory_(detail::aligned_memory((bytes + 4095) / 4096 * 4096, 4096)) {}
  Memory(std::size_t bytes, std::uint64_t seed) : Memory(bytes) {
    auto const source = test::random_bytes(bytes, seed);
    std::copy(source.begin(), source.end(), memory_.get());
  }
  std::span<std::byte> span() const { return {memory_.get(), bytes_}; }
  std::span<std::byte> part(std::size_t offset, std::size_t bytes) const {
    return span().subspan(offset, bytes);
  }
  std::vector<std::byte> copy() const { return {memory_.get(), memory_.get() + bytes_}; }

 private:
  std::size_t bytes_;
  detail::AlignedMemory memory_;
};

}  // namespace spillway::io
