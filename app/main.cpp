// The program: finds the command, runs it, and turns its errors into a message and an exit code.
#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>

#include "app/closest.hpp"
#include "app/commands.hpp"
#include "app/signals.hpp"
#include "lib/core/error.hpp"
#include "lib/core/log.hpp"

namespace spillway::app {
namespace {

void print_help(std::vector<Command> const& commands) {
  fmt::print(
      "usage: spillway COMMAND [--section.key=value ...]\n"
      "Trains language models whose state does not fit in memory.\n\n");
  for (auto const& command : commands) fmt::print("  {:<10} {}\n", command.name, command.summary);
  fmt::print(
      "\n  spillway COMMAND --help    its flags and keys\n"
      "  spillway --version         this program and its libraries\n");
}

int run(std::vector<std::string> words) {
  std::vector<Command> const commands = command_table();
  if (words.empty()) {
    print_help(commands);
    fail(Fault::usage, "no command is given.");
  }
  std::string const name = words.front();
  words.erase(words.begin());
  if (name == "--version" || name == "version") return fmt::print("{}", version_text()), 0;
  if (name == "--help" || name == "-h" || name == "help") return print_help(commands), 0;
  std::vector<std::string> names;
  for (auto const& command : commands) {
    if (command.name == name) return command.run({std::move(words)});
    names.push_back(command.name);
  }
  fail(Fault::usage, fmt::format("unknown command '{}' (see spillway --help). Did you mean '{}'?",
                                 name, closest(name, names)));
}

/// Speaks as "[r3]" where a launcher started several of us; known before MPI is.
void print_error(std::string const& text) {
  for (char const* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"}) {
    if (char const* rank = std::getenv(variable)) {
      Log(Rank{std::atoi(rank)}).local(Level::error, "{}", text);
      return;
    }
  }
  Log().root(Level::error, "{}", text);
}

/// Results that did not get out are an error, except where the reader has seen enough (`| head`).
int close_output(int code) {
  errno = 0;
  bool const written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (written || errno == EPIPE || code != 0) return code;
  print_error("the output could not be written (" + errno_text(errno) + ").");
  return static_cast<int>(Fault::io);
}

int guarded(std::vector<std::string> words) {
  try {
    return close_output(run(std::move(words)));
  } catch (Error const& error) {
    print_error(error.what());
    close_output(static_cast<int>(error.fault()));
    return static_cast<int>(error.fault());
  } catch (std::bad_alloc const&) {
    print_error("no memory left.");
    return static_cast<int>(Fault::no_room);
  } catch (std::system_error const& error) {
    if (error.code().value() == EPIPE) return 0;
    print_error(error.what());
    return static_cast<int>(Fault::io);
  } catch (std::exception const& error) {
    print_error(error.what());
    return static_cast<int>(Fault::internal);
  }
}

}  // namespace
}  // namespace spillway::app

int main(int count, char** words) {
  spillway::app::ignore_write_signals();
  return spillway::app::guarded({words + 1, words + count});
}
