// Preloaded by a test: refuses what many cluster file systems do: locks, reservation, exchange.
#include <errno.h>
#include <sys/types.h>

int flock(int fd, int operation) {
  (void)fd;
  (void)operation;
  errno = ENOLCK;
  return -1;
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
  (void)fd;
  (void)mode;
  (void)offset;
  (void)length;
  errno = EOPNOTSUPP;
  return -1;
}

int renameat2(int old_directory, char const* old_path, int new_directory, char const* new_path,
              unsigned flags) {
  (void)old_directory;
  (void)old_path;
  (void)new_directory;
  (void)new_path;
  (void)flags;
  errno = EINVAL;
  return -1;
}
