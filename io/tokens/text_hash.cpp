#include "io/tokens/text_hash.hpp"

#include <xxhash.h>

#include <new>

namespace spillway::io {

void TextHash::Traits::close(Raw state) noexcept { static_cast<void>(XXH3_freeState(state)); }

TextHash::TextHash() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  static_cast<void>(XXH3_64bits_reset(state_.get()));  // fails for a null state only
}

void TextHash::update(std::string_view piece) {
  static_cast<void>(XXH3_64bits_update(state_.get(), piece.data(), piece.size()));
}

std::uint64_t TextHash::value() const { return XXH3_64bits_digest(state_.get()); }

std::uint64_t hash_text(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

}  // namespace spillway::io
