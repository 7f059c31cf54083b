// An ordered queue of work on a processor. On the CPU work runs at once, on the caller and the
// team.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace spillway::device {

/// Passed last to every operation; enqueueing returns void. A CPU stream is complete at return.
class Stream {
 public:
  virtual ~Stream() = default;

  /// Scratch of this stream: contents last for one operation only. Its size is fixed at the start.
  virtual std::span<std::byte> scratch() = 0;
  /// Threads that one operation uses; results depend on nothing else.
  virtual int threads() const = 0;
  /// What the operations keep from call to call, such as compiled primitives; null until they put
  /// it there. Shared and untyped, because a device knows nothing of the operations.
  virtual std::shared_ptr<void>& attachment() = 0;
  /// Blocks the caller until all enqueued work is done.
  virtual void synchronize() = 0;
};

}  // namespace spillway::device
