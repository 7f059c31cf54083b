// Which engine is taken and what its description says: seccomp filters, memory-lock limits, failing
// self-tests.
#include "io/uring/choose_engine.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>

#include "io/file.hpp"
#include "io/uring/self_test.hpp"
#include "lib/core/error.hpp"
#include "tests/io/uring/child_process.hpp"
#include "tests/io/uring/engine_fixture.hpp"

namespace spillway::io {
namespace {

using detail::Request;
using test::in_child;

/// The description of the engine, behind a sign whether it moves bytes rightly.
std::string engine_of(EngineKind kind, EngineOptions const& options, std::string const& directory) {
  auto const engine = make_engine(kind, options, directory);
  File const file = detail::scratch_file(directory);
  std::size_t const bytes = 1 << 20;
  Memory const written(bytes, 1);
  Memory const other(bytes);
  auto const read = options.buffers.empty()
                        ? other.span()
                        : options.buffers[0].first(std::min(bytes, options.buffers[0].size()));
  engine->write(file, FileOffset{0}, written.span()).wait();
  engine->read(file, FileOffset{0}, read).wait();
  bool const right = std::equal(read.begin(), read.end(), written.span().begin());
  return (right ? "right bytes: " : "wrong bytes: ") + engine->description();
}

TEST(ChooseEngineTest, takes_the_ring_where_it_is_permitted) {
  test::ScratchDirectory const directory;
  EXPECT_EQ(engine_of(EngineKind::automatic, {}, directory.path()),
            "right bytes: io_uring (depth 32, plain buffers)");
  EXPECT_EQ(engine_of(EngineKind::uring, {5, 4096, {}}, ""),
            "right bytes: io_uring (depth 5, plain buffers)");
  EXPECT_EQ(engine_of(EngineKind::threads, {}, directory.path()), "right bytes: 8 threads");
  EXPECT_EQ(engine_of(EngineKind::threads, {1, 4096, {}}, ""), "right bytes: 1 thread");
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(ChooseEngineTest, a_seccomp_filter_with_eperm_leads_to_threads) {
  test::ScratchDirectory const directory;
  std::string const text = in_child([&] {
    test::refuse_system_call(SYS_io_uring_setup, EPERM);
    return engine_of(EngineKind::automatic, {}, directory.path());
  });
  EXPECT_EQ(text,
            "right bytes: 8 threads (io_uring refused: a seccomp filter forbids it, as in many "
            "containers, EPERM)");
}

TEST(ChooseEngineTest, a_seccomp_filter_with_enosys_looks_like_an_old_kernel) {
  test::ScratchDirectory const directory;
  std::string const text = in_child([&] {
    test::refuse_system_call(SYS_io_uring_setup, ENOSYS);
    return engine_of(EngineKind::automatic, {}, directory.path());
  });
  EXPECT_EQ(text,
            "right bytes: 8 threads (io_uring refused: the kernel is older than Linux 5.6 or built "
            "without it, ENOSYS)");
}

TEST(ChooseEngineTest, a_ring_that_sets_up_but_takes_nothing_leads_to_threads) {
  for (auto const& [error, symbol] : {std::pair(EPERM, "EPERM"), std::pair(EAGAIN, "EAGAIN")}) {
    std::string const text = in_child([code = error] {
      test::refuse_system_call(SYS_io_uring_enter, code);
      return engine_of(EngineKind::automatic, {}, "");
    });
    EXPECT_TRUE(
        text.starts_with("right bytes: 8 threads (io_uring refused: its self-test failed: "))
        << text;
    EXPECT_NE(text.find(symbol), std::string::npos) << text;
  }
}

TEST(ChooseEngineTest, insisting_on_a_refused_ring_is_an_error) {
  std::string const text = in_child([] {
    test::refuse_system_call(SYS_io_uring_setup, EPERM);
    return engine_of(EngineKind::uring, {}, "");
  });
  EXPECT_TRUE(text.starts_with(
      "Error 5: cannot use the io_uring engine (io_uring refused: a seccomp filter"))
      << text;
}

TEST(ChooseEngineTest, the_reason_tells_sysctl_seccomp_and_old_kernels_apart) {
  EXPECT_NE(detail::refusal(EPERM, 2).find("sysctl kernel.io_uring_disabled is 2"),
            std::string::npos);
  EXPECT_NE(detail::refusal(EPERM, 0).find("seccomp"), std::string::npos);
  EXPECT_NE(detail::refusal(ENOSYS, 0).find("older than Linux 5.6"), std::string::npos);
  EXPECT_NE(detail::refusal(EMFILE, 0).find("EMFILE"), std::string::npos);
}

TEST(ChooseEngineTest, memory_within_the_lock_limit_is_registered) {
  Memory const memory(1 << 20);
  EXPECT_EQ(engine_of(EngineKind::automatic, {32, 65536, {memory.span()}}, ""),
            "right bytes: io_uring (depth 32, fixed buffers)");
}

/// What engine_of() says under a memory-lock limit, behind "alone: " where no other process shares
/// the limit.
std::string engine_within(std::uint64_t lock_limit, std::vector<std::size_t> const& buffer_bytes) {
  test::ScratchDirectory const directory;
  return in_child([&] {
    test::limit(RLIMIT_MEMLOCK, lock_limit);
    std::string const sign = test::become_a_user_of_its_own() ? "alone: " : "";
    std::vector<Memory> memory;
    EngineOptions options{32, 8192, {}};
    for (std::size_t const bytes : buffer_bytes)
      options.buffers.push_back(memory.emplace_back(bytes).span());
    return sign + engine_of(EngineKind::automatic, options, directory.path());
  });
}

TEST(ChooseEngineTest, memory_beyond_the_lock_limit_is_used_unregistered) {
  std::string const text = engine_within(64 << 10, {2 << 20});
  EXPECT_NE(text.find("right bytes: "), std::string::npos) << text;
  EXPECT_NE(text.find("ENOMEM"), std::string::npos) << text;
  EXPECT_NE(text.find("64 KiB"), std::string::npos) << text;
  if (text.starts_with("alone: ")) {
    EXPECT_EQ(text,
              "alone: right bytes: io_uring (depth 32, plain buffers, as locking 2 MiB was "
              "refused: Cannot "
              "allocate memory (ENOMEM), memory-lock limit (ulimit -l) 64 KiB)");
  }
}

TEST(ChooseEngineTest, as_many_buffers_as_fit_are_registered) {
  std::string const text = engine_within(64 << 10, {32 << 10, 2 << 20});
  EXPECT_NE(text.find("right bytes: "), std::string::npos) << text;
  EXPECT_NE(text.find("ENOMEM"), std::string::npos) << text;
  if (text.starts_with("alone: ")) {
    EXPECT_EQ(text,
              "alone: right bytes: io_uring (depth 32, fixed buffers for 32 KiB, as locking 2.031 "
              "MiB was "
              "refused: Cannot allocate memory (ENOMEM), memory-lock limit (ulimit -l) 64 KiB)");
  }
}

TEST(ChooseEngineTest, no_memory_for_a_ring_leads_to_threads) {
  // Kernels that do not count rings against the limit give one.
  std::string const text = engine_within(0, {});
  bool const is_ring = text.find("right bytes: io_uring (depth ") != std::string::npos;
  bool const is_threads = text.find(
                              "right bytes: 8 threads (io_uring refused: no memory for a ring "
                              "within the memory-lock limit "
                              "(ulimit -l) of 0 B, ENOMEM)") != std::string::npos;
  EXPECT_TRUE(is_ring || is_threads) << text;
}

/// make_engine with a hook that spoils every read from result number `from` on.
std::string with_spoiled_reads(EngineKind kind, std::uint64_t from,
                               EngineOptions const& options = {}) {
  std::atomic<std::uint64_t> count = 0;
  return detail::make_engine(
             kind, options, "",
             [&](Request const& request, std::int64_t result) {
               if (++count >= from && request.transfer->direction == Direction::read)
                 request.data[0] ^= std::byte{1};
               return result;
             })
      ->description();
}

TEST(ChooseEngineTest, wrong_bytes_in_the_self_test_lead_to_threads) {
  EXPECT_EQ(with_spoiled_reads(EngineKind::automatic, 1),
            "8 threads (io_uring refused: its self-test read 1 blocks at block 0 wrongly)");
  EXPECT_THROW(with_spoiled_reads(EngineKind::uring, 1), Error);
}

TEST(ChooseEngineTest, wrong_bytes_with_fixed_buffers_lead_to_plain_ones) {
  // Ten places in four blocks, twenty blocks in all, written and read: the plain test is over after
  // 40 results.
  Memory const memory(1 << 16);
  EXPECT_EQ(with_spoiled_reads(EngineKind::automatic, 41, {32, 4096, {memory.span()}}),
            "io_uring (depth 32, plain buffers, as with fixed ones its self-test read 1 blocks at "
            "block 0 wrongly)");
}

TEST(ChooseEngineTest, errors_in_the_self_test_lead_to_threads_but_lack_of_room_is_an_error) {
  auto const failing = [](int error) {
    return detail::make_engine(EngineKind::automatic, {}, "",
                               [error](Request const&, std::int64_t) { return -error; })
        ->description();
  };
  EXPECT_TRUE(failing(EINVAL).starts_with(
      "8 threads (io_uring refused: its self-test failed: cannot write"));
  EXPECT_THROW(failing(ENOSPC), Error);
}

TEST(ChooseEngineTest, a_missing_probe_directory_is_an_error_that_names_it) {
  try {
    make_engine(EngineKind::automatic, {}, "/no/such/directory");
    FAIL() << "no error";
  } catch (Error const& error) {
    EXPECT_NE(error.problem().find("/no/such/directory"), std::string::npos) << error.what();
    EXPECT_NE(error.problem().find("ENOENT"), std::string::npos) << error.what();
  }
}

TEST(ChooseEngineTest, impossible_options_are_refused) {
  for (EngineOptions const& options : {EngineOptions{0, 4096, {}}, EngineOptions{5000, 4096, {}},
                                       EngineOptions{8, 0, {}}, EngineOptions{8, 2u << 30, {}}}) {
    try {
      make_engine(EngineKind::automatic, options, "");
      FAIL() << options.depth << " " << options.block_bytes;
    } catch (Error const& error) {
      EXPECT_EQ(error.fault(), Fault::usage);
    }
  }
}

TEST(ChooseEngineTest, ring_set_up_halves_the_depth_while_memory_lacks) {
  std::vector<std::uint32_t> tried;
  auto const accepted = detail::halve_on_no_memory(100, [&](std::uint32_t depth) {
    tried.push_back(depth);
    return depth > 20 ? ENOMEM : 0;
  });
  EXPECT_EQ(accepted.depth, 12u);
  EXPECT_EQ(tried, (std::vector<std::uint32_t>{100, 50, 25, 12}));
  auto const never = detail::halve_on_no_memory(8, [](std::uint32_t) { return ENOMEM; });
  EXPECT_EQ(never.depth, 0u);
  EXPECT_EQ(never.error, ENOMEM);
  int calls = 0;
  auto const refused = detail::halve_on_no_memory(8, [&](std::uint32_t) { return ++calls, EPERM; });
  EXPECT_EQ(refused.error, EPERM);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace spillway::io
