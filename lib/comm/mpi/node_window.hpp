// Bulk exchange between the ranks of one host through a shared memory segment of bounded size.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lib/core/unique_handle.hpp"

namespace spillway::comm::detail {

/// A mapped POSIX shared memory segment. The name is needed only until all ranks have opened it.
class SharedSegment {
 public:
  enum class Open { create, existing };
  /// Throws Fault::no_room or Fault::io.
  SharedSegment(std::string const& name, std::size_t bytes, Open how);
  ~SharedSegment();
  SharedSegment(SharedSegment const&) = delete;
  SharedSegment& operator=(SharedSegment const&) = delete;

  std::byte* data() const { return data_; }
  static void remove_name(std::string const& name);

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_;
};

/// Every rank owns an outbox of four slots and counts the blocks that it has published in them over
/// the life of the window. Nobody needs to say that a slot is free: a rank publishes block n only
/// after it has read everybody's block n-2, which everybody published only after reading all blocks
/// n-4.
class NodeWindow {
 public:
  /// Whether so many bytes are enough for so many ranks.
  static bool fits(int ranks, std::size_t bytes);

  /// `segment` is zero at the start and of `bytes` bytes.
  NodeWindow(std::unique_ptr<SharedSegment> segment, std::size_t bytes, int ranks, int rank);

  void all_gather(std::span<std::byte> whole);
  void reduce_scatter(std::span<float> whole, std::span<float> own);

 private:
  struct alignas(64) Counter {
    std::atomic<std::uint64_t> published;
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "shared between processes");

  std::byte* slot(int rank, std::uint64_t sequence) const;
  void wait_until_published(int peer, std::uint64_t sequence);
  /// Runs publish(block, slot) one block ahead of consume(block, sequence).
  template <class Publish, class Consume>
  void pipeline(std::uint64_t blocks, Publish const& publish, Consume const& consume);

  std::unique_ptr<SharedSegment> segment_;
  int ranks_;
  int rank_;
  std::size_t slot_bytes_;
  Counter* counters_;
  std::byte* outboxes_;
  std::uint64_t sequence_ = 0;  // blocks that have passed so far, the same on all ranks
  std::vector<float const*> terms_;
};

}  // namespace spillway::comm::detail
