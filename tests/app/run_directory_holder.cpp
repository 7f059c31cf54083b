// A run that does nothing but hold its directory: for the tests of run_directory with two
// processes.
#include <cstdio>
#include <string>

#include "app/run_directory.hpp"
#include "lib/core/error.hpp"

int main(int count, char** words) {
  if (count < 2) return 2;
  try {
    spillway::app::RunDirectory const directory(words[1]);
    std::printf("held %s\n", directory.warning().c_str());
    std::fflush(stdout);
    if (count > 2) std::getchar();  // until the test closes our input
    return 0;
  } catch (spillway::Error const& error) {
    std::printf("%s\n", error.what());
    return static_cast<int>(error.fault());
  }
}
