// Collectives over MPI_COMM_WORLD; bulk data of ranks on one host goes through a NodeWindow.
#include <fmt/core.h>
#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "lib/comm/communicator.hpp"
#include "lib/comm/mpi/message.hpp"
#include "lib/comm/mpi/mpi_check.hpp"
#include "lib/comm/mpi/node_window.hpp"
#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::comm {
namespace {

using detail::check;
using detail::NodeWindow;
using detail::SharedSegment;

struct Place {
  int index = 0;
  int count = 1;
};

Place place_on_host() {
  MPI_Comm host = MPI_COMM_NULL;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
        "MPI_Comm_split_type");
  Place place;
  check(MPI_Comm_rank(host, &place.index), "MPI_Comm_rank");
  check(MPI_Comm_size(host, &place.count), "MPI_Comm_size");
  check(MPI_Comm_free(&host), "MPI_Comm_free");
  return place;
}

std::string random_segment_name() {
  std::random_device random;
  return fmt::format("/spillway-{}-{:08x}{:08x}", ::getpid(), random(), random());
}

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(MpiOptions const& options) {
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
    host_ = place_on_host();
    if (host_.count == size_ && options.node_memory == NodeMemory::use &&
        NodeWindow::fits(size_, options.staging_bytes)) {
      open_window(options.staging_bytes);
    }
    if (!window_ && size_ > 1)
      messages_ = std::make_unique<detail::MessageExchange>(rank_, size_, options.staging_bytes);
  }

  Rank rank() const override { return Rank{rank_}; }
  int size() const override { return size_; }
  int local_size() const override { return host_.count; }
  int local_rank() const override { return host_.index; }

  void barrier() override {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Ibarrier(MPI_COMM_WORLD, &request), "MPI_Ibarrier");
    detail::wait(request);
  }

  void broadcast(std::span<std::byte> data, Rank root) override {
    detail::broadcast(data, root.get());
    if (rank_ == root.get()) sent_ += others() * data.size();
  }

  void all_gather(std::span<std::byte> whole, device::Stream& stream) override {
    std::size_t const part = div_exact(whole.size(), static_cast<std::size_t>(size_));
    stream.synchronize();
    if (window_) {
      window_->all_gather(whole);
    } else if (messages_) {
      messages_->all_gather(whole);
    }
    sent_ += others() * part;
  }

  void reduce_scatter(std::span<float> whole, std::span<float> own,
                      device::Stream& stream) override {
    expect(whole.size() == own.size() * static_cast<std::size_t>(size_),
           "the whole has equal parts");
    stream.synchronize();
    if (window_) {
      window_->reduce_scatter(whole, own);
    } else if (messages_) {
      messages_->reduce_scatter(whole, own);
    } else if (own.data() != whole.data() && !own.empty()) {
      std::memcpy(own.data(), whole.data(), own.size_bytes());
    }
    sent_ += others() * own.size_bytes();
  }

  std::vector<double> all_gather_values(std::span<double const> mine) override {
    std::vector<double> result(mine.size() * static_cast<std::size_t>(size_));
    detail::all_gather_small(std::as_bytes(mine), result.data());
    sent_ += others() * mine.size_bytes();
    return result;
  }

  std::vector<std::vector<std::byte>> gather(std::span<std::byte const> mine, Rank root) override {
    if (rank_ != root.get()) sent_ += mine.size();
    return detail::gather(mine, rank_, size_, root.get());
  }

  std::uint64_t sent_bytes() const override { return sent_; }

  [[noreturn]] void abort(int exit_code) override {
    using namespace std::chrono_literals;
    if (!aborting_.exchange(true)) {
      // MPI_Abort can hang when a peer is stopped or its daemon is gone; the process ends
      // regardless.
      std::thread([exit_code] { MPI_Abort(MPI_COMM_WORLD, exit_code); }).detach();
    }
    std::this_thread::sleep_for(3s);
    ::_exit(exit_code);
  }

 private:
  /// All ranks get the window or none: what one of them lacks, the others do without.
  void open_window(std::size_t bytes) {
    std::string name = random_segment_name();
    name.resize(64);
    std::unique_ptr<SharedSegment> segment;
    if (rank_ == 0) segment = open_segment(name, bytes, SharedSegment::Open::create);
    detail::broadcast(std::as_writable_bytes(std::span(name)), 0);
    if (rank_ != 0) segment = open_segment(name, bytes, SharedSegment::Open::existing);
    bool const all_have_it = detail::all_agree(segment != nullptr);
    if (rank_ == 0 && segment) SharedSegment::remove_name(name.c_str());
    if (all_have_it)
      window_ = std::make_unique<NodeWindow>(std::move(segment), bytes, size_, rank_);
  }

  static std::unique_ptr<SharedSegment> open_segment(std::string const& name, std::size_t bytes,
                                                     SharedSegment::Open how) {
    try {
      return std::make_unique<SharedSegment>(name.c_str(), bytes, how);
    } catch (Error const&) {
      return nullptr;  // no reason to stop: messages do the same, slower
    }
  }

  std::uint64_t others() const { return static_cast<std::uint64_t>(size_ - 1); }

  int rank_ = 0;
  int size_ = 1;
  Place host_;
  std::unique_ptr<NodeWindow> window_;
  std::unique_ptr<detail::MessageExchange> messages_;
  std::uint64_t sent_ = 0;
  std::atomic<bool> aborting_ = false;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(MpiOptions options) {
  return std::make_unique<MpiCommunicator>(options);
}

}  // namespace spillway::comm
