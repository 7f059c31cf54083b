// XXH3 (64 bits) of text that comes in pieces.
#pragma once

#include <cstdint>
#include <string_view>

#include "lib/core/unique_handle.hpp"

struct XXH3_state_s;

namespace spillway::io {

class TextHash {
 public:
  TextHash();
  void update(std::string_view piece);
  std::uint64_t value() const;

 private:
  struct Traits {
    using Raw = XXH3_state_s*;
    static Raw null() noexcept { return nullptr; }
    static void close(Raw state) noexcept;
  };
  UniqueHandle<Traits> state_;
};

std::uint64_t hash_text(std::string_view text);

}  // namespace spillway::io
