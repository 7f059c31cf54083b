// The benchmark finishes, verifies and cleans up; its numbers are nobody's to assert.
#include "io/uring/bench_io.hpp"

#include <gtest/gtest.h>

#include "lib/core/error.hpp"
#include "tests/io/uring/scratch_directory.hpp"

namespace spillway::io {
namespace {

TEST(BenchIoTest, verifies_every_byte_through_fixed_and_plain_buffers) {
  test::ScratchDirectory const directory;
  for (EngineKind const kind : {EngineKind::uring, EngineKind::threads}) {
    IoBenchmark const result = measure_io(
        directory.path(),
        {.bytes = (4u << 20) + 1, .block_bytes = 65536, .depth = 8, .kind = kind, .verify = true});
    EXPECT_EQ(result.bytes, (4u << 20) + 65536);
    EXPECT_EQ(result.verified_bytes, 2 * result.bytes);
    EXPECT_GT(result.read_gb_per_s, 0);
    EXPECT_GT(result.write_gb_per_s, 0);
    EXPECT_EQ(result.stats.read_bytes, 3 * result.bytes);
    EXPECT_EQ(result.stats.written_bytes, 3 * result.bytes);
    EXPECT_EQ(result.engine.starts_with("io_uring (depth 8"), kind == EngineKind::uring);
    EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  }
}

TEST(BenchIoTest, odd_blocks_are_refused) {
  test::ScratchDirectory const directory;
  for (std::uint64_t const block : {std::uint64_t{0}, std::uint64_t{1000}}) {
    try {
      measure_io(directory.path(), {.block_bytes = block});
      FAIL() << block;
    } catch (Error const& error) {
      EXPECT_EQ(error.fault(), Fault::usage);
    }
  }
}

}  // namespace
}  // namespace spillway::io
