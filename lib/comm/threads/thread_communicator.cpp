// Ranks that are threads of one process: they read each other's arrays between two barriers.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>

#include <fmt/core.h>
#include "lib/comm/communicator.hpp"
#include "lib/comm/rank_order_sum.hpp"
#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::comm {
namespace {

/// What a rank offers to the others during one collective.
struct Offer {
  char const* collective = "";
  void const* data = nullptr;
  std::size_t bytes = 0;
};

/// The place where the ranks meet. Once a rank has left, nobody can meet any more.
class Meeting {
 public:
  explicit Meeting(int ranks) : offers_(static_cast<std::size_t>(ranks)) {}

  int ranks() const { return static_cast<int>(offers_.size()); }
  /// Another rank's offer; valid between two meets.
  Offer const& offer(int rank) const { return offers_[static_cast<std::size_t>(rank)]; }
  void set_offer(int rank, Offer offer) { offers_[static_cast<std::size_t>(rank)] = offer; }

  void meet(int rank) {
    std::unique_lock lock(mutex_);
    if (left_ >= 0) fail_for(rank);
    if (++arrived_ == ranks()) {
      arrived_ = 0;
      ++round_;
      changed_.notify_all();
      return;
    }
    std::uint64_t const round = round_;
    changed_.wait(lock, [&] { return round_ != round || left_ >= 0; });
    if (round_ == round) fail_for(rank);
  }

  void leave(int rank) {
    std::lock_guard lock(mutex_);
    if (left_ < 0) left_ = rank;
    changed_.notify_all();
  }

 private:
  [[noreturn]] void fail_for(int rank) const {
    fail(Fault::peer, fmt::format("rank {} waits in vain (rank {} has left the run)", rank, left_));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Offer> offers_;
  int arrived_ = 0;
  std::uint64_t round_ = 0;
  int left_ = -1;
};

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(int rank, std::shared_ptr<Meeting> meeting)
      : rank_(rank), meeting_(std::move(meeting)) {}
  ~ThreadCommunicator() override { meeting_->leave(rank_); }

  Rank rank() const override { return Rank{rank_}; }
  int size() const override { return meeting_->ranks(); }
  int local_size() const override { return size(); }
  int local_rank() const override { return rank_; }

  void barrier() override {
    offer("barrier", nullptr, 0);
    meeting_->meet(rank_);
  }

  void broadcast(std::span<std::byte> data, Rank root) override {
    offer("broadcast", data.data(), data.size());
    check_equal_sizes();
    if (rank_ == root.get()) {
      sent_ += others() * data.size();
    } else if (!data.empty()) {
      std::memcpy(data.data(), meeting_->offer(root.get()).data, data.size());
    }
    meeting_->meet(rank_);
  }

  void all_gather(std::span<std::byte> whole, device::Stream& stream) override {
    stream.synchronize();
    offer("all_gather", whole.data(), whole.size());
    check_equal_sizes();
    std::size_t const part = div_exact(whole.size(), static_cast<std::size_t>(size()));
    for (int peer = 0; part != 0 && peer < size(); ++peer) {
      std::size_t const offset = static_cast<std::size_t>(peer) * part;
      if (peer != rank_) std::memcpy(whole.data() + offset, bytes_of(peer) + offset, part);
    }
    sent_ += others() * part;
    meeting_->meet(rank_);
  }

  void reduce_scatter(std::span<float> whole, std::span<float> own,
                      device::Stream& stream) override {
    stream.synchronize();
    offer("reduce_scatter", whole.data(), whole.size_bytes());
    check_equal_sizes();
    expect(whole.size() == own.size() * static_cast<std::size_t>(size()),
           "the whole has equal parts");
    std::vector<float const*> terms;
    for (int peer = 0; peer < size(); ++peer) {
      terms.push_back(static_cast<float const*>(meeting_->offer(peer).data) +
                      static_cast<std::size_t>(rank_) * own.size());
    }
    sum_in_rank_order(terms, own);
    sent_ += others() * own.size_bytes();
    meeting_->meet(rank_);
  }

  std::vector<double> all_gather_values(std::span<double const> mine) override {
    offer("all_gather_values", mine.data(), mine.size_bytes());
    check_equal_sizes();
    std::vector<double> result;
    for (int peer = 0; peer < size(); ++peer) {
      auto const* values = static_cast<double const*>(meeting_->offer(peer).data);
      result.insert(result.end(), values, values + mine.size());
    }
    sent_ += others() * mine.size_bytes();
    meeting_->meet(rank_);
    return result;
  }

  std::vector<std::vector<std::byte>> gather(std::span<std::byte const> mine, Rank root) override {
    offer("gather", mine.data(), mine.size());
    std::vector<std::vector<std::byte>> result;
    if (rank_ == root.get()) {
      for (int peer = 0; peer < size(); ++peer)
        result.emplace_back(bytes_of(peer), bytes_of(peer) + meeting_->offer(peer).bytes);
    } else {
      sent_ += mine.size();
    }
    meeting_->meet(rank_);
    return result;
  }

  std::uint64_t sent_bytes() const override { return sent_; }

  [[noreturn]] void abort(int exit_code) override {
    meeting_->leave(rank_);
    fail(Fault::peer, fmt::format("rank {} aborts the run (exit code {})", rank_, exit_code));
  }

 private:
  /// Shows this rank's array to the others; at return theirs can be read until the next meet.
  void offer(char const* collective, void const* data, std::size_t bytes) {
    meeting_->set_offer(rank_, {collective, data, bytes});
    meeting_->meet(rank_);
    for (int peer = 0; peer < size(); ++peer) {
      char const* theirs = meeting_->offer(peer).collective;
      if (std::strcmp(theirs, collective) != 0) {
        fail(Fault::internal,
             fmt::format("rank {} is in {} (rank {} is in {}). Do all ranks call the "
                         "same collectives in the same order?",
                         rank_, collective, peer, theirs));
      }
    }
  }

  void check_equal_sizes() {
    for (int peer = 0; peer < size(); ++peer) {
      Offer const& mine = meeting_->offer(rank_);
      Offer const& theirs = meeting_->offer(peer);
      if (mine.bytes == theirs.bytes) continue;
      fail(Fault::internal, fmt::format("rank {} has {} bytes in {} (rank {} has {})", rank_,
                                        mine.bytes, mine.collective, peer, theirs.bytes));
    }
  }

  std::byte const* bytes_of(int peer) const {
    return static_cast<std::byte const*>(meeting_->offer(peer).data);
  }
  std::uint64_t others() const { return static_cast<std::uint64_t>(size() - 1); }

  int rank_;
  std::shared_ptr<Meeting> meeting_;  // shared: it lives as long as the last of the ranks
  std::uint64_t sent_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int ranks) {
  auto const meeting = std::make_shared<Meeting>(ranks);
  std::vector<std::unique_ptr<Communicator>> result;
  for (int rank = 0; rank < ranks; ++rank)
    result.push_back(std::make_unique<ThreadCommunicator>(rank, meeting));
  return result;
}

}  // namespace spillway::comm
