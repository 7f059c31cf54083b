// Any bytes as a safetensors file: refused with an Error, or every tensor reads to its end.
#include <cstdlib>
#include <vector>

#include "io/safetensors/safetensors.hpp"
#include "lib/core/error.hpp"
#include "tests/fuzz/fuzz_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  spillway::fuzz::MemoryFile const file(data, size);
  try {
    spillway::io::SafetensorsFolder const folder(file.path());
    for (auto const& tensor : folder.tensors()) {
      std::size_t elements = 1;
      for (auto extent : tensor.shape) elements *= static_cast<std::size_t>(extent);  // 0 stays 0
      if (elements > size) std::abort();  // more than the file can hold was let through
      std::vector<float> values(elements);
      folder.read(tensor.name, 0, values);
    }
  } catch (spillway::Error const& error) {
    if (error.fault() != spillway::Fault::bad_input) std::abort();
  }
  return 0;
}
