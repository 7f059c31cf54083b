// Runs a piece of a test in a process of its own, where limits, users and system call filters may
// change.
#pragma once

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>

#include "lib/core/error.hpp"

namespace spillway::test {

/// What `body` returned in the child; "Error 4: ..." if it threw an Error, with its fault; how it
/// died otherwise.
inline std::string in_child(std::function<std::string()> const& body) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  pid_t const child = ::fork();
  if (child == 0) {
    std::string text;
    try {
      text = body();
    } catch (Error const& error) {
      text = "Error " + std::to_string(static_cast<int>(error.fault())) + ": " + error.what();
    }
    bool const told =
        ::write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    ::_exit(told ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  char piece[4096];
  for (ssize_t count = 0; (count = ::read(ends[0], piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(count));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return "killed by signal " + std::to_string(WTERMSIG(status));
  return text;
}

// The following are for the body of in_child(); where they cannot do their work they say so by
// ending it.

inline void must(bool done, char const* what) {
  if (!done) fail(Fault::internal, std::string("the test could not ") + what);
}

/// From now on this system call fails with `error`.
inline void refuse_system_call(long number, int error) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog const filter{std::size(program), program};
  must(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "give up new privileges");
  must(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0, "set a seccomp filter");
}

inline void limit(__rlimit_resource resource, std::uint64_t value) {
  rlimit const both{value, value};
  must(::setrlimit(resource, &both) == 0, "set a limit");
}

/// True: the process is now the only one of its user, so that limits per user are its own.
inline bool become_a_user_of_its_own() {
  if (::geteuid() != 0) return false;
  auto const user = 200000 + static_cast<unsigned>(::getpid());
  if (::setgroups(0, nullptr) == 0 && ::setgid(user) == 0 && ::setuid(user) == 0) return true;
  constexpr unsigned nobody = 65534;  // a container may know no other users
  must(::setgid(nobody) == 0 && ::setuid(nobody) == 0, "drop root");
  return false;
}

/// Makes all files end at `bytes`: a full file system where mounting one is permitted, else a limit
/// on file sizes. Returns the symbol of the error that writes get.
inline std::string make_room_scarce(std::string const& directory, std::uint64_t bytes) {
  int const spaces = ::geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER;
  std::string const size = "size=" + std::to_string(bytes);
  if (::unshare(spaces) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
      ::mount("none", directory.c_str(), "tmpfs", 0, size.c_str()) == 0)
    return "ENOSPC";
  limit(RLIMIT_FSIZE, bytes);
  return "EFBIG";
}

}  // namespace spillway::test
