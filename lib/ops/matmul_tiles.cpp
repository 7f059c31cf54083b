// Products on packed tiles; fp32 numbers are three bf16 there, and take six products. Each thread
// computes a rectangle of the result by itself: it packs its rows once, and block after block of
// its columns small enough to stay in the second cache. Sums run over k in steps of a fixed length,
// so that bits depend on the shape alone.
#include <algorithm>

#include "lib/core/error.hpp"
#include "lib/core/numeric.hpp"
#include "lib/ops/detail/isa.hpp"
#include "lib/ops/detail/matmul_paths.hpp"
#include "lib/ops/detail/scratch.hpp"
#include "lib/ops/detail/store.hpp"
#include "lib/ops/detail/tasks.hpp"
#include "lib/ops/detail/tile_kernels.hpp"
#include "lib/ops/detail/tile_pack.hpp"

namespace spillway::ops::detail {
namespace {

// In the first cache: a strip of rows, a step of k long, and its sums with a group of panels.
constexpr std::int64_t kStepK = 256;
constexpr std::int64_t kGroup = 5;
// In the second cache: panels, in elements.
constexpr std::int64_t kPanelsElements = 448 * 1024;
// Packed at once; reading strips again from the last cache is then cheap beside the products.
constexpr std::int64_t kMostK = 12 * kStepK;
constexpr std::int64_t kMostRows = 2048;

// Strips of k-major rows that are packed together: 512 bytes of a line of memory.
constexpr std::int64_t kStripsOfLine = 8;

constexpr std::int64_t kLineBytes = 64;
constexpr std::int64_t kLinesOfStep = 2 * kPairTileElements * 2 / kLineBytes;  // of a strip

// Processor cycles to pack a tile and to multiply by one, about: what the split weighs.
constexpr double kCopyCycles = 40, kTransposeCycles = 100, kMultiplyCycles = 16;

// A grid of threads over the result, and the extent of the parts that all buffers are made for.
struct Split {
  std::int64_t across_rows = 1, across_columns = 1;
  std::int64_t rows, columns;       // of a thread's rectangle; all are whole strips
  std::int64_t packed_rows, depth;  // packed at once; k
  std::int64_t part_columns;        // packed at once
  std::int64_t step;                // of k
  int parts;                        // of a number

  Split(MatmulArgs const& args, int threads) : parts(args.a.type == DType::f32 ? kFloatParts : 1) {
    std::int64_t const most_rows = kMostRows / (parts == 1 ? 1 : 2);
    std::int64_t const most_k = round_up(kMostK / parts, kPairTileK);
    double best = -1;
    for (std::int64_t down = 1; down <= threads; ++down) {
      if (threads % down != 0) continue;
      std::int64_t const m = part(args.M, down), n = part(args.N, threads / down);
      double const tiles = static_cast<double>(m) * static_cast<double>(n) / 256 * kMultiplyCycles;
      double const left =
          static_cast<double>(m) / 16 * (args.a.transposed ? kTransposeCycles : kCopyCycles);
      double const right = static_cast<double>(n) / 16 *
                           static_cast<double>(div_ceil(m, most_rows)) *
                           (args.b.transposed ? kTransposeCycles : kCopyCycles);
      double const cost = tiles + left + right;
      if (best >= 0 && cost >= best) continue;
      best = cost;
      across_rows = down;
      across_columns = threads / down;
      rows = m;
      columns = n;
    }
    packed_rows = part(rows, div_ceil(rows, most_rows));
    depth = round_up(div_ceil(args.K, div_ceil(args.K, most_k)), kPairTileK);
    std::int64_t const most_step = round_up(kStepK / parts, kPairTileK);
    step = round_up(div_ceil(depth, div_ceil(depth, most_step)), kPairTileK);
    std::int64_t const most = std::max(kPanelsElements / (depth * parts), kStripRows);
    part_columns = part(columns, div_ceil(columns, most));
  }

  static std::int64_t part(std::int64_t whole, std::int64_t parts) {
    return round_up(div_ceil(whole, parts), kStripRows);
  }
};

// Sums are of a strip with a group of panels; but where k is packed in several passes and the
// result cannot take their sums, they are of all that is packed.
struct SumsShape {
  bool whole;
  std::int64_t rows, columns;
  SumsShape(MatmulArgs const& args, Split const& split)
      : whole(args.K > split.depth && args.c_type == DType::bf16),
        rows(whole ? split.packed_rows : kStripRows),
        columns(whole ? split.columns : kGroup * kStripRows) {}
};

struct Buffers {
  SumsShape shape;
  std::int64_t strip_part, panel_part;  // elements between the parts of numbers
  bf16 *strips, *panels, *room;
  float* sums;
  Buffers(Scratch& scratch, MatmulArgs const& args, Split const& split)
      : shape(args, split),
        strip_part(split.packed_rows * split.depth),
        panel_part(split.part_columns * split.depth),
        strips(scratch.take<bf16>(split.parts * strip_part)),
        panels(scratch.take<bf16>(split.parts * panel_part)),
        room(scratch.take<bf16>(split.parts == 1 ? 0 : split_room(split.depth))),
        sums(scratch.take<float>(shape.rows * shape.columns)) {}
};

std::size_t buffer_bytes(MatmulArgs const& args, Split const& split) {
  SumsShape const shape(args, split);
  return scratch_bytes<bf16>(split.parts * split.packed_rows * split.depth) +
         scratch_bytes<bf16>(split.parts * split.part_columns * split.depth) +
         scratch_bytes<bf16>(split.parts == 1 ? 0 : split_room(split.depth)) +
         scratch_bytes<float>(shape.rows * shape.columns);
}

// Rows and columns [begin, begin + count) of the result.
struct Extent {
  std::int64_t begin, count;
};
Extent extent(std::int64_t index, std::int64_t part, std::int64_t whole) {
  std::int64_t const begin = std::min(index * part, whole);
  return {begin, std::min(part, whole - begin)};
}

// One thread's work on one rectangle.
class Rectangle {
 public:
  Rectangle(MatmulArgs const& args, Split const& split, Buffers const& buffers, TileUnit unit)
      : args_(args),
        split_(split),
        buffers_(buffers),
        unit_(unit),
        c_stride_(args.c_stride == 0 ? args.N : args.c_stride) {}

  void multiply(Extent rows, Extent columns) {
    for (std::int64_t row = 0; row < rows.count; row += split_.packed_rows) {
      Extent const part{rows.begin + row, std::min(split_.packed_rows, rows.count - row)};
      for (std::int64_t k = 0; k < args_.K; k += split_.depth) multiply_pass(part, columns, k);
    }
  }

 private:
  // k of the pass that is packed, and of the step within it.
  struct Depth {
    std::int64_t k, steps, from, count;
  };
  // An extent that is packed, and a part of it that counts from its begin.
  struct Within {
    Extent whole, part;
  };

  void multiply_pass(Extent rows, Extent columns, std::int64_t k) {
    std::int64_t const steps = std::min(split_.depth, args_.K - k);
    // Rows are packed right before their first product, some strips at once where that makes whole
    // lines of memory.
    std::int64_t const packed = kStripRows * (args_.a.transposed ? kStripsOfLine : 1);
    for (std::int64_t column = 0; column < columns.count; column += split_.part_columns) {
      Extent const part{column, std::min(split_.part_columns, columns.count - column)};
      pack_columns({columns.begin + column, part.count, k, steps});
      for (std::int64_t row = 0; row < rows.count; row += kStripRows) {
        if (column == 0 && row % packed == 0)
          pack_rows({rows.begin + row, std::min(packed, rows.count - row), k, steps},
                    packed_elements(row, steps));
        multiply_strip({rows, {row, std::min(kStripRows, rows.count - row)}}, {columns, part},
                       {k, steps, 0, 0});
      }
    }
  }

  void pack_rows(PackRange const& range, std::int64_t at) const {
    std::int64_t const stride = stored_stride(args_.a, args_.M, args_.K);
    bool const k_major = args_.a.transposed;
    if (split_.parts == 1)
      pack_left({static_cast<bf16 const*>(args_.a.data), stride, k_major}, range,
                buffers_.strips + at);
    else
      pack_left({static_cast<float const*>(args_.a.data), stride, k_major}, range,
                {buffers_.strips + at, buffers_.strip_part, buffers_.room});
  }

  void pack_columns(PackRange const& range) const {
    std::int64_t const stride = stored_stride(args_.b, args_.K, args_.N);
    bool const k_major = !args_.b.transposed;
    if (split_.parts == 1)
      pack_right({static_cast<bf16 const*>(args_.b.data), stride, k_major}, range, buffers_.panels);
    else
      pack_right({static_cast<float const*>(args_.b.data), stride, k_major}, range,
                 {buffers_.panels, buffers_.panel_part, buffers_.room});
  }

  // A strip of rows with all panels of a part, group by group.
  void multiply_strip(Within const& rows, Within const& columns, Depth depth) const {
    std::int64_t const panels = div_ceil(columns.part.count, kStripRows);
    for (std::int64_t group = 0; group < panels; group += kGroup)
      for (depth.from = 0; depth.from < depth.steps; depth.from += split_.step) {
        depth.count = std::min(split_.step, depth.steps - depth.from);
        for (std::int64_t panel = group; panel < std::min(panels, group + kGroup); ++panel)
          multiply_panel(rows, columns, panel, depth);
      }
  }

  void multiply_panel(Within const& rows, Within const& columns, std::int64_t panel,
                      Depth const& depth) const {
    std::int64_t const strip_elements = div_ceil(depth.steps, kPairTileK) * 2 * kPairTileElements;
    std::int64_t const skipped = depth.from * kStripRows;
    std::int64_t const column = panel * kStripRows;
    SumsShape const& sums = buffers_.shape;
    TileBlock block;
    block.strip = buffers_.strips + rows.part.begin / kStripRows * strip_elements + skipped;
    block.panel = buffers_.panels + panel * strip_elements + skipped;
    block.steps = div_ceil(depth.count, kPairTileK);
    block.parts = split_.parts;
    block.strip_part = buffers_.strip_part;
    block.panel_part = buffers_.panel_part;
    block.c_stride = sums.columns;
    block.c = sums.whole
                  ? buffers_.sums + rows.part.begin * sums.columns + columns.part.begin + column
                  : buffers_.sums + panel % kGroup * kStripRows;
    // The next strip is on its way while this one meets its panels.
    block.next_strip.lines = div_ceil(kLinesOfStep, div_ceil(columns.part.count, kStripRows));
    block.next_strip.first = reinterpret_cast<char const*>(block.strip + strip_elements) +
                             panel * block.next_strip.lines * block.steps * kLineBytes;
    multiply_one(block, {rows.whole.begin + rows.part.begin, rows.part.count},
                 {columns.whole.begin + columns.part.begin + column,
                  std::min(kStripRows, columns.part.count - column)},
                 depth);
  }

  // A block of up to 32 x 32.
  void multiply_one(TileBlock& block, Extent rows, Extent columns, Depth const& depth) const {
    bool const whole = buffers_.shape.whole;
    bool const last =
        depth.from + depth.count == depth.steps && (!whole || depth.k + depth.steps == args_.K);
    block.row_tiles = rows.count > kPairTileRows ? 2 : 1;
    block.column_tiles = columns.count > kPairTileRows ? 2 : 1;
    block.accumulate = depth.from > 0 || (whole && depth.k > 0);
    bool const later = !whole && depth.k > 0;  // the result has the sums of earlier passes
    bool const streams = last && !later && streams_result(columns);
    block.result = nullptr;
    if (last && !streams && rows.count == kStripRows) {
      std::int64_t const size = args_.c_type == DType::bf16 ? 2 : 4;
      block.result =
          static_cast<char const*>(args_.c) + (rows.begin * c_stride_ + columns.begin) * size;
      block.result_stride = c_stride_ * size;
      block.result_bytes = columns.count * size;
    }
    multiply_block(unit_, block);
    if (!last) return;
    if (streams)
      return stream_block(block.c, block.c_stride, rows.count,
                          static_cast<float*>(args_.c) + rows.begin * c_stride_ + columns.begin,
                          c_stride_);
    run_on(Isa::avx512, [&](auto) { deliver(block, rows, columns, later); });
  }

  // Whole lines of a result that is set.
  bool streams_result(Extent columns) const {
    auto const address =
        reinterpret_cast<std::uintptr_t>(static_cast<float*>(args_.c) + columns.begin);
    return args_.cold && args_.c_type == DType::f32 && !args_.accumulate && args_.bias == nullptr &&
           columns.count == kStripRows && c_stride_ % 16 == 0 && address % kLineBytes == 0;
  }

  // A block's sums to where they belong, or added to what is there.
  void deliver(TileBlock const& block, Extent rows, Extent columns, bool later) const {
    bool const add = args_.accumulate || later;
    float bias[kStripRows];
    bool const with_bias = args_.bias != nullptr && !later;
    for (std::int64_t i = 0; with_bias && i < columns.count; ++i)
      bias[i] = bias_at(columns.begin + i);
    if (args_.c_type == DType::bf16 && columns.count == kStripRows)
      return round_block({block.c, block.c_stride, with_bias ? bias : nullptr,
                          static_cast<bf16*>(args_.c) + rows.begin * c_stride_ + columns.begin,
                          c_stride_, rows.count});
    for (std::int64_t r = 0; r < rows.count; ++r) {
      float const* const sums = block.c + r * block.c_stride;
      std::int64_t const offset = (rows.begin + r) * c_stride_ + columns.begin;
      // A whole row has a width that the compiler knows.
      if (columns.count == kStripRows)
        deliver_row(sums, with_bias ? bias : nullptr, offset, kStripRows, add);
      else
        deliver_row(sums, with_bias ? bias : nullptr, offset, columns.count, add);
    }
  }

  float bias_at(std::int64_t column) const {
    return args_.a.type == DType::f32
               ? static_cast<float const*>(args_.bias)[column]
               : static_cast<float>(static_cast<bf16 const*>(args_.bias)[column]);
  }

  [[gnu::always_inline]] void deliver_row(float const* sums, float const* bias, std::int64_t offset,
                                          std::int64_t count, bool add) const {
    float row[kStripRows];
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) row[i] = sums[i];
    if (bias != nullptr) {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) row[i] += bias[i];
    }
    if (args_.c_type == DType::bf16) {
      bf16* const c = static_cast<bf16*>(args_.c) + offset;
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) store(c[i], row[i]);
      return;
    }
    float* const c = static_cast<float*>(args_.c) + offset;
    if (add) {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) c[i] += row[i];
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < count; ++i) c[i] = row[i];
    }
  }

  MatmulArgs const& args_;
  Split const& split_;
  Buffers const& buffers_;
  TileUnit unit_;
  std::int64_t c_stride_;
};

}  // namespace

std::size_t matmul_tiles_scratch_bytes(MatmulArgs const& args, int threads) {
  return buffer_bytes(args, Split(args, threads)) * static_cast<std::size_t>(threads);
}

std::size_t matmul_tiles_scratch_bound(MatmulArgs const& args, int threads) {
  int const parts = args.a.type == DType::f32 ? kFloatParts : 1;
  std::int64_t const rows = std::min(round_up(args.M, kStripRows), kMostRows);
  std::int64_t const depth =
      std::min(round_up(args.K, kPairTileK), round_up(kMostK / parts, kPairTileK));
  std::int64_t const columns = round_up(args.N, kStripRows);
  // Panels of one part are rounded up to whole ones.
  std::int64_t const panels = std::min(columns * depth, kPanelsElements + kStripRows * depth);
  bool const whole = args.K > depth && args.c_type == DType::bf16;
  std::size_t const one =
      scratch_bytes<bf16>(parts * rows * depth) + scratch_bytes<bf16>(parts * panels) +
      scratch_bytes<bf16>(split_room(depth)) +
      scratch_bytes<float>(whole ? rows * columns : kStripRows * kGroup * kStripRows);
  return one * static_cast<std::size_t>(threads);
}

void matmul_tiles(MatmulArgs const& args, device::Stream& stream, TileUnit unit) {
  expect(unit != TileUnit::none && unit <= best_tile_unit(), "the processor has the tile unit");
  expect(unit == TileUnit::amx || args.a.type == DType::bf16, "fp32 numbers in parts need AMX");
  int const threads = stream.threads();
  Split const split(args, threads);
  std::size_t const bytes = buffer_bytes(args, split);
  Scratch const scratch(stream.scratch(), bytes * static_cast<std::size_t>(threads), "matmul");
  for_each_task(threads, threads, [&](std::int64_t task, int thread) {
    Scratch mine = scratch.part(thread, bytes);
    Buffers const buffers(mine, args, split);
    Extent const rows = extent(task / split.across_columns, split.rows, args.M);
    Extent const columns = extent(task % split.across_columns, split.columns, args.N);
    if (rows.count == 0 || columns.count == 0) return;
    TileSession const session(unit);
    Rectangle(args, split, buffers, unit).multiply(rows, columns);
    if (args.cold) finish_streams();
  });
}

}  // namespace spillway::ops::detail
