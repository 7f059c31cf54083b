#include "io/uring/scratch.hpp"

#include <fmt/core.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <random>

#include "lib/core/error.hpp"

namespace spillway::io::detail {

AlignedMemory aligned_memory(std::uint64_t bytes, std::uint64_t alignment) {
  AlignedMemory memory(static_cast<std::byte*>(std::aligned_alloc(alignment, bytes)));
  if (!memory)
    fail(Fault::no_room, fmt::format("cannot allocate {} bytes of memory (out of memory). "
                                     "Give the job more memory?",
                                     bytes));
  std::memset(memory.get(), 0, bytes);
  return memory;
}

File scratch_file(std::string const& directory) {
  if (directory.empty()) {
    Fd const memory(::memfd_create("spillway-scratch", MFD_CLOEXEC));
    if (!memory)
      fail(Fault::io, fmt::format("cannot make a file in memory ({}).", errno_text(errno)));
    return File(fmt::format("/proc/self/fd/{}", memory.get()), Access::read_write);
  }
  std::random_device random;
  File file(fmt::format("{}/.spillway-scratch-{:08x}{:08x}", directory, random(), random()),
            Access::write_new);
  file.unlink();
  return file;
}

}  // namespace spillway::io::detail
