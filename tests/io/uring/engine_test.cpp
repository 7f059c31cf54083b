// The contract of every engine: bytes, order, errors, lifetimes.
#include "io/engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "lib/core/error.hpp"
#include "tests/io/uring/child_process.hpp"
#include "tests/io/uring/engine_fixture.hpp"

namespace spillway::io {
namespace {

using test::bytes_of_file;
using test::random_bytes;

/// The Error that waiting throws, as text, or "none".
std::string problem_of(Ticket ticket, Fault expected) {
  try {
    ticket.wait();
  } catch (Error const& error) {
    EXPECT_EQ(error.fault(), expected) << error.what();
    EXPECT_FALSE(ticket);  // used up
    return error.problem();
  }
  return "none";
}

TEST_P(EngineTest, files_hold_what_was_written_and_reads_return_it) {
  auto const engine = this->engine();
  std::uint64_t seed = 1;
  for (std::size_t const bytes :
       {4096u, 8192u, 61440u, 65536u, 69632u, (1u << 20) - 4096u, 1u << 20, (3u << 20) + 4096u}) {
    File const file = new_file(std::to_string(bytes));
    Memory const written(bytes, ++seed);
    Memory const read(bytes);
    engine->write(file, FileOffset{0}, written.span()).wait();
    EXPECT_TRUE(bytes_of_file(path_of(file)) == written.copy()) << bytes;
    engine->read(file, FileOffset{0}, read.span()).wait();
    EXPECT_TRUE(read.copy() == written.copy()) << bytes;
  }
}

TEST_P(EngineTest, random_transfers_agree_with_a_copy_in_memory) {
  constexpr std::size_t blocks = 256;
  auto const engine = this->engine();
  File const file = new_file("file");
  std::vector<std::byte> model = random_bytes(blocks * 4096, 1);
  Memory const memory(blocks * 4096);
  std::copy(model.begin(), model.end(), memory.span().begin());
  engine->write(file, FileOffset{0}, memory.span()).wait();

  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    std::size_t const first = random() % blocks;
    std::size_t const bytes = (1 + random() % std::min<std::size_t>(blocks - first, 64)) * 4096;
    std::size_t const shift =
        random() % (blocks - bytes / 4096 + 1) * 4096;  // another place in memory
    auto const part = memory.part(shift, bytes);
    auto const place = model.begin() + static_cast<std::ptrdiff_t>(first * 4096);
    if (random() % 2 == 0) {
      auto const fresh = random_bytes(bytes, random());
      std::copy(fresh.begin(), fresh.end(), part.begin());
      std::copy(fresh.begin(), fresh.end(), place);
      engine->write(file, FileOffset{first * 4096}, part).wait();
    } else {
      engine->read(file, FileOffset{first * 4096}, part).wait();
      ASSERT_TRUE(std::equal(part.begin(), part.end(), place)) << "round " << round;
    }
  }
  EXPECT_TRUE(bytes_of_file(path_of(file)) == model);
}

TEST_P(EngineTest, many_transfers_are_under_way_at_once) {
  constexpr std::size_t count = 200;
  constexpr std::size_t bytes = 20480;
  auto const engine = this->engine({4, 8192, {}});
  File const file = new_file("file");
  Memory const written(count * bytes, 3);
  Memory const read(count * bytes);
  std::vector<Ticket> tickets;
  for (std::size_t index = 0; index < count; ++index)
    tickets.push_back(
        engine->write(file, FileOffset{index * bytes}, written.part(index * bytes, bytes)));
  for (Ticket& ticket : tickets) ticket.wait();
  tickets.clear();
  for (std::size_t index = count; index-- > 0;)
    tickets.push_back(
        engine->read(file, FileOffset{index * bytes}, read.part(index * bytes, bytes)));
  std::shuffle(tickets.begin(), tickets.end(), std::mt19937(4));
  for (Ticket& ticket : tickets) ticket.wait();
  EXPECT_TRUE(read.copy() == written.copy());
  EXPECT_EQ(engine->stats().written_bytes, count * bytes);
  EXPECT_EQ(engine->stats().read_bytes, count * bytes);
}

TEST_P(EngineTest, several_threads_may_queue_and_wait) {
  constexpr std::size_t piece = 128 << 10;
  constexpr int rounds = 20;
  auto const engine = this->engine();
  File const file = new_file("file");
  std::vector<std::thread> threads;
  std::vector<int> right(3, 0);
  for (std::size_t thread = 0; thread < right.size(); ++thread)
    threads.emplace_back([&, thread] {
      FileOffset const place{thread * piece};
      Memory const read(piece);
      for (int round = 0; round < rounds; ++round) {
        Memory const written(piece, thread * rounds + static_cast<std::size_t>(round));
        engine->write(file, place, written.span()).wait();
        Ticket ticket = engine->read(file, place, read.span());
        static_cast<void>(engine->stats());
        ticket.wait();
        right[thread] += read.copy() == written.copy();
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right, std::vector<int>(3, rounds));
}

TEST_P(EngineTest, registered_and_other_memory_give_the_same_bytes) {
  constexpr std::size_t bytes = 256 << 10;
  Memory const low(bytes, 5);
  Memory const high(bytes, 6);
  Memory const other(bytes, 7);
  auto const engine = this->engine({8, 16384, {low.span(), high.span()}});
  File const file = new_file("file");
  std::uint64_t place = 0;
  for (Memory const* memory : {&low, &other, &high})
    engine->write(file, FileOffset{bytes * place++}, memory->span()).wait();
  auto expected = low.copy();
  for (Memory const* memory : {&other, &high}) {
    auto const more = memory->copy();
    expected.insert(expected.end(), more.begin(), more.end());
  }
  EXPECT_TRUE(bytes_of_file(path_of(file)) == expected);
  // Back into other places: an unregistered source into the middle of registered memory and the
  // other way round.
  engine->read(file, FileOffset{bytes}, low.part(4096, bytes / 2)).wait();
  engine->read(file, FileOffset{2 * bytes}, other.part(8192, bytes / 2)).wait();
  EXPECT_TRUE(std::equal(low.span().begin() + 4096, low.span().begin() + 4096 + bytes / 2,
                         expected.begin() + bytes));
  EXPECT_TRUE(std::equal(other.span().begin() + 8192, other.span().begin() + 8192 + bytes / 2,
                         expected.begin() + 2 * bytes));
}

TEST_P(EngineTest, a_read_behind_the_end_names_file_and_end) {
  auto const engine = this->engine();
  File const file = new_file("file");
  Memory const memory(1 << 20, 8);
  engine->write(file, FileOffset{0}, memory.part(0, 81920)).wait();
  std::string const over = problem_of(engine->read(file, FileOffset{0}, memory.span()), Fault::io);
  EXPECT_NE(over.find(file.path()), std::string::npos) << over;
  EXPECT_NE(over.find("end of file: it has 81920 bytes"), std::string::npos) << over;
  std::string const beyond =
      problem_of(engine->read(file, FileOffset{1 << 20}, memory.part(0, 4096)), Fault::io);
  EXPECT_NE(beyond.find("cannot read 4096 bytes at offset 1048576"), std::string::npos) << beyond;
  // The engine goes on.
  Memory const again(81920);
  engine->read(file, FileOffset{0}, again.span()).wait();
  EXPECT_TRUE(again.copy() ==
                  std::vector<std::byte>(memory.span().begin(), memory.span().begin() + 81920) ||
              bytes_of_file(path_of(file)) == again.copy());
}

TEST_P(EngineTest, a_file_that_ends_within_a_block_is_an_error_too) {
  auto const engine = this->engine();
  std::string const path = directory() + "/odd";
  test::write_file(path, random_bytes(70001, 9));
  File const file(path, Access::read);
  Memory const memory(131072);
  std::string const problem =
      problem_of(engine->read(file, FileOffset{0}, memory.span()), Fault::io);
  EXPECT_NE(problem.find("end of file: it has 70001 bytes"), std::string::npos) << problem;
}

TEST_P(EngineTest, a_write_to_a_file_opened_for_reading_says_so) {
  auto const engine = this->engine();
  std::string const path = directory() + "/file";
  test::write_file(path, random_bytes(8192, 10));
  File const file(path, Access::read);
  Memory const memory(8192, 11);
  std::string const problem =
      problem_of(engine->write(file, FileOffset{4096}, memory.part(0, 4096)), Fault::io);
  EXPECT_NE(problem.find("cannot write 4096 bytes at offset 4096 of " + path), std::string::npos)
      << problem;
  EXPECT_NE(problem.find("EBADF"), std::string::npos) << problem;
  EXPECT_TRUE(bytes_of_file(path) == random_bytes(8192, 10));
}

TEST_P(EngineTest, a_full_disk_is_a_fault_of_its_own) {
  std::string const answer = test::in_child([&] {
    std::string const where = directory() + "/small";
    std::filesystem::create_directory(where);
    std::string const symbol = test::make_room_scarce(where, 1 << 20);
    auto const engine = this->engine();
    File const file(where + "/file", Access::write_new);
    Memory const memory(4 << 20, 12);
    std::string const problem =
        problem_of(engine->write(file, FileOffset{0}, memory.span()), Fault::no_room);
    bool const right =
        problem.find(symbol) != std::string::npos && problem.find(file.path()) != std::string::npos;
    return right ? std::string("right") : problem;
  });
  EXPECT_EQ(answer, "right");
}

TEST_P(EngineTest, the_file_size_limit_is_an_error_and_no_signal) {
  std::string const answer = test::in_child([&] {
    test::limit(RLIMIT_FSIZE, 256 << 10);
    auto const engine = this->engine();
    File const file = new_file("limited");
    Memory const memory(1 << 20, 13);
    return problem_of(engine->write(file, FileOffset{0}, memory.span()), Fault::no_room);
  });
  EXPECT_NE(answer.find("EFBIG"), std::string::npos) << answer;
  EXPECT_NE(answer.find("ulimit -f"), std::string::npos) << answer;
}

TEST_P(EngineTest, dropping_a_ticket_waits_for_its_transfer) {
  auto const engine = this->engine();
  File const file = new_file("file");
  Memory const memory(1 << 20, 14);
  { Ticket const ticket = engine->write(file, FileOffset{0}, memory.span()); }
  EXPECT_TRUE(bytes_of_file(path_of(file)) == memory.copy());
  Memory const read(1 << 20);
  Ticket ticket = engine->read(file, FileOffset{0}, read.span());
  ticket = Ticket();  // so does assignment
  EXPECT_TRUE(read.copy() == memory.copy());
}

TEST_P(EngineTest, a_ticket_is_used_up_by_waiting) {
  auto const engine = this->engine();
  File const file = new_file("file");
  Memory const memory(8192, 15);
  Ticket empty;
  EXPECT_TRUE(empty.ready());
  EXPECT_FALSE(empty);
  empty.wait();
  Ticket first = engine->write(file, FileOffset{0}, memory.span());
  Ticket second = std::move(first);
  EXPECT_TRUE(second);
  second.wait();
  EXPECT_FALSE(second);
  EXPECT_TRUE(second.ready());
  second.wait();
}

TEST_P(EngineTest, an_empty_transfer_is_ready) {
  auto const engine = this->engine();
  File const file = new_file("file");
  Ticket ticket = engine->read(file, FileOffset{4096}, {});
  EXPECT_TRUE(ticket.ready());
  ticket.wait();
}

TEST_P(EngineTest, the_destructor_finishes_all_transfers) {
  auto engine = this->engine();
  File const file = new_file("file");
  Memory const memory(4 << 20, 16);
  std::vector<Ticket> tickets;
  for (std::size_t offset = 0; offset < 4 << 20; offset += 1 << 18)
    tickets.push_back(engine->write(file, FileOffset{offset}, memory.part(offset, 1 << 18)));
  engine.reset();
  for (Ticket& ticket : tickets) {
    EXPECT_TRUE(ticket.ready());
    ticket.wait();
  }
  EXPECT_TRUE(bytes_of_file(path_of(file)) == memory.copy());
}

TEST_P(EngineTest, an_unlinked_file_keeps_its_bytes) {
  auto const engine = this->engine();
  std::string const path = directory() + "/file";
  File file(path, Access::write_new);
  Memory const memory(1 << 18, 17);
  engine->write(file, FileOffset{0}, memory.span()).wait();
  file.unlink();
  EXPECT_FALSE(std::filesystem::exists(path));
  engine->write(file, FileOffset{1 << 18}, memory.span()).wait();
  Memory const read(1 << 18);
  engine->read(file, FileOffset{1 << 18}, read.span()).wait();
  EXPECT_TRUE(read.copy() == memory.copy());
}

INSTANTIATE_TEST_SUITE_P(Engines, EngineTest, testing::ValuesIn(all_engines()),
                         [](auto const& engine) { return case_name(engine.param); });

}  // namespace
}  // namespace spillway::io
