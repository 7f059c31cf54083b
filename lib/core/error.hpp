// The one exception of the program: what went wrong, where, and in the course of what.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace spillway {

/// Kind of a failure; the value is the exit code of the process (DESIGN.md section 7).
enum class Fault : int {
  internal = 1,
  usage = 2,
  bad_input = 3,
  no_room = 4,
  io = 5,
  peer = 6,
  diverged = 7,
};

/// Place in the source. __builtin_FILE instead of std::source_location: clang-tidy 14 lacks it.
struct Where {
  char const* file;
  int line;
  static constexpr Where here(char const* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// Grammar of a problem: "problem (why it is one). Suggestion?", with value, path and rank in it.
class Error : public std::exception {
 public:
  Error(Fault fault, std::string problem, Where where = Where::here());

  char const* what() const noexcept override { return text_.c_str(); }
  Fault fault() const noexcept { return fault_; }
  std::string const& problem() const noexcept { return problem_; }
  Where where() const noexcept { return where_; }

  /// Adds what was being done when it happened; the outermost context is added last.
  void add_context(std::string_view doing);

 private:
  void compose();

  Fault fault_;
  std::string problem_;
  Where where_;
  std::vector<std::string> contexts_;
  std::string text_;
};

[[noreturn]] void fail(Fault fault, std::string problem, Where where = Where::here());

/// Always on: input, files, configuration. Build costly texts only when needed: use `if (...)
/// fail`.
void require(bool ok, Fault fault, std::string_view problem, Where where = Where::here());

/// Our own bugs; throws Fault::internal.
void expect(bool ok, std::string_view broken_assumption, Where where = Where::here());

/// Text of an errno value with its symbol, for example "No space left on device (ENOSPC)".
std::string errno_text(int code);

/// Runs `action` and adds `context` to any Error that leaves it.
template <class Action>
decltype(auto) doing(std::string_view context, Action&& action) {
  try {
    return std::forward<Action>(action)();
  } catch (Error& error) {
    error.add_context(context);
    throw;
  }
}

}  // namespace spillway
