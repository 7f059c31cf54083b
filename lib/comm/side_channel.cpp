// Sockets of the watchdog.
#include "lib/comm/side_channel.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <thread>

#include "lib/core/error.hpp"

namespace spillway::comm::detail {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

static_assert(sizeof(Address::bytes) >= sizeof(sockaddr_storage));

[[noreturn]] void fail_with_errno(std::string_view what) {
  fail(Fault::peer, fmt::format("{} for the watchdog ({})", what, errno_text(errno)));
}

Address make_address(void const* socket_address, std::size_t length) {
  Address address{};
  std::memcpy(address.bytes.data(), socket_address, length);
  address.length = static_cast<std::uint32_t>(length);
  return address;
}

sockaddr const* as_sockaddr(Address const& address) {
  return reinterpret_cast<sockaddr const*>(address.bytes.data());
}

/// Listens on every interface, for IPv6 and IPv4 where the machine has both.
Fd listen_on_network() {
  Fd six(::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (six) {
    int const off = 0;
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_addr = in6addr_any;
    if (::setsockopt(six.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0 &&
        ::bind(six.get(), reinterpret_cast<sockaddr const*>(&any), sizeof any) == 0) {
      return six;
    }
  }
  Fd four(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!four) fail_with_errno("cannot open a TCP socket");
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  if (::bind(four.get(), reinterpret_cast<sockaddr const*>(&any), sizeof any) != 0)
    fail_with_errno("cannot bind a TCP socket");
  return four;
}

Fd listen_on_host() {
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) fail_with_errno("cannot open a local socket");
  // An address of the family alone makes the kernel choose a free abstract name.
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (::bind(socket.get(), reinterpret_cast<sockaddr const*>(&name), sizeof(sa_family_t)) != 0)
    fail_with_errno("cannot bind a local socket");
  return socket;
}

/// Waits until `descriptor` is ready for `events` or `end` has come.
bool ready(int descriptor, short events, Clock::time_point end) {
  for (;;) {
    auto const left = std::chrono::ceil<milliseconds>(end - Clock::now()).count();
    pollfd entry{descriptor, events, 0};
    int const count = ::poll(&entry, 1, static_cast<int>(std::max<long>(left, 0)));
    if (count > 0) return true;
    if (count == 0 || errno != EINTR) return false;
  }
}

std::optional<Link> open_link(Address const& address, Clock::time_point end) {
  int const family = as_sockaddr(address)->sa_family;
  Fd socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return std::nullopt;
  while (::connect(socket.get(), as_sockaddr(address), address.length) != 0) {
    if (errno == EINPROGRESS) {
      int code = 0;
      socklen_t length = sizeof code;
      if (!ready(socket.get(), POLLOUT, end)) return std::nullopt;
      if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &code, &length) != 0 || code != 0)
        return std::nullopt;
      break;
    }
    bool const again = errno == EAGAIN || errno == EINTR;  // EAGAIN: the listener's queue is full
    if (!again || Clock::now() >= end) return std::nullopt;
    std::this_thread::sleep_for(milliseconds(5));
  }
  if (family != AF_UNIX) {
    int const on = 1;  // only a delay is lost where this fails
    static_cast<void>(::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
  }
  return Link(std::move(socket));
}

}  // namespace

Token random_token() {
  std::random_device random;
  Token token;
  for (std::byte& byte : token) byte = static_cast<std::byte>(random() & 0xff);
  return token;
}

void put_text(std::string_view text, std::span<char> field) {
  std::size_t const size = std::min(text.size(), field.size() - 1);
  std::copy_n(text.begin(), size, field.begin());
  std::fill(field.begin() + static_cast<std::ptrdiff_t>(size), field.end(), '\0');
}

std::string get_text(std::span<char const> field) {
  return std::string(field.begin(), std::find(field.begin(), field.end(), '\0'));
}

void Link::send(Frame const& frame) {
  flush();
  if (closed_ || !outgoing_.empty()) return;
  outgoing_.resize(sizeof frame);
  std::memcpy(outgoing_.data(), &frame, sizeof frame);
  flush();
}

void Link::flush() {
  while (!closed_ && !outgoing_.empty()) {
    ssize_t const sent =
        ::send(socket_.get(), outgoing_.data(), outgoing_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      outgoing_.erase(outgoing_.begin(), outgoing_.begin() + sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      // The other side is gone. What it has sent before may still be read: receive() finds the end.
      outgoing_.clear();
    }
  }
}

std::optional<Frame> Link::receive() {
  while (!closed_) {
    ssize_t const got = ::recv(socket_.get(), incoming_.data() + arrived_,
                               incoming_.size() - arrived_, MSG_DONTWAIT);
    if (got > 0) {
      arrived_ += static_cast<std::size_t>(got);
      if (arrived_ < incoming_.size()) continue;
      arrived_ = 0;
      Frame frame;
      std::memcpy(&frame, incoming_.data(), sizeof frame);
      return frame;
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
    closed_ = true;
  }
  return std::nullopt;
}

void Link::finish_sending() { static_cast<void>(::shutdown(socket_.get(), SHUT_WR)); }

Listener::Listener(Reach reach)
    : socket_(reach == Reach::host ? listen_on_host() : listen_on_network()), reach_(reach) {
  if (::listen(socket_.get(), SOMAXCONN) != 0) fail_with_errno("cannot listen on a socket");
}

std::vector<Address> Listener::addresses() const {
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0)
    fail_with_errno("cannot tell the address of a socket");
  if (reach_ == Reach::host) return {make_address(&own, length)};

  bool const has_six = own.ss_family == AF_INET6;
  in_port_t const port = has_six ? reinterpret_cast<sockaddr_in6 const*>(&own)->sin6_port
                                 : reinterpret_cast<sockaddr_in const*>(&own)->sin_port;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) fail_with_errno("cannot list the network interfaces");
  std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> const owner(list, &::freeifaddrs);
  std::vector<Address> result;
  std::vector<Address> loopback;  // last: elsewhere it means another machine
  for (ifaddrs const* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    auto& target = (entry->ifa_flags & IFF_LOOPBACK) != 0 ? loopback : result;
    if (entry->ifa_addr->sa_family == AF_INET) {
      auto address = *reinterpret_cast<sockaddr_in const*>(entry->ifa_addr);
      address.sin_port = port;
      target.push_back(make_address(&address, sizeof address));
    } else if (entry->ifa_addr->sa_family == AF_INET6 && has_six) {
      auto address = *reinterpret_cast<sockaddr_in6 const*>(entry->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr)) continue;
      address.sin6_port = port;
      target.push_back(make_address(&address, sizeof address));
    }
  }
  result.insert(result.end(), loopback.begin(), loopback.end());
  return result;
}

std::optional<Link> Listener::accept() {
  Fd socket(::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket) return std::nullopt;
  return Link(std::move(socket));
}

Welcome connect(std::vector<Address> const& addresses, Frame const& hello, milliseconds patience) {
  auto const start = Clock::now();
  // Each address gets its share, so that one that swallows packets leaves time for the others.
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    auto const end =
        start + patience * static_cast<long>(i + 1) / static_cast<long>(addresses.size());
    std::optional<Link> link = open_link(addresses[i], end);
    if (!link) continue;
    link->send(hello);
    while (!link->closed() && ready(link->descriptor(), POLLIN, end)) {
      std::optional<Frame> const frame = link->receive();
      if (!frame) continue;
      if (frame->kind == FrameKind::welcome && frame->token == hello.token)
        return {std::move(*link), *frame};
      break;
    }
  }
  fail(Fault::peer,
       fmt::format("rank {} cannot reach the watchdog of rank 0 ({} addresses tried for {:.1f} s). "
                   "Does a firewall block TCP between the nodes?",
                   hello.rank, addresses.size(),
                   std::chrono::duration<double>(Clock::now() - start).count()));
}

std::string host_name() {
  std::array<char, 65> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "an unnamed host";
  return name.data();
}

}  // namespace spillway::comm::detail
