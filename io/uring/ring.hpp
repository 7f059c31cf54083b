// The only place that speaks to liburing: one submission and completion queue with its wake-up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "io/uring/dispatcher.hpp"
#include "lib/core/unique_handle.hpp"

namespace spillway::io::detail {

/// Calls `open` (0 or an errno) with `depth` and, as long as it answers ENOMEM, with half of it.
/// Returns the depth that was accepted, or 0 and the errno.
struct AcceptedDepth {
  std::uint32_t depth = 0;
  int error = 0;
};
AcceptedDepth halve_on_no_memory(std::uint32_t depth,
                                 std::function<int(std::uint32_t)> const& open);

/// How much of the callers' buffers the kernel has locked for us.
struct Registration {
  std::uint64_t wanted_bytes = 0;
  std::uint64_t registered_bytes = 0;
  int error = 0;  // why it is not all
};

/// For one thread at a time, but for wake(). Requests in flight must not exceed depth().
class Ring {
 public:
  struct Opened {
    std::unique_ptr<Ring> ring;  // null: refused
    int error = 0;
  };
  static Opened open(std::uint32_t depth);
  ~Ring();
  Ring(Ring const&) = delete;
  Ring& operator=(Ring const&) = delete;

  std::uint32_t depth() const { return depth_; }
  /// Registers the first buffers, as many as the kernel takes.
  Registration register_buffers(std::span<std::span<std::byte> const> buffers);
  void unregister_buffers() noexcept;

  void prepare(Request const& request);
  /// Hands what was prepared to the kernel and waits for at least one completion or wake(). 0 or an
  /// errno.
  int submit_and_wait();
  struct Result {
    std::uint32_t slot = 0;
    std::int32_t result = 0;
  };
  /// Completions that are there, at most depth(); valid until the next call.
  std::span<Result const> reap();
  /// From any thread: makes submit_and_wait() return.
  void wake() noexcept;

 private:
  struct Native;
  explicit Ring(std::unique_ptr<Native> native, std::uint32_t depth);
  void prepare_wake_up();
  int registered_index(std::byte const* data, std::uint64_t bytes) const;

  std::unique_ptr<Native> native_;
  std::uint32_t depth_;
  Fd wake_up_;
  std::vector<Result> results_;
  struct Registered {
    std::byte const* begin;
    std::byte const* end;
    int index;
  };
  std::vector<Registered> registered_;  // ascending
};

}  // namespace spillway::io::detail
