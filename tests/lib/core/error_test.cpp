#include "lib/core/error.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

namespace spillway {
namespace {

template <class Action>
Error caught(Action action) {
  try {
    action();
  } catch (Error const& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return Error(Fault::internal, "");
}

TEST(ErrorTest, faults_are_the_exit_codes_of_the_design) {
  EXPECT_EQ(static_cast<int>(Fault::internal), 1);
  EXPECT_EQ(static_cast<int>(Fault::usage), 2);
  EXPECT_EQ(static_cast<int>(Fault::bad_input), 3);
  EXPECT_EQ(static_cast<int>(Fault::no_room), 4);
  EXPECT_EQ(static_cast<int>(Fault::io), 5);
  EXPECT_EQ(static_cast<int>(Fault::peer), 6);
  EXPECT_EQ(static_cast<int>(Fault::diverged), 7);
}

TEST(ErrorTest, carries_fault_text_and_place) {
  auto const error = caught([] { fail(Fault::io, "cannot read x (broken). Try y?"); });
  EXPECT_EQ(error.fault(), Fault::io);
  EXPECT_STREQ(error.what(), "cannot read x (broken). Try y?");
  EXPECT_NE(std::string(error.where().file).find("error_test.cpp"), std::string::npos);
  EXPECT_GT(error.where().line, 0);
}

TEST(ErrorTest, contexts_nest_from_the_inside_out) {
  auto const error = caught([] {
    doing("saving step 120",
          [] { doing("writing shard 3", [] { fail(Fault::no_room, "disk full"); }); });
  });
  EXPECT_STREQ(error.what(), "disk full\n  while writing shard 3\n  while saving step 120");
  EXPECT_EQ(error.problem(), "disk full");
  EXPECT_EQ(error.fault(), Fault::no_room);
}

TEST(ErrorTest, doing_passes_results_and_references_through) {
  int value = 1;
  int& same = doing("nothing", [&]() -> int& { return value; });
  same = 2;
  EXPECT_EQ(value, 2);
}

TEST(ErrorTest, doing_leaves_foreign_exceptions_alone) {
  EXPECT_THROW(doing("x", [] { throw 7; }), int);
}

TEST(RequireTest, throws_only_where_the_condition_fails) {
  EXPECT_NO_THROW(require(true, Fault::usage, "unused"));
  auto const error = caught([] { require(false, Fault::bad_input, "no tokens"); });
  EXPECT_EQ(error.fault(), Fault::bad_input);
  EXPECT_STREQ(error.what(), "no tokens");
}

TEST(ExpectTest, names_the_assumption_and_the_place) {
  EXPECT_NO_THROW(expect(true, "unused"));
  auto const error = caught([] { expect(false, "a shard has its size"); });
  EXPECT_EQ(error.fault(), Fault::internal);
  std::string const text = error.what();
  EXPECT_NE(text.find("a shard has its size"), std::string::npos);
  EXPECT_NE(text.find("error_test.cpp:"), std::string::npos);
}

TEST(ErrnoTextTest, has_text_and_symbol) {
  EXPECT_EQ(errno_text(ENOSPC), "No space left on device (ENOSPC)");
  EXPECT_EQ(errno_text(EPERM), "Operation not permitted (EPERM)");
  EXPECT_EQ(errno_text(99'999), "unknown error (99999)");
}

}  // namespace
}  // namespace spillway
