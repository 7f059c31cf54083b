// Small frames over sockets between the ranks, beside MPI: they move when MPI does not.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/core/strong.hpp"
#include "lib/core/unique_handle.hpp"

namespace spillway::comm::detail {

/// Random for each run: what arrives without it does not belong to this run.
using Token = std::array<std::byte, 16>;
Token random_token();

enum class FrameKind : std::uint32_t { hello = 1, welcome, beat, goodbye };

/// As it goes over the wire; all ranks run the same program on the same architecture.
struct Frame {
  Token token;
  FrameKind kind;
  std::int32_t rank;
  double phase_seconds;
  double request_seconds;
  std::array<char, 200> phase;
  std::array<char, 200> request;
  std::array<char, 64> host;
};

/// Copies as much of `text` as fits with a closing zero.
void put_text(std::string_view text, std::span<char> field);
std::string get_text(std::span<char const> field);

/// One non-blocking connection.
class Link {
 public:
  explicit Link(Fd socket) : socket_(std::move(socket)) {}

  /// Drops the frame if an earlier one is still on its way: the reader does not read.
  void send(Frame const& frame);
  /// The next whole frame, if one has arrived. Sets closed() at the end of the connection.
  std::optional<Frame> receive();
  /// No more frames will be sent; the other side sees the end.
  void finish_sending();

  bool closed() const { return closed_; }
  int descriptor() const { return socket_.get(); }

 private:
  void flush();

  Fd socket_;
  std::vector<std::byte> outgoing_;
  std::array<std::byte, sizeof(Frame)> incoming_{};
  std::size_t arrived_ = 0;
  bool closed_ = false;
};

/// Where a listener can be reached: opaque socket addresses, to be tried in turn.
struct Address {
  std::array<std::byte, 128> bytes;
  std::uint32_t length;
};

enum class Reach {
  host,     // only processes of this host, by a socket without a name in any file system
  network,  // any host, by TCP on a free port
};

class Listener {
 public:
  /// Throws Fault::peer.
  explicit Listener(Reach reach);
  std::vector<Address> addresses() const;
  std::optional<Link> accept();
  int descriptor() const { return socket_.get(); }

 private:
  Fd socket_;
  Reach reach_;
};

struct Welcome {
  Link link;
  Frame frame;
};

/// Tries the addresses until one answers `hello` with a welcome that bears its token. Throws
/// Fault::peer after `patience`.
Welcome connect(std::vector<Address> const& addresses, Frame const& hello,
                std::chrono::milliseconds patience);

std::string host_name();

}  // namespace spillway::comm::detail
