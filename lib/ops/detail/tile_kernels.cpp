#include "lib/ops/detail/tile_kernels.hpp"

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/ops/detail/tile_pack.hpp"

namespace spillway::ops::detail {
namespace {

constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
constexpr int kTileData = 18;               // XFEATURE_XTILEDATA

// Eight tiles of 16 rows of 64 bytes (Intel's Software Developer's Manual, volume 1, 18.3).
struct alignas(64) TileConfiguration {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfiguration) == 64);
// Constant, because g++ 12 does not see that the instruction reads all of it.
constexpr TileConfiguration kConfiguration;

constexpr std::int64_t kRowBytes = 64;

[[gnu::target("amx-tile")]] void configure_tiles() { _tile_loadconfig(&kConfiguration); }
[[gnu::target("amx-tile")]] void release_tiles() { _tile_release(); }

// Asks for memory that is used after the block, a part at every step.
class Prefetcher {
 public:
  explicit Prefetcher(TileBlock const& p)
      : p_(p),
        strip_(p.next_strip.first),
        panel_(p.next_panel.first),
        result_(p.result),
        rows_(p.result == nullptr ? 0 : (kStripRows + p.steps - 1) / p.steps) {}
  [[gnu::always_inline]] void read_strip() { read(strip_, p_.next_strip.lines); }
  [[gnu::always_inline]] void read_panel() { read(panel_, p_.next_panel.lines); }
  [[gnu::always_inline]] void write() {
    for (std::int64_t row = 0; row < rows_; ++row, result_ += p_.result_stride)
      for (std::int64_t byte = 0; byte < p_.result_bytes; byte += kRowBytes)
        __builtin_prefetch(result_ + byte, 1, 3);
  }

 private:
  [[gnu::always_inline]] static void read(char const*& from, std::int64_t lines) {
    for (std::int64_t line = 0; line < lines; ++line, from += kRowBytes)
      __builtin_prefetch(from, 0, 2);
  }

  TileBlock const& p_;
  char const* strip_;
  char const* panel_;
  char const* result_;
  std::int64_t rows_;
};

// Tiles 0-3: sums; 4, 5: strip; 6, 7: panel.
template <int Rows, int Columns>
[[gnu::target("amx-tile"), gnu::always_inline]] inline void load_sums(TileBlock const& p) {
  if (!p.accumulate) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    return;
  }
  float* const lower = p.c + kPairTileRows * p.c_stride;
  _tile_loadd(0, p.c, p.c_stride * 4);
  if constexpr (Columns == 2) _tile_loadd(1, p.c + 16, p.c_stride * 4);
  if constexpr (Rows == 2) _tile_loadd(2, lower, p.c_stride * 4);
  if constexpr (Rows * Columns == 4) _tile_loadd(3, lower + 16, p.c_stride * 4);
}

template <int Rows, int Columns>
[[gnu::target("amx-tile"), gnu::always_inline]] inline void store_sums(TileBlock const& p) {
  float* const lower = p.c + kPairTileRows * p.c_stride;
  _tile_stored(0, p.c, p.c_stride * 4);
  if constexpr (Columns == 2) _tile_stored(1, p.c + 16, p.c_stride * 4);
  if constexpr (Rows == 2) _tile_stored(2, lower, p.c_stride * 4);
  if constexpr (Rows * Columns == 4) _tile_stored(3, lower + 16, p.c_stride * 4);
}

template <int Rows, int Columns>
[[gnu::target("amx-tile,amx-bf16,prfchw")]] void multiply_amx(TileBlock const& p) {
  load_sums<Rows, Columns>(p);
  bf16 const* a = p.strip;
  bf16 const* b = p.panel;
  Prefetcher prefetch(p);
  for (std::int64_t step = 0; step < p.steps; ++step) {
    _tile_loadd(6, b, kRowBytes);
    _tile_loadd(4, a, kRowBytes);
    _tile_dpbf16ps(0, 4, 6);
    prefetch.read_strip();
    if constexpr (Columns == 2) {
      _tile_loadd(7, b + kPairTileElements, kRowBytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    prefetch.read_panel();
    if constexpr (Rows == 2) {
      _tile_loadd(5, a + kPairTileElements, kRowBytes);
      _tile_dpbf16ps(2, 5, 6);
    }
    prefetch.write();
    if constexpr (Rows * Columns == 4) _tile_dpbf16ps(3, 5, 7);
    a += 2 * kPairTileElements;
    b += 2 * kPairTileElements;
  }
  store_sums<Rows, Columns>(p);
}

// The parts of left and right that are multiplied, small products first.
constexpr int kPartPairs[][2] = {{0, 2}, {2, 0}, {1, 1}, {0, 1}, {1, 0}, {0, 0}};

// The same with fp32 numbers in three parts.
template <int Rows, int Columns>
[[gnu::target("amx-tile,amx-bf16,prfchw")]] void multiply_amx_parts(TileBlock const& p) {
  load_sums<Rows, Columns>(p);
  Prefetcher prefetch(p);
  for (std::int64_t step = 0; step < p.steps; ++step) {
    for (auto const& pair : kPartPairs) {
      bf16 const* const a = p.strip + pair[0] * p.strip_part + step * 2 * kPairTileElements;
      bf16 const* const b = p.panel + pair[1] * p.panel_part + step * 2 * kPairTileElements;
      _tile_loadd(6, b, kRowBytes);
      _tile_loadd(4, a, kRowBytes);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (Columns == 2) {
        _tile_loadd(7, b + kPairTileElements, kRowBytes);
        _tile_dpbf16ps(1, 4, 7);
      }
      if constexpr (Rows == 2) {
        _tile_loadd(5, a + kPairTileElements, kRowBytes);
        _tile_dpbf16ps(2, 5, 6);
      }
      if constexpr (Rows * Columns == 4) _tile_dpbf16ps(3, 5, 7);
    }
    prefetch.read_strip();
    prefetch.write();
  }
  store_sums<Rows, Columns>(p);
}

// Eight rows by Columns vectors at a time, held in registers over the whole of k.
template <int Columns>
[[gnu::target("avx512f,avx512bf16")]] void multiply_avx512(TileBlock const& p) {
  constexpr int kRows = 8;
  for (std::int64_t first = 0; first < p.row_tiles * kPairTileRows; first += kRows) {
    float* const c = p.c + first * p.c_stride;
    __m512 sum[kRows][Columns];
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < Columns; ++v)
        sum[r][v] =
            p.accumulate ? _mm512_loadu_ps(c + r * p.c_stride + 16 * v) : _mm512_setzero_ps();
    bf16 const* a = p.strip + first * kPairTileK;  // the halves of a strip follow each other
    bf16 const* b = p.panel;
    for (std::int64_t step = 0; step < p.steps; ++step) {
      for (int pair = 0; pair < 16; ++pair) {
        __m512i right[Columns];
        for (int v = 0; v < Columns; ++v)
          right[v] = _mm512_load_si512(b + v * kPairTileElements + pair * kPairTileK);
        for (int r = 0; r < kRows; ++r) {
          auto const left = reinterpret_cast<__m512bh>(
              _mm512_set1_epi32(*reinterpret_cast<int const*>(a + r * kPairTileK + 2 * pair)));
          for (int v = 0; v < Columns; ++v)
            sum[r][v] = _mm512_dpbf16_ps(sum[r][v], left, reinterpret_cast<__m512bh>(right[v]));
        }
      }
      a += 2 * kPairTileElements;
      b += 2 * kPairTileElements;
    }
    for (int r = 0; r < kRows; ++r)
      for (int v = 0; v < Columns; ++v) _mm512_storeu_ps(c + r * p.c_stride + 16 * v, sum[r][v]);
  }
}

}  // namespace

TileUnit best_tile_unit() {
  static TileUnit const unit = [] {
    bool const amx = __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16");
    bool const packs = __builtin_cpu_supports("x86-64-v4");
    if (amx && packs && ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0)
      return TileUnit::amx;
    if (packs && __builtin_cpu_supports("avx512bf16")) return TileUnit::avx512_bf16;
    return TileUnit::none;
  }();
  return unit;
}

void multiply_block(TileUnit unit, TileBlock const& p) {
  if (unit == TileUnit::avx512_bf16)
    return p.column_tiles == 2 ? multiply_avx512<2>(p) : multiply_avx512<1>(p);
  if (p.parts == kFloatParts) {
    if (p.row_tiles == 2)
      return p.column_tiles == 2 ? multiply_amx_parts<2, 2>(p) : multiply_amx_parts<2, 1>(p);
    return p.column_tiles == 2 ? multiply_amx_parts<1, 2>(p) : multiply_amx_parts<1, 1>(p);
  }
  if (p.row_tiles == 2) return p.column_tiles == 2 ? multiply_amx<2, 2>(p) : multiply_amx<2, 1>(p);
  return p.column_tiles == 2 ? multiply_amx<1, 2>(p) : multiply_amx<1, 1>(p);
}

[[gnu::target("avx512f")]] void stream_block(float const* sums, std::int64_t sums_stride,
                                             std::int64_t rows, float* result,
                                             std::int64_t result_stride) {
  for (std::int64_t row = 0; row < rows; ++row, sums += sums_stride, result += result_stride) {
    _mm512_stream_ps(result, _mm512_loadu_ps(sums));
    _mm512_stream_ps(result + 16, _mm512_loadu_ps(sums + 16));
  }
}

void finish_streams() { _mm_sfence(); }

TileSession::TileSession(TileUnit unit) : unit_(unit) {
  if (unit_ == TileUnit::amx) configure_tiles();
}

TileSession::~TileSession() {
  if (unit_ == TileUnit::amx) release_tiles();
}

}  // namespace spillway::ops::detail
