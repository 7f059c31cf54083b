// Runs a body of code compiled for the widest instruction set of this processor, chosen at run
// time.
#pragma once

#include <string_view>

namespace spillway::ops::detail {

/// x86-64 as of 2003, with AVX2 and FMA (level v3), with AVX-512 F/BW/DQ/VL (level v4).
enum class Isa { baseline, avx2, avx512 };

/// The widest one that this processor has.
Isa widest_isa();
std::string_view name_of(Isa isa);

/// The instruction set as a type, for bodies that choose widths by it.
template <Isa I>
struct IsaConstant {
  static constexpr Isa value = I;
};

// One body, three compilations. "flatten" pulls all that the body calls into the clone, so that it
// is compiled for the clone's instruction set; what stays a call would run as baseline code.
template <class Body>
[[gnu::flatten, gnu::noinline]] void run_baseline(Body const& body) {
  body(IsaConstant<Isa::baseline>{});
}
template <class Body>
[[gnu::target("arch=x86-64-v3"), gnu::flatten, gnu::noinline]] void run_avx2(Body const& body) {
  body(IsaConstant<Isa::avx2>{});
}
template <class Body>
[[gnu::target("arch=x86-64-v4"), gnu::flatten, gnu::noinline]] void run_avx512(Body const& body) {
  body(IsaConstant<Isa::avx512>{});
}

/// body(IsaConstant<isa>), compiled for `isa`.
template <class Body>
void run_on(Isa isa, Body const& body) {
  switch (isa) {
    case Isa::avx512: return run_avx512(body);
    case Isa::avx2: return run_avx2(body);
    case Isa::baseline: return run_baseline(body);
  }
}

}  // namespace spillway::ops::detail
