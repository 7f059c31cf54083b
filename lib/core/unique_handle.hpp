// The only owner of foreign handles: file descriptors, HDF5 ids, communicators.
#pragma once

#include <unistd.h>

#include <utility>

namespace spillway {

/// Move-only owner. Traits: `Raw`, `static Raw null() noexcept`, `static void close(Raw) noexcept`.
template <class Traits>
class UniqueHandle {
 public:
  using Raw = typename Traits::Raw;

  UniqueHandle() noexcept = default;
  explicit UniqueHandle(Raw raw) noexcept : raw_(raw) {}
  UniqueHandle(UniqueHandle&& other) noexcept : raw_(other.release()) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueHandle(UniqueHandle const&) = delete;
  UniqueHandle& operator=(UniqueHandle const&) = delete;
  ~UniqueHandle() { reset(); }

  Raw get() const noexcept { return raw_; }
  explicit operator bool() const noexcept { return raw_ != Traits::null(); }
  Raw release() noexcept { return std::exchange(raw_, Traits::null()); }
  void reset(Raw raw = Traits::null()) noexcept {
    Raw const old = std::exchange(raw_, raw);
    if (old != Traits::null()) Traits::close(old);
  }

 private:
  Raw raw_ = Traits::null();
};

struct FdTraits {
  using Raw = int;
  static Raw null() noexcept { return -1; }
  static void close(Raw fd) noexcept { ::close(fd); }
};
using Fd = UniqueHandle<FdTraits>;

}  // namespace spillway
