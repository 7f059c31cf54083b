// Any bytes as a token file: refused with an Error, or every token read is of the vocabulary.
#include <cstdlib>
#include <vector>

#include "io/tokens/token_files.hpp"
#include "lib/core/error.hpp"
#include "tests/fuzz/fuzz_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  constexpr std::int64_t kVocabulary = 50257;
  spillway::fuzz::MemoryFile const file(data, size);
  try {
    auto const source = spillway::io::open_tokens(file.path(), kVocabulary);
    if (source->size() < 1 || static_cast<std::size_t>(source->size()) > size / 2) std::abort();
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(source->size()));
    source->read(0, tokens);
    for (auto token : tokens)
      if (token < 0 || token >= kVocabulary) std::abort();
  } catch (spillway::Error const& error) {
    if (error.fault() != spillway::Fault::bad_input) std::abort();
  }
  return 0;
}
