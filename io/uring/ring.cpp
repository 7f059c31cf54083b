#include "io/uring/ring.hpp"

#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "lib/core/error.hpp"

namespace spillway::io::detail {

namespace {

constexpr std::uint64_t wake_up_tag = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t registered_piece_bytes_max = 1u << 30;  // the kernel's limit for one buffer
constexpr std::size_t registered_pieces_max = 1024;             // the limit of kernels before 5.13

std::vector<iovec> pieces_of(std::span<std::span<std::byte> const> buffers) {
  std::vector<iovec> pieces;
  for (auto rest : buffers) {
    while (!rest.empty()) {
      auto const piece =
          rest.first(std::min<std::uint64_t>(rest.size(), registered_piece_bytes_max));
      pieces.push_back({piece.data(), piece.size()});
      rest = rest.subspan(piece.size());
    }
  }
  return pieces;
}

}  // namespace

AcceptedDepth halve_on_no_memory(std::uint32_t depth,
                                 std::function<int(std::uint32_t)> const& open) {
  int error = ENOMEM;
  for (; depth > 0 && error == ENOMEM; depth /= 2) {
    error = open(depth);
    if (error == 0) return {depth, 0};
  }
  return {0, error};
}

struct Ring::Native {
  io_uring ring{};
  bool open = false;
  ~Native() {
    if (open) io_uring_queue_exit(&ring);
  }
};

Ring::Opened Ring::open(std::uint32_t depth) {
  auto native = std::make_unique<Native>();
  // One entry more for the wake-up. No set-up flags: at requests of a mebibyte they gain nothing
  // and each needs a newer kernel.
  AcceptedDepth const accepted = halve_on_no_memory(depth, [&](std::uint32_t entries) {
    return -io_uring_queue_init(entries + 1, &native->ring, 0);
  });
  if (accepted.depth == 0) return {nullptr, accepted.error};
  native->open = true;
  return {std::unique_ptr<Ring>(new Ring(std::move(native), accepted.depth)), 0};
}

Ring::Ring(std::unique_ptr<Native> native, std::uint32_t depth)
    : native_(std::move(native)),
      depth_(depth),
      wake_up_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!wake_up_)
    fail(Fault::io, "cannot make an eventfd (" + errno_text(errno) + "). Raise ulimit -n?");
  results_.reserve(depth + 1);
  prepare_wake_up();
}

Ring::~Ring() { unregister_buffers(); }  // else they would stay locked until some time after

void Ring::unregister_buffers() noexcept {
  if (registered_.empty()) return;
  registered_.clear();
  static_cast<void>(
      io_uring_unregister_buffers(&native_->ring));  // it can only say that there are none
}

Registration Ring::register_buffers(std::span<std::span<std::byte> const> buffers) {
  Registration outcome;
  auto const pieces = pieces_of(buffers);
  for (auto const& piece : pieces) outcome.wanted_bytes += piece.iov_len;
  std::size_t count = std::min(pieces.size(), registered_pieces_max);
  for (; count > 0; count /= 2) {
    int const code =
        io_uring_register_buffers(&native_->ring, pieces.data(), static_cast<unsigned>(count));
    if (code == 0) break;
    outcome.error = -code;
  }
  for (std::size_t index = 0; index < count; ++index) {
    auto const* begin = static_cast<std::byte const*>(pieces[index].iov_base);
    registered_.push_back({begin, begin + pieces[index].iov_len, static_cast<int>(index)});
    outcome.registered_bytes += pieces[index].iov_len;
  }
  std::sort(registered_.begin(), registered_.end(),
            [](auto const& left, auto const& right) { return left.begin < right.begin; });
  return outcome;
}

int Ring::registered_index(std::byte const* data, std::uint64_t bytes) const {
  auto const after =
      std::upper_bound(registered_.begin(), registered_.end(), data,
                       [](auto const* at, auto const& piece) { return at < piece.begin; });
  if (after == registered_.begin()) return -1;
  Registered const& piece = *std::prev(after);
  return data + bytes <= piece.end ? piece.index : -1;
}

void Ring::prepare(Request const& request) {
  io_uring_sqe* const entry = io_uring_get_sqe(&native_->ring);
  expect(entry != nullptr, "no more requests are in flight than the ring has entries");
  int const index = registered_index(request.data, request.length);
  int const fd = request.transfer->fd;
  bool const is_read = request.transfer->direction == Direction::read;
  if (index >= 0 && is_read)
    io_uring_prep_read_fixed(entry, fd, request.data, request.length, request.offset, index);
  else if (index >= 0)
    io_uring_prep_write_fixed(entry, fd, request.data, request.length, request.offset, index);
  else if (is_read)
    io_uring_prep_read(entry, fd, request.data, request.length, request.offset);
  else
    io_uring_prep_write(entry, fd, request.data, request.length, request.offset);
  io_uring_sqe_set_data64(entry, request.slot);
}

void Ring::prepare_wake_up() {
  io_uring_sqe* const entry = io_uring_get_sqe(&native_->ring);
  expect(entry != nullptr, "the ring has an entry for its wake-up");
  // A poll, not a read: no memory of ours is left in the kernel's hands when the ring closes.
  io_uring_prep_poll_add(entry, wake_up_.get(), POLLIN);
  io_uring_sqe_set_data64(entry, wake_up_tag);
}

int Ring::submit_and_wait() {
  int const code = io_uring_submit_and_wait(&native_->ring, 1);
  return code < 0 ? -code : 0;
}

std::span<Ring::Result const> Ring::reap() {
  results_.clear();
  bool woken = false;
  io_uring_cqe* entry = nullptr;
  while (io_uring_peek_cqe(&native_->ring, &entry) == 0 && entry != nullptr) {
    std::uint64_t const tag = io_uring_cqe_get_data64(entry);
    if (tag == wake_up_tag)
      woken = true;
    else
      results_.push_back({static_cast<std::uint32_t>(tag), entry->res});
    io_uring_cqe_seen(&native_->ring, entry);
  }
  if (woken) {
    eventfd_t count = 0;
    static_cast<void>(::eventfd_read(wake_up_.get(), &count));  // EAGAIN: it was empty, as wanted
    prepare_wake_up();
  }
  return results_;
}

void Ring::wake() noexcept {
  static_cast<void>(::eventfd_write(wake_up_.get(), 1));  // EAGAIN: so full that it wakes anyway
}

}  // namespace spillway::io::detail
