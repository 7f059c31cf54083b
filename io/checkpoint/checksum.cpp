#include "io/checkpoint/checksum.hpp"

#include <fmt/core.h>
#include <xxhash.h>

#include <charconv>
#include <new>

#include "lib/core/error.hpp"

namespace spillway::io {

std::uint64_t xxh3(std::span<std::byte const> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string hex(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

std::uint64_t parse_hex(std::string const& digits) {
  std::uint64_t hash = 0;
  auto const [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), hash, 16);
  if (error != std::errc{} || end != digits.data() + digits.size() || digits.size() != 16)
    fail(Fault::bad_input,
         fmt::format("'{}' is not a hash (16 hexadecimal digits expected)", digits));
  return hash;
}

std::string xxh128_hex(std::span<std::byte const> bytes) {
  XXH128_hash_t const hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

struct Xxh3Stream::Impl {
  XXH3_state_t* state = XXH3_createState();
  ~Impl() { XXH3_freeState(state); }
};

Xxh3Stream::Xxh3Stream() : impl_(std::make_unique<Impl>()) {
  if (impl_->state == nullptr || XXH3_64bits_reset(impl_->state) != XXH_OK) throw std::bad_alloc();
}

Xxh3Stream::~Xxh3Stream() = default;

void Xxh3Stream::update(std::span<std::byte const> bytes) {
  expect(XXH3_64bits_update(impl_->state, bytes.data(), bytes.size()) == XXH_OK,
         "XXH3 takes bytes");
}

std::uint64_t Xxh3Stream::digest() const { return XXH3_64bits_digest(impl_->state); }

}  // namespace spillway::io
