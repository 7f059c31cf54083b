#include "lib/core/dtype.hpp"

#include <fmt/core.h>

#include <array>
#include <utility>

#include "lib/core/error.hpp"

namespace spillway {
namespace {

struct Entry {
  DType type;
  std::string_view name;
  std::size_t bytes;
};

constexpr std::array<Entry, 7> kTypes{{{DType::f32, "fp32", 4},
                                       {DType::bf16, "bf16", 2},
                                       {DType::f16, "fp16", 2},
                                       {DType::i16, "int16", 2},
                                       {DType::i8, "int8", 1},
                                       {DType::f8_e4m3, "fp8_e4m3", 1},
                                       {DType::f8_e5m2, "fp8_e5m2", 1}}};

Entry const& entry(DType type) { return kTypes.at(static_cast<std::size_t>(type)); }

}  // namespace

std::size_t size_of(DType type) { return entry(type).bytes; }

std::string_view name_of(DType type) { return entry(type).name; }

DType dtype_from_name(std::string_view name) {
  for (auto const& known : kTypes)
    if (known.name == name) return known.type;
  fail(Fault::usage, fmt::format("unknown element type '{}'. Use fp32 or bf16?", name));
}

}  // namespace spillway
