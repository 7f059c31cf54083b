// How make_engine() chooses, with its parts open to tests.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "io/engine.hpp"
#include "io/uring/dispatcher.hpp"
#include "io/uring/ring.hpp"

namespace spillway::io::detail {

/// Why io_uring_setup failed: sysctl, seccomp filter, old kernel or something else.
/// `sysctl_disabled` is the value of kernel.io_uring_disabled, 0 where there is none.
std::string refusal(int error, int sysctl_disabled);

/// "fixed buffers", or how many of them and why not all.
std::string describe_buffers(Registration const& registration, std::uint64_t lock_limit_bytes);

struct RingChoice {
  std::unique_ptr<Engine> engine;  // null: refused
  std::string refusal;
};
/// The ring with its self-test. `hook` sees the results of the self-test too.
RingChoice make_uring_engine(EngineOptions const& options, std::string const& probe_directory,
                             ResultHook const& hook);

/// As make_engine(), with a hook on the results of either engine.
std::unique_ptr<Engine> make_engine(EngineKind kind, EngineOptions const& options,
                                    std::string const& probe_directory, ResultHook const& hook);

}  // namespace spillway::io::detail
