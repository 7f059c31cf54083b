#include "app/small_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>

#include <array>
#include <cerrno>

#include "lib/core/error.hpp"
#include "lib/core/unique_handle.hpp"

namespace spillway::app {
namespace {

Fault fault_of(int code) {
  return code == ENOSPC || code == EDQUOT || code == EFBIG ? Fault::no_room : Fault::io;
}

[[noreturn]] void fail_writing(std::filesystem::path const& path, int code) {
  fail(fault_of(code), fmt::format("cannot write '{}' ({}).", path.string(), errno_text(code)));
}

}  // namespace

std::string read_small_file(std::filesystem::path const& path) {
  Fd const fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 65536> buffer;
  while (true) {
    ssize_t const got = fd ? ::read(fd.get(), buffer.data(), buffer.size()) : -1;
    if (got < 0 && fd && errno == EINTR) continue;
    if (got < 0)
      fail(Fault::bad_input,
           fmt::format("cannot read '{}' ({}).", path.string(), errno_text(errno)));
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

void write_all(int fd, std::string const& text, std::filesystem::path const& path) {
  std::size_t done = 0;
  while (done < text.size()) {
    ssize_t const put = ::write(fd, text.data() + done, text.size() - done);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_writing(path, errno);
    done += static_cast<std::size_t>(put);
  }
}

void write_small_file(std::filesystem::path const& path, std::string const& text) {
  std::filesystem::path const aside = path.string() + ".tmp";
  Fd fd(::open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd) fail_writing(aside, errno);
  write_all(fd.get(), text, aside);
  if (::fsync(fd.get()) != 0) fail_writing(aside, errno);
  fd.reset();
  if (::rename(aside.c_str(), path.c_str()) != 0) fail_writing(path, errno);
}

}  // namespace spillway::app
