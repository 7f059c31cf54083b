// Linked into a program, before the C library: flock as on a file system that refuses it, with the
// errno in REFUSE_FLOCK.
#include <cerrno>
#include <cstdlib>

extern "C" int flock(int, int) {
  char const* code = std::getenv("REFUSE_FLOCK");
  errno = code == nullptr ? ENOLCK : std::atoi(code);
  return -1;
}
