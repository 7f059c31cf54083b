// Chooses the instruction set from what the processor says of itself.
#include "lib/ops/detail/isa.hpp"

namespace spillway::ops::detail {

Isa widest_isa() {
  if (__builtin_cpu_supports("x86-64-v4")) return Isa::avx512;
  if (__builtin_cpu_supports("x86-64-v3")) return Isa::avx2;
  return Isa::baseline;
}

std::string_view name_of(Isa isa) {
  switch (isa) {
    case Isa::avx512: return "avx512";
    case Isa::avx2: return "avx2";
    case Isa::baseline: break;
  }
  return "baseline";
}

}  // namespace spillway::ops::detail
