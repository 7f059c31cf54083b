// Sockets between ranks: frames arrive whole, strangers are not believed, ends are seen.
#include "lib/comm/side_channel.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>

#include "lib/core/error.hpp"

namespace spillway::comm::detail {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds patience{20'000};

Frame frame_with(FrameKind kind, Token token, std::string_view phase) {
  Frame frame{};
  frame.token = token;
  frame.kind = kind;
  frame.rank = 7;
  frame.phase_seconds = 1.5;
  put_text(phase, frame.phase);
  return frame;
}

/// Waits for the next frame or the end of the link.
std::optional<Frame> next(Link& link) {
  for (;;) {
    if (std::optional<Frame> frame = link.receive()) return frame;
    if (link.closed()) return std::nullopt;
    std::this_thread::sleep_for(milliseconds(1));
  }
}

Link next_link(Listener& listener) {
  for (;;) {
    if (std::optional<Link> link = listener.accept()) return std::move(*link);
    std::this_thread::sleep_for(milliseconds(1));
  }
}

struct Pair {
  Link one;
  Fd other;
};
Pair make_pair() {
  int sockets[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  return {Link(Fd(sockets[0])), Fd(sockets[1])};
}

class SideChannel : public testing::TestWithParam<Reach> {};

TEST_P(SideChannel, a_rank_is_welcomed_and_frames_go_both_ways) {
  Listener listener(GetParam());
  Token const token = random_token();
  std::thread host([&] {
    Link link = next_link(listener);
    auto const hello = next(link);
    ASSERT_TRUE(hello);
    EXPECT_EQ(hello->kind, FrameKind::hello);
    EXPECT_EQ(hello->rank, 7);
    link.send(frame_with(FrameKind::welcome, token, "loading"));
    auto const beat = next(link);
    ASSERT_TRUE(beat);
    EXPECT_EQ(get_text(beat->phase), "step 1");
    EXPECT_FALSE(next(link));
    EXPECT_TRUE(link.closed());
  });
  {
    auto [link, welcome] =
        connect(listener.addresses(), frame_with(FrameKind::hello, token, ""), patience);
    EXPECT_EQ(get_text(welcome.phase), "loading");
    EXPECT_EQ(welcome.phase_seconds, 1.5);
    link.send(frame_with(FrameKind::beat, token, "step 1"));
  }
  host.join();
}

TEST_P(SideChannel, a_host_with_another_token_is_not_believed) {
  Listener listener(GetParam());
  std::thread host([&] {
    for (std::size_t i = 0; i < listener.addresses().size(); ++i) {
      Link link = next_link(listener);
      if (next(link)) link.send(frame_with(FrameKind::welcome, Token{}, ""));
    }
  });
  EXPECT_THROW(
      connect(listener.addresses(), frame_with(FrameKind::hello, random_token(), ""), patience),
      Error);
  host.join();
}

INSTANTIATE_TEST_SUITE_P(Reach, SideChannel, testing::Values(Reach::host, Reach::network),
                         [](auto const& each) {
                           return each.param == Reach::host ? "host" : "network";
                         });

TEST(SideChannel, nobody_at_the_address_is_a_peer_error_that_tells_the_rank) {
  std::vector<Address> addresses;
  {
    Listener const gone(Reach::host);
    addresses = gone.addresses();
  }
  try {
    connect(addresses, frame_with(FrameKind::hello, {}, ""), milliseconds(50));
    FAIL() << "connected to nobody";
  } catch (Error const& error) {
    EXPECT_EQ(error.fault(), Fault::peer);
    EXPECT_NE(std::string(error.what()).find("rank 7"), std::string::npos) << error.what();
  }
}

TEST(SideChannel, an_address_that_does_not_answer_leaves_time_for_the_next) {
  Listener const silent(Reach::host);  // takes the connection, never speaks
  Listener speaking(Reach::host);
  Token const token = random_token();
  std::thread host([&] {
    Link link = next_link(speaking);
    if (next(link)) link.send(frame_with(FrameKind::welcome, token, "here"));
    next(link);
  });
  std::vector<Address> addresses = silent.addresses();
  addresses.push_back(speaking.addresses()[0]);
  auto const welcome =
      connect(addresses, frame_with(FrameKind::hello, token, ""), milliseconds(4000));
  EXPECT_EQ(get_text(welcome.frame.phase), "here");
  ::shutdown(welcome.link.descriptor(), SHUT_RDWR);
  host.join();
}

TEST(Link, puts_a_frame_together_from_single_bytes) {
  auto [link, other] = make_pair();
  Frame const sent = frame_with(FrameKind::beat, random_token(), "piecemeal");
  auto const* bytes = reinterpret_cast<char const*>(&sent);
  for (std::size_t i = 0; i < sizeof sent; ++i) {
    EXPECT_FALSE(link.receive());
    ASSERT_EQ(::send(other.get(), bytes + i, 1, 0), 1);
  }
  auto const received = link.receive();
  ASSERT_TRUE(received);
  EXPECT_EQ(std::memcmp(&*received, &sent, sizeof sent), 0);
}

TEST(Link, drops_beats_that_nobody_reads_and_keeps_the_others_whole) {
  auto [link, other] = make_pair();
  for (int i = 0; i < 5000; ++i) link.send(frame_with(FrameKind::beat, {}, "unread"));
  link.finish_sending();
  std::vector<char> all;
  std::vector<char> piece(1 << 20);
  for (ssize_t got; (got = ::recv(other.get(), piece.data(), piece.size(), 0)) > 0;)
    all.insert(all.end(), piece.begin(), piece.begin() + got);
  EXPECT_LT(all.size(), 5000 * sizeof(Frame));
  ASSERT_GE(all.size(), sizeof(Frame));
  for (std::size_t i = 0; i + sizeof(Frame) <= all.size(); i += sizeof(Frame)) {
    Frame frame;
    std::memcpy(&frame, all.data() + i, sizeof frame);
    ASSERT_EQ(get_text(frame.phase), "unread");
  }
}

TEST(Link, sending_to_a_closed_connection_is_no_signal_and_what_was_sent_before_is_read) {
  auto [link, other] = make_pair();
  Frame const goodbye = frame_with(FrameKind::goodbye, {}, "done");
  ASSERT_EQ(::send(other.get(), &goodbye, sizeof goodbye, 0), static_cast<ssize_t>(sizeof goodbye));
  other.reset();
  for (int i = 0; i < 3; ++i) link.send(frame_with(FrameKind::beat, {}, ""));
  auto const received = link.receive();
  ASSERT_TRUE(received);
  EXPECT_EQ(received->kind, FrameKind::goodbye);
  EXPECT_FALSE(link.receive());
  EXPECT_TRUE(link.closed());
}

TEST(FrameText, is_cut_to_the_field_and_read_back) {
  std::array<char, 8> field;
  put_text("123456789", field);
  EXPECT_EQ(get_text(field), "1234567");
  put_text("ab", field);
  EXPECT_EQ(get_text(field), "ab");
  field.fill('x');  // no closing zero, as a foreign frame may have
  EXPECT_EQ(get_text(field), "xxxxxxxx");
}

}  // namespace
}  // namespace spillway::comm::detail
