// The commands of the program: each parses what follows its name and returns the exit code.
#pragma once

#include <string>
#include <vector>

namespace spillway::app {

/// What follows the name of a command on the command line.
struct Arguments {
  std::vector<std::string> words;
};

struct Command {
  std::string name;
  std::string summary;
  int (*run)(Arguments const&);
};

/// In the order of --help.
std::vector<Command> command_table();

/// Text of `spillway --version`: this program and the libraries it runs on.
std::string version_text();
std::string program_version();

int run_train(Arguments const&);
int run_plan(Arguments const&);
int run_generate(Arguments const&);
int run_tokenize(Arguments const&);
int run_ckpt(Arguments const&);
int run_bench(Arguments const&);
int run_doctor(Arguments const&);

}  // namespace spillway::app
