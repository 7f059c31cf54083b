// Saves, replaces and verifies checkpoints; run by a test under humble_file_system.c.
#include <fmt/core.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "lib/core/error.hpp"
#include "tests/io/checkpoint/support.hpp"

namespace {

using namespace spillway;
using namespace spillway::io;

void check(bool holds, std::string_view what) {
  if (!holds) fail(Fault::internal, std::string(what));
}

void save_replace_and_verify() {
  test::TempDir const dir(test::Place::memory);
  auto const engine = test::test_engine();
  auto const schema = test::awkward_schema(DType::bf16);
  CheckpointReader(test::save(dir.path(), schema, 2, 1, *engine)).verify(*engine);
  for (std::string const point : {"set aside", "renamed", "parent synced", "latest renamed"}) {
    int const status = test::status_of_child([&] {
      auto const own = test::test_engine();
      test::save(dir.path(), schema, 3, 1, *own, [&](std::string_view passed) {
        if (passed == point) ::raise(SIGKILL);
      });
    });
    check(status == 128 + SIGKILL, "the child is killed at " + point);
    clean_leftovers(dir.path());
    CheckpointReader const left(dir.path() / "latest");
    left.verify(*engine);
    check(left.ranks() == (point == "set aside" ? 2 : 3), "old or new after " + point);
    test::save(dir.path(), schema, 2, 1, *engine);
  }
  int entries = 0;
  for ([[maybe_unused]] auto const& entry : std::filesystem::directory_iterator(dir.path()))
    ++entries;
  check(entries == 2, "only the checkpoint and latest are left");
}

}  // namespace

int main() {
  if (::flock(STDOUT_FILENO, LOCK_EX) == 0 || errno != ENOLCK) {
    std::puts("flock is not refused here");
    return 2;
  }
  try {
    save_replace_and_verify();
  } catch (Error const& error) {
    std::puts(error.what());
    return 1;
  }
  return 0;
}
