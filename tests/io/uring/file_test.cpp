// Opening, alignment, reserving, removing; what the kernel says serves as reference.
#include "io/file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <bit>
#include <cerrno>

#include "io/uring/alignment.hpp"
#include "io/uring/scratch.hpp"
#include "lib/core/error.hpp"
#include "tests/io/uring/child_process.hpp"
#include "tests/io/uring/scratch_directory.hpp"

namespace spillway::io {
namespace {

using test::bytes_of_file;
using test::in_child;
using test::random_bytes;
using test::write_file;

std::uint64_t allocated_bytes(File const& file) {
  struct stat status {};
  EXPECT_EQ(::fstat(file.fd(), &status), 0);
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

/// Writes and reads one block of exactly the file's alignment, at an address that is a multiple of
/// nothing more.
std::string try_alignment(File const& file) {
  std::uint64_t const size = file.alignment();
  if (!std::has_single_bit(size)) return "no power of two";
  auto const memory = detail::aligned_memory(131072, 131072);
  std::byte* const data = memory.get() + size;
  std::fill_n(data, size, std::byte{0x5a});
  auto const offset = static_cast<off_t>(3 * size);
  if (::pwrite(file.fd(), data, size, offset) != static_cast<ssize_t>(size)) return "write failed";
  std::fill_n(data, size, std::byte{0});
  if (::pread(file.fd(), data, size, offset) != static_cast<ssize_t>(size)) return "read failed";
  return data[size - 1] == std::byte{0x5a} ? "right" : "wrong bytes";
}

std::string problem_of(Fault expected, std::function<void()> const& action) {
  try {
    action();
  } catch (Error const& error) {
    EXPECT_EQ(error.fault(), expected) << error.what();
    return error.problem();
  }
  return "none";
}

bool has_direct_flag(File const& file) { return (::fcntl(file.fd(), F_GETFL) & O_DIRECT) != 0; }

TEST(FileTest, is_direct_where_the_kernel_says_so_with_an_alignment_that_works) {
  test::ScratchDirectory const directory;
  File const file(directory / "file", Access::write_new);
  EXPECT_EQ(file.direct(), has_direct_flag(file));
  EXPECT_EQ(file.alignment() == 1, !file.direct());
  EXPECT_EQ(try_alignment(file), "right");
  EXPECT_EQ(file.path(), directory / "file");
}

TEST(FileTest, probes_the_alignment_where_the_kernel_does_not_say) {
  test::ScratchDirectory const directory;
  write_file(directory / "full", random_bytes(262144, 1));
  std::uint32_t const stated = File(directory / "full", Access::read).alignment();
  std::string const text = in_child([&]() -> std::string {
    test::refuse_system_call(SYS_statx, ENOSYS);
    File const empty(directory / "empty", Access::write_new);
    if (empty.size() != 0) return "the probe left something behind";
    File const full(directory / "full", Access::read_write);
    // What a probe finds can be less than what is stated, never more.
    for (File const* file : {&empty, &full}) {
      if (file->direct() != (stated > 1) || file->alignment() > stated) return "wrong alignment";
      if (std::string const tried = try_alignment(*file); tried != "right") return tried;
    }
    return "right";
  });
  EXPECT_EQ(text, "right");
}

TEST(FileTest, the_least_working_alignment_is_taken) {
  EXPECT_EQ(detail::least_working_alignment([](std::uint32_t) { return true; }), 512u);
  EXPECT_EQ(detail::least_working_alignment([](std::uint32_t size) { return size >= 4096; }),
            4096u);
  EXPECT_EQ(detail::least_working_alignment([](std::uint32_t size) { return size >= 65536; }),
            65536u);
  EXPECT_EQ(detail::least_working_alignment([](std::uint32_t) { return false; }), 0u);
}

TEST(FileTest, a_file_in_memory_is_buffered_with_alignment_one) {
  File const file = detail::scratch_file("");
  EXPECT_FALSE(file.direct());
  EXPECT_FALSE(has_direct_flag(file));
  EXPECT_EQ(file.alignment(), 1u);
  EXPECT_EQ(try_alignment(file), "right");
  file.drop_cache();
  EXPECT_EQ(file.size(), 4u);  // one byte at offset 3, kept
}

TEST(FileTest, access_modes_create_open_and_refuse) {
  test::ScratchDirectory const directory;
  std::string const path = directory / "file";
  EXPECT_NE(problem_of(Fault::io, [&] { File(path, Access::read); }).find("ENOENT"),
            std::string::npos);
  File const created(path, Access::write_new);
  std::string const again = problem_of(Fault::io, [&] { File(path, Access::write_new); });
  EXPECT_EQ(again,
            "cannot open " + path + " (File exists (EEXIST)). Remove it or choose another name?");
  File const opened(path, Access::read_write);
  File const other(directory / "other", Access::read_write);
  EXPECT_TRUE(std::filesystem::exists(directory / "other"));
  EXPECT_NE(problem_of(Fault::io, [&] { File(directory.path(), Access::read); })
                .find("not a regular file"),
            std::string::npos);
}

TEST(FileTest, reserved_space_is_allocated_and_content_survives) {
  test::ScratchDirectory const directory;
  auto const content = random_bytes(70001, 2);
  write_file(directory / "file", content);
  File file(directory / "file", Access::read_write);
  file.reserve(1 << 20);
  EXPECT_EQ(file.size(), 1u << 20);
  EXPECT_GE(allocated_bytes(file), 1u << 20);
  auto expected = content;
  expected.resize(1 << 20);
  EXPECT_TRUE(bytes_of_file(directory / "file") == expected);
  file.reserve(4096);  // never shrinks
  EXPECT_EQ(file.size(), 1u << 20);
}

TEST(FileTest, space_is_written_once_where_fallocate_is_refused) {
  test::ScratchDirectory const directory;
  for (int const error : {EOPNOTSUPP, ENOSYS}) {
    auto const content = random_bytes(70001, 3);
    write_file(directory / "file", content);
    std::string const text = in_child([&]() -> std::string {
      test::refuse_system_call(SYS_fallocate, error);
      File file(directory / "file", Access::read_write);
      file.reserve((3 << 20) + 100);
      return std::to_string(file.size());
    });
    EXPECT_EQ(text, std::to_string((3 << 20) + 100));
    EXPECT_GE(allocated_bytes(File(directory / "file", Access::read)), 3u << 20);
    auto expected = content;
    expected.resize((3 << 20) + 100);
    EXPECT_TRUE(bytes_of_file(directory / "file") == expected);
  }
}

TEST(FileTest, too_little_space_is_refused_with_needed_and_free_bytes) {
  test::ScratchDirectory const directory;
  File file(directory / "file", Access::write_new);
  struct statvfs status {};
  ASSERT_EQ(::statvfs(directory.path().c_str(), &status), 0);
  std::uint64_t const needed = 2 * static_cast<std::uint64_t>(status.f_blocks) * status.f_frsize;
  std::string const text = problem_of(Fault::no_room, [&] { file.reserve(needed); });
  EXPECT_TRUE(text.starts_with("cannot reserve space for " + file.path())) << text;
  EXPECT_NE(text.find(fmt::format("({} bytes), free", needed)), std::string::npos) << text;
  EXPECT_EQ(file.size(), 0u);
  EXPECT_EQ(allocated_bytes(file), 0u);
}

TEST(FileTest, a_reservation_on_a_full_or_limited_file_system_fails_and_keeps_nothing) {
  test::ScratchDirectory const directory;
  for (bool const without_fallocate : {false, true}) {
    std::string const text = in_child([&]() -> std::string {
      std::string const where = directory / (without_fallocate ? "written" : "allocated");
      std::filesystem::create_directory(where);
      std::string const symbol = test::make_room_scarce(where, 1 << 20);
      if (without_fallocate) test::refuse_system_call(SYS_fallocate, EOPNOTSUPP);
      File file(where + "/file", Access::write_new);
      std::string const problem = problem_of(Fault::no_room, [&] { file.reserve(4 << 20); });
      if (problem.find(symbol) == std::string::npos) return problem;
      if (file.size() != 0 || allocated_bytes(file) != 0) return "it kept something";
      file.reserve(1 << 18);
      return "right";
    });
    EXPECT_EQ(text, "right");
  }
}

TEST(FileTest, the_file_size_limit_fails_a_reservation_without_a_signal) {
  test::ScratchDirectory const directory;
  for (bool const without_fallocate : {false, true}) {
    std::string const text = in_child([&]() -> std::string {
      test::limit(RLIMIT_FSIZE, 1 << 20);
      if (without_fallocate) test::refuse_system_call(SYS_fallocate, EOPNOTSUPP);
      File file(directory / (without_fallocate ? "written" : "allocated"), Access::write_new);
      std::string const problem = problem_of(Fault::no_room, [&] { file.reserve(4 << 20); });
      if (problem.find("EFBIG") == std::string::npos) return problem;
      return file.size() == 0 && allocated_bytes(file) == 0 ? "right" : "it kept something";
    });
    EXPECT_EQ(text, "right");
  }
}

TEST(FileTest, unlink_removes_the_name_and_the_handle_goes_on) {
  test::ScratchDirectory const directory;
  File file(directory / "file", Access::write_new);
  file.unlink();
  EXPECT_FALSE(std::filesystem::exists(directory / "file"));
  file.reserve(1 << 20);
  file.sync();
  EXPECT_EQ(file.size(), 1u << 20);
  EXPECT_NE(problem_of(Fault::io, [&] { file.unlink(); }).find("ENOENT"), std::string::npos);
}

TEST(FileTest, free_bytes_are_what_statvfs_gives_this_user) {
  std::string const text = in_child([]() -> std::string {
    test::ScratchDirectory const directory;
    std::string const symbol = test::make_room_scarce(directory.path(), 1 << 20);
    struct statvfs status {};
    if (::statvfs(directory.path().c_str(), &status) != 0) return "statvfs failed";
    std::uint64_t const expected = static_cast<std::uint64_t>(status.f_bavail) * status.f_bsize;
    std::uint64_t const free = free_bytes(directory.path());
    // Only a file system of the test's own stands still.
    if (symbol == "ENOSPC")
      return free == 1 << 20 && free == expected ? "right" : std::to_string(free);
    return free > expected / 2 && free / 2 < expected ? "right" : std::to_string(free);
  });
  EXPECT_EQ(text, "right");
  EXPECT_NE(
      problem_of(Fault::io, [] { free_bytes("/no/such/directory"); }).find("/no/such/directory"),
      std::string::npos);
}

TEST(FileTest, directories_are_synced_by_name) {
  test::ScratchDirectory const directory;
  sync_directory(directory.path());
  std::string const path = directory / "missing";
  EXPECT_NE(problem_of(Fault::io, [&] { sync_directory(path); }).find(path), std::string::npos);
}

}  // namespace
}  // namespace spillway::io
