#include "io/uring/choose_engine.hpp"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "io/file.hpp"
#include "io/uring/scratch.hpp"
#include "io/uring/self_test.hpp"
#include "io/uring/thread_engine.hpp"
#include "io/uring/uring_engine.hpp"
#include "lib/core/bytes.hpp"
#include "lib/core/error.hpp"

namespace spillway::io {

namespace detail {

namespace {

constexpr std::uint32_t depth_max = 4096;
constexpr std::uint64_t block_bytes_max = 1u << 30;  // the kernel moves less than 2 GiB at once

void check_options(EngineOptions const& options) {
  if (options.depth == 0 || options.depth > depth_max)
    fail(Fault::usage,
         fmt::format("cannot keep {} requests in flight (not between 1 and {}). Try 32?",
                     options.depth, depth_max));
  if (options.block_bytes == 0 || options.block_bytes > block_bytes_max)
    fail(Fault::usage, fmt::format("cannot transfer in blocks of {} bytes (not between 1 and {}). "
                                   "Try 1 MiB?",
                                   options.block_bytes, block_bytes_max));
}

int sysctl_disabled() {
  std::ifstream file("/proc/sys/kernel/io_uring_disabled");
  int value = 0;
  return file >> value ? value : 0;
}

std::uint64_t lock_limit_bytes() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 ? limit.rlim_cur : 0;
}

/// What the ring can be trusted with, found out on a small file.
struct SelfTest {
  std::string refusal;        // not empty: no ring at all
  std::string fixed_refusal;  // not empty: no fixed buffers
};

SelfTest test_ring(std::shared_ptr<Ring> const& ring, std::string const& probe_directory,
                   ResultHook const& hook) {
  File const file = scratch_file(probe_directory);
  std::uint64_t const block = std::max<std::uint64_t>(4096, file.alignment());
  auto const memory = aligned_memory(self_test_blocks * block, block);
  std::span<std::byte> const blocks(memory.get(), self_test_blocks * block);
  auto const outcome_of_test = [&] {
    UringEngine engine(ring, block, "", hook);
    return self_test(engine, file, blocks);
  };

  SelfTest outcome{outcome_of_test(), ""};
  if (!outcome.refusal.empty()) return outcome;
  std::span<std::byte> const buffers[] = {blocks};
  // Where not even this little memory can be locked, the real buffers will be refused too.
  if (ring->register_buffers(buffers).registered_bytes == 0) return outcome;
  outcome.fixed_refusal = outcome_of_test();
  ring->unregister_buffers();
  return outcome;
}

}  // namespace

std::string refusal(int error, int sysctl_disabled) {
  if (error == ENOSYS)
    return "io_uring refused: the kernel is older than Linux 5.6 or built without it, ENOSYS";
  if (error == EPERM && sysctl_disabled != 0)
    return fmt::format("io_uring refused: sysctl kernel.io_uring_disabled is {}, EPERM",
                       sysctl_disabled);
  if (error == EPERM)
    return "io_uring refused: a seccomp filter forbids it, as in many containers, EPERM";
  if (error == ENOMEM)
    return fmt::format(
        "io_uring refused: no memory for a ring within the memory-lock limit (ulimit -l) of {}, "
        "ENOMEM",
        format_bytes(lock_limit_bytes()));
  return fmt::format("io_uring refused: {}", errno_text(error));
}

std::string describe_buffers(Registration const& registration, std::uint64_t lock_limit_bytes) {
  if (registration.wanted_bytes == 0) return "plain buffers";
  if (registration.registered_bytes == registration.wanted_bytes) return "fixed buffers";
  std::string const amount =
      registration.registered_bytes == 0
          ? fmt::format("plain buffers, as locking {}", format_bytes(registration.wanted_bytes))
          : fmt::format("fixed buffers for {}, as locking {}",
                        format_bytes(registration.registered_bytes),
                        format_bytes(registration.wanted_bytes));
  return fmt::format("{} was refused: {}, memory-lock limit (ulimit -l) {}", amount,
                     errno_text(registration.error), format_bytes(lock_limit_bytes));
}

RingChoice make_uring_engine(EngineOptions const& options, std::string const& probe_directory,
                             ResultHook const& hook) {
  auto opened = Ring::open(options.depth);
  if (!opened.ring) return {nullptr, refusal(opened.error, sysctl_disabled())};
  std::shared_ptr<Ring> const ring = std::move(opened.ring);
  SelfTest const test = test_ring(ring, probe_directory, hook);
  if (!test.refusal.empty()) return {nullptr, "io_uring refused: " + test.refusal};
  std::string const buffers =
      test.fixed_refusal.empty()
          ? describe_buffers(ring->register_buffers(options.buffers), lock_limit_bytes())
          : "plain buffers, as with fixed ones " + test.fixed_refusal;
  std::string text = fmt::format("io_uring (depth {}, {})", ring->depth(), buffers);
  return {std::make_unique<UringEngine>(ring, options.block_bytes, std::move(text), hook), ""};
}

std::unique_ptr<Engine> make_engine(EngineKind kind, EngineOptions const& options,
                                    std::string const& probe_directory, ResultHook const& hook) {
  check_options(options);
  if (kind == EngineKind::threads) return std::make_unique<ThreadEngine>(options, "", hook);
  RingChoice choice = make_uring_engine(options, probe_directory, hook);
  if (choice.engine) return std::move(choice.engine);
  if (kind == EngineKind::uring)
    fail(Fault::io,
         fmt::format("cannot use the io_uring engine ({}). Try engine=threads?", choice.refusal));
  return std::make_unique<ThreadEngine>(options, choice.refusal, hook);
}

}  // namespace detail

std::unique_ptr<Engine> make_engine(EngineKind kind, EngineOptions options,
                                    std::string const& probe_directory) {
  return detail::make_engine(kind, options, probe_directory, {});
}

}  // namespace spillway::io
