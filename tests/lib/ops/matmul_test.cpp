// Matrix products against double precision: all layouts, types and ways of computing them.
#include "lib/ops/matmul.hpp"

#include "lib/core/error.hpp"
#include "lib/ops/detail/matmul_paths.hpp"
#include "tests/lib/ops/ops_support.hpp"

namespace spillway::ops {
namespace {

using namespace testing_ops;  // NOLINT

struct Shape {
  std::size_t M, N, K;
};
// Single rows, odd sizes, and sizes over the blocks of the bf16 path.
constexpr Shape kShapes[] = {{1, 1, 1},   {1, 17, 49},    {2, 3, 5},     {17, 49, 16},
                             {49, 80, 2}, {64, 128, 200}, {390, 515, 9}, {5, 7, 2100}};

enum class Way { chosen, primitive, blocks, baseline, avx512_tiles, amx_tiles };

// One product with dense or padded rows.
template <class T, class Out>
struct Product {
  Shape shape;
  std::vector<T> a, b, bias;
  std::vector<Out> c;
  MatmulArgs args;
  std::size_t c_stride;

  Product(Shape s, bool a_transposed, bool b_transposed, std::size_t padding)
      : shape(s), c_stride(s.N + padding) {
    std::size_t const a_rows = a_transposed ? s.K : s.M, a_width = a_transposed ? s.M : s.K;
    std::size_t const b_rows = b_transposed ? s.N : s.K, b_width = b_transposed ? s.K : s.N;
    a = random_values<T>(a_rows * (a_width + padding), "a");
    b = random_values<T>(b_rows * (b_width + padding), "b");
    bias = random_values<T>(s.N, "bias", 3.0f);
    c = random_values<Out>(s.M * c_stride, "c");
    args = {.M = static_cast<std::int64_t>(s.M),
            .N = static_cast<std::int64_t>(s.N),
            .K = static_cast<std::int64_t>(s.K),
            .a = {a.data(), dtype_of<T>, a_transposed,
                  padding == 0 ? 0 : static_cast<std::int64_t>(a_width + padding)},
            .b = {b.data(), dtype_of<T>, b_transposed,
                  padding == 0 ? 0 : static_cast<std::int64_t>(b_width + padding)},
            .c = c.data(),
            .c_type = dtype_of<Out>,
            .c_stride = padding == 0 ? 0 : static_cast<std::int64_t>(c_stride)};
  }

  double at(std::vector<T> const& values, Matrix const& m, std::size_t rows, std::size_t columns,
            std::size_t row, std::size_t column) const {
    std::size_t const stride =
        m.stride != 0 ? static_cast<std::size_t>(m.stride) : (m.transposed ? rows : columns);
    std::size_t const index = m.transposed ? column * stride + row : row * stride + column;
    return static_cast<double>(static_cast<float>(values[index]));
  }

  // What c should become; columns past N stay.
  Doubles expected() const {
    Doubles wide_a(shape.M * shape.K), wide_b(shape.K * shape.N), result = widen(c);
    for (std::size_t m = 0; m < shape.M; ++m)
      for (std::size_t k = 0; k < shape.K; ++k)
        wide_a[m * shape.K + k] = at(a, args.a, shape.M, shape.K, m, k);
    for (std::size_t k = 0; k < shape.K; ++k)
      for (std::size_t n = 0; n < shape.N; ++n)
        wide_b[k * shape.N + n] = at(b, args.b, shape.K, shape.N, k, n);
    Doubles const product = reference::matmul(shape.M, shape.N, shape.K, wide_a, wide_b);
    for (std::size_t m = 0; m < shape.M; ++m)
      for (std::size_t n = 0; n < shape.N; ++n) {
        double& value = result[m * c_stride + n];
        value = (args.accumulate ? value : 0) + product[m * shape.N + n] +
                (args.bias == nullptr ? 0 : static_cast<double>(static_cast<float>(bias[n])));
      }
    return result;
  }

  void run(Way way, device::Stream& stream) {
    if (way == Way::primitive) return detail::matmul_primitive(args, stream);
    if (way == Way::blocks) return detail::matmul_bf16_blocks(args, stream, detail::widest_isa());
    if (way == Way::avx512_tiles)
      return detail::matmul_tiles(args, stream, detail::TileUnit::avx512_bf16);
    if (way == Way::amx_tiles) return detail::matmul_tiles(args, stream, detail::TileUnit::amx);
    if (way == Way::baseline)
      return detail::matmul_bf16_blocks(args, stream, detail::Isa::baseline);
    matmul(args, stream);
  }
};

template <class T, class Out>
void expect_all_layouts_right(Way way) {
  auto const stream = make_stream();
  double const units = sizeof(Out) == 2 ? 1.02 : 64;
  for (Shape const& shape : kShapes)
    for (int const layout : {0, 1, 2, 3})
      for (std::size_t const padding : {0, 3})
        for (bool const with_bias : {false, true})
          for (bool const accumulate : {false, true}) {
            if (accumulate && sizeof(Out) == 2) continue;
            if (shape.M > 100 && padding == 0) continue;  // large: once is enough
            Product<T, Out> p(shape, (layout & 1) != 0, (layout & 2) != 0, padding);
            if (with_bias) p.args.bias = p.bias.data();
            p.args.accumulate = accumulate;
            Doubles const expected = p.expected();
            p.run(way, *stream);
            expect_close(p.c, expected, units);
            if (::testing::Test::HasFailure())
              FAIL() << shape.M << ' ' << shape.N << ' ' << shape.K << " layout " << layout
                     << " padding " << padding << " bias " << with_bias;
          }
}

TEST(Matmul, fp32_matches_double_in_all_layouts) {
  expect_all_layouts_right<float, float>(Way::chosen);
}
TEST(Matmul, bf16_to_fp32_matches_double_in_all_layouts) {
  expect_all_layouts_right<bf16, float>(Way::chosen);
}
TEST(Matmul, bf16_to_bf16_matches_double_in_all_layouts) {
  expect_all_layouts_right<bf16, bf16>(Way::chosen);
}
TEST(Matmul, primitives_match_double_in_all_layouts) {
  expect_all_layouts_right<float, float>(Way::primitive);
}
TEST(Matmul, bf16_blocks_match_double_on_any_processor) {
  expect_all_layouts_right<bf16, float>(Way::blocks);
  expect_all_layouts_right<bf16, bf16>(Way::blocks);
  expect_all_layouts_right<bf16, float>(Way::baseline);
}

// The processor's own units, where it has them. GTEST_SKIP says so where it has not.
class MatmulTiles : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    auto const needed =
        GetParam() == Way::amx_tiles ? detail::TileUnit::amx : detail::TileUnit::avx512_bf16;
    if (detail::best_tile_unit() < needed) GTEST_SKIP() << "this processor has no such unit";
  }
};

TEST_P(MatmulTiles, match_double_in_all_layouts) {
  expect_all_layouts_right<bf16, float>(GetParam());
  expect_all_layouts_right<bf16, bf16>(GetParam());
}

// In units of fp32's rounding: sums that are added up in order have a few.
TEST(Matmul, fp32_on_amx_has_the_accuracy_of_fp32) {
  if (detail::best_tile_unit() != detail::TileUnit::amx) GTEST_SKIP() << "there is no AMX";
  expect_all_layouts_right<float, float>(Way::amx_tiles);
  // Numbers of very different size, so that the small parts of large ones count.
  for (Shape const shape : {Shape{70, 343, 1700}, Shape{1100, 40, 33}}) {
    Product<float, float> p(shape, false, true, 0);
    for (std::size_t i = 0; i < p.a.size(); i += 3) p.a[i] *= 1e-4f;
    Doubles const expected = p.expected();
    p.run(Way::amx_tiles, *make_stream(3));
    expect_close_norm(p.c, expected, 6);
  }
}

// More rows, columns and k than are packed at once; edges that fill half a strip or less.
TEST_P(MatmulTiles, match_double_over_several_packings) {
  for (Shape const shape : {Shape{2100, 33, 40}, Shape{50, 700, 40}, Shape{70, 343, 3100}})
    for (int const layout : {0, 3}) {
      Product<bf16, bf16> narrow(shape, layout != 0, layout != 0, 5);
      narrow.args.bias = narrow.bias.data();
      Doubles const rounded = narrow.expected();
      narrow.run(GetParam(), *make_stream(1));
      expect_close(narrow.c, rounded, 1.02);
      Product<bf16, float> wide(shape, layout != 0, layout != 0, 0);
      wide.args.accumulate = true;
      wide.args.bias = wide.bias.data();
      Doubles const expected = wide.expected();
      wide.run(GetParam(), *make_stream(3));
      expect_close(wide.c, expected, 64);
    }
}

TEST_P(MatmulTiles, writes_a_cold_result_past_the_caches_with_the_same_bits) {
  for (std::size_t const padding : {0, 16, 3}) {
    Product<bf16, float> warm({70, 96, 100}, true, false, padding), cold = warm;
    cold.args.a.data = cold.a.data();
    cold.args.b.data = cold.b.data();
    cold.args.c = cold.c.data();
    cold.args.cold = true;
    warm.run(GetParam(), *make_stream(2));
    cold.run(GetParam(), *make_stream(2));
    EXPECT_TRUE(same_bits(warm.c, cold.c)) << padding;
  }
}

TEST_P(MatmulTiles, bits_do_not_depend_on_threads) {
  Product<bf16, float> one({390, 515, 600}, false, true, 0), many = one;
  many.args.c = many.c.data();
  one.run(GetParam(), *make_stream(1));
  many.run(GetParam(), *make_stream(5));
  EXPECT_TRUE(same_bits(one.c, many.c));
}

INSTANTIATE_TEST_SUITE_P(Units, MatmulTiles, ::testing::Values(Way::avx512_tiles, Way::amx_tiles),
                         [](auto const& way) {
                           return way.param == Way::amx_tiles ? "amx" : "avx512_bf16";
                         });

TEST(Matmul, repeats_its_bits_and_those_of_kept_primitives) {
  auto const stream = make_stream(2);
  for (Way const way : {Way::chosen, Way::primitive}) {
    Product<float, float> first({64, 128, 200}, false, true, 0), second = first;
    second.args.a.data = second.a.data();
    second.args.b.data = second.b.data();
    second.args.c = second.c.data();
    first.run(way, *stream);
    second.run(way, *stream);
    EXPECT_TRUE(same_bits(first.c, second.c));
  }
}

TEST(Matmul, bits_of_bf16_blocks_do_not_depend_on_threads) {
  Product<bf16, float> one({390, 515, 600}, false, true, 0), many = one;
  many.args.c = many.c.data();
  one.run(Way::blocks, *make_stream(1));
  many.run(Way::blocks, *make_stream(5));
  EXPECT_TRUE(same_bits(one.c, many.c));
}

TEST(Matmul, stays_within_the_scratch_that_it_names_and_says_so_where_there_is_less) {
  Product<bf16, bf16> p({400, 530, 33}, false, true, 0);
  std::size_t const bytes = matmul_scratch_bytes(p.args, 2);
  EXPECT_LE(bytes, std::size_t{4} << 20);
  Doubles const expected = p.expected();
  p.run(Way::chosen, *make_stream(2, bytes));
  expect_close(p.c, expected, 1.02);
  std::size_t const blocks = detail::matmul_blocks_scratch_bytes(p.args, 2);
  EXPECT_THROW(p.run(Way::blocks, *make_stream(2, blocks - 1)), Error);
}

TEST(Matmul, a_bound_of_scratch_holds_for_every_smaller_product) {
  MatmulArgs args{.M = 4500, .N = 1000, .K = 6700, .a = {}, .b = {}};
  for (DType const type : {DType::f32, DType::bf16})
    for (DType const c_type : {DType::f32, type}) {
      args.a.type = args.b.type = type;
      args.c_type = c_type;
      args.M = 4500;
      args.K = 6700;
      std::size_t const bound = matmul_scratch_bound(args, 2);
      for (std::int64_t const M : {1, 31, 33, 1000, 1025, 2047, 2049, 4095, 4097, 4500})
        for (std::int64_t const K : {1, 33, 255, 257, 1023, 1025, 3071, 3073, 6143, 6145, 6700}) {
          args.M = M;
          args.K = K;
          EXPECT_LE(matmul_scratch_bytes(args, 2), bound) << M << ' ' << K;
          EXPECT_LE(detail::matmul_blocks_scratch_bytes(args, 2),
                    detail::matmul_blocks_scratch_bound(2));
        }
    }
}

TEST(Matmul, adds_many_tiny_products_to_an_fp32_accumulator_without_losing_them) {
  // 64 micro-batches of gradients of 1e-3 on an accumulator that ends near 64 * 16 * 1e-6.
  std::vector<bf16> const a(16, bf16(1e-3f)), b(16, bf16(1e-3f));
  float c = 0;
  auto const stream = make_stream();
  for (int i = 0; i < 64; ++i)
    matmul({.M = 1,
            .N = 1,
            .K = 16,
            .a = {a.data(), DType::bf16},
            .b = {b.data(), DType::bf16},
            .c = &c,
            .accumulate = true},
           *stream);
  double const value = static_cast<double>(static_cast<float>(a[0]));
  EXPECT_NEAR(static_cast<double>(c) / (64 * 16 * value * value), 1.0, 1e-5);
}

TEST(Matmul, refuses_mixed_types_and_bf16_accumulators) {
  Product<bf16, bf16> p({2, 3, 5}, false, false, 0);
  auto const stream = make_stream();
  p.args.accumulate = true;
  EXPECT_THROW(matmul(p.args, *stream), Error);
  p.args.accumulate = false;
  p.args.b.type = DType::f32;
  EXPECT_THROW(matmul(p.args, *stream), Error);
}

TEST(Matmul, an_empty_result_is_no_work) {
  auto const stream = make_stream();
  EXPECT_NO_THROW(matmul({.M = 0, .N = 4, .K = 4}, *stream));
}

}  // namespace
}  // namespace spillway::ops
