// Blocked attention against plain attention in double precision.
#include "lib/ops/attention.hpp"

#include "lib/core/error.hpp"
#include "lib/ops/detail/attention.hpp"
#include "lib/ops/detail/attention_pairs.hpp"
#include "tests/lib/ops/ops_support.hpp"

namespace spillway::ops {
namespace {

using namespace testing_ops;  // NOLINT
using reference::AttentionSizes;

std::int64_t to_signed(std::size_t value) { return static_cast<std::int64_t>(value); }

// q, k, v in one [B*T, q|k|v] matrix, as the model has them, or each in its own.
template <class T>
struct Case {
  AttentionSizes s;
  bool packed;
  std::vector<T> q, k, v, qkv, out, dout, dqkv;
  std::vector<float> logsumexp;

  Case(AttentionSizes sizes, bool in_one_matrix, float spread = 1.0f)
      : s(sizes), packed(in_one_matrix) {
    s.scale = 1 / std::sqrt(static_cast<double>(s.head_dim));
    std::size_t const rows = s.B * s.T, q_width = s.heads * s.head_dim;
    std::size_t const kv_width = s.kv_heads * s.head_dim;
    q = random_values<T>(rows * q_width, "q", spread);
    k = random_values<T>(rows * kv_width, "k", spread);
    v = random_values<T>(rows * kv_width, "v");
    dout = random_values<T>(rows * q_width, "dout");
    out.resize(rows * q_width);
    logsumexp.resize(s.B * s.heads * s.T);
    qkv.resize(rows * (q_width + 2 * kv_width));
    dqkv.assign(qkv.size(), T(99.0f));
    for (std::size_t r = 0; r < rows; ++r) {
      std::copy_n(&q[r * q_width], q_width, &qkv[r * width()]);
      std::copy_n(&k[r * kv_width], kv_width, &qkv[r * width() + q_width]);
      std::copy_n(&v[r * kv_width], kv_width, &qkv[r * width() + q_width + kv_width]);
    }
  }

  std::size_t width() const { return (s.heads + 2 * s.kv_heads) * s.head_dim; }

  AttentionForward<T> args() {
    std::size_t const q_width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
    return {.B = to_signed(s.B),
            .T_ = to_signed(s.T),
            .heads = to_signed(s.heads),
            .kv_heads = to_signed(s.kv_heads),
            .head_dim = to_signed(s.head_dim),
            .scale = static_cast<float>(s.scale),
            .window = to_signed(s.window),
            .q = packed ? qkv.data() : q.data(),
            .k = packed ? qkv.data() + q_width : k.data(),
            .v = packed ? qkv.data() + q_width + kv_width : v.data(),
            .q_stride = to_signed(packed ? width() : q_width),
            .k_stride = to_signed(packed ? width() : kv_width),
            .v_stride = to_signed(packed ? width() : kv_width),
            .out_stride = to_signed(q_width),
            .out = out.data(),
            .logsumexp = logsumexp.data()};
  }

  // Gradients go to a matrix laid out as the packed one.
  AttentionBackward<T> backward_args() {
    packed = true;
    std::size_t const q_width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
    return {.forward = args(),
            .dout = dout.data(),
            .dq = dqkv.data(),
            .dk = dqkv.data() + q_width,
            .dv = dqkv.data() + q_width + kv_width};
  }

  // Columns [first, first + count) of the packed gradient.
  std::vector<T> gradient(std::size_t first, std::size_t count) const {
    std::vector<T> part;
    for (std::size_t r = 0; r < s.B * s.T; ++r)
      for (std::size_t c = 0; c < count; ++c) part.push_back(dqkv[r * width() + first + c]);
    return part;
  }

  std::unique_ptr<device::Stream> exact_stream(int threads = 2) const {
    return make_stream(threads,
                       attention_scratch_bytes(to_signed(s.B), to_signed(s.T), to_signed(s.heads),
                                               to_signed(s.head_dim), threads));
  }
};

std::vector<AttentionSizes> all_sizes() {
  std::vector<AttentionSizes> sizes;
  for (std::size_t const T : {1, 2, 17, 49, 131})
    for (std::size_t const head_dim : {16, 32, 64, 80})
      sizes.push_back({.B = 1, .T = T, .heads = 2, .kv_heads = 2, .head_dim = head_dim});
  for (std::size_t const T : {1, 17, 49, 200}) {
    sizes.push_back({.B = 2, .T = T, .heads = 4, .kv_heads = 2, .head_dim = 32});
    sizes.push_back({.B = 1, .T = T, .heads = 9, .kv_heads = 3, .head_dim = 64});
    sizes.push_back({.B = 1, .T = T, .heads = 3, .kv_heads = 1, .head_dim = 6});
  }
  for (std::size_t const window : {1, 2, 16, 48, 97, 1000})
    for (std::size_t const T : {1, 49, 300})
      sizes.push_back(
          {.B = 1, .T = T, .heads = 4, .kv_heads = 2, .head_dim = 16, .window = window});
  return sizes;
}

std::string describe(AttentionSizes const& s) {
  return "B " + std::to_string(s.B) + " T " + std::to_string(s.T) + " heads " +
         std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " dim " +
         std::to_string(s.head_dim) + " window " + std::to_string(s.window);
}

template <class T>
class Attention : public ::testing::Test {};
TYPED_TEST_SUITE(Attention, FloatTypes);

TYPED_TEST(Attention, forward_matches_double) {
  for (AttentionSizes const& sizes : all_sizes())
    for (bool const packed : {false, true}) {
      Case<TypeParam> c(sizes, packed);
      detail::attention_forward(c.args(), *c.exact_stream(), detail::widest_isa());
      auto const expected = reference::attention(c.s, widen(c.q), widen(c.k), widen(c.v));
      expect_close(c.out, expected.out, sizeof(TypeParam) == 2 ? 1.02 : 64,
                   describe(sizes).c_str());
      expect_close_norm(c.out, expected.out, sizeof(TypeParam) == 2 ? 0.6 : 8,
                        describe(sizes).c_str());
      expect_close(c.logsumexp, expected.logsumexp, 16, describe(sizes).c_str());
    }
}

TYPED_TEST(Attention, backward_matches_double) {
  for (AttentionSizes const& sizes : all_sizes()) {
    Case<TypeParam> c(sizes, true);
    detail::attention_forward(c.args(), *c.exact_stream(), detail::widest_isa());
    detail::attention_backward(c.backward_args(), *c.exact_stream(), detail::widest_isa());
    auto const expected =
        reference::attention_backward(c.s, widen(c.q), widen(c.k), widen(c.v), widen(c.dout));
    // With bf16, backward sees the output as it was rounded.
    double const units = sizeof(TypeParam) == 2 ? 2 : 16;
    std::size_t const q_width = c.s.heads * c.s.head_dim, kv_width = c.s.kv_heads * c.s.head_dim;
    std::string const what = describe(sizes);
    expect_close_norm(c.gradient(q_width + kv_width, kv_width), expected.dv, units,
                      (what + " dv").c_str());
    if (sizes.T <= 2 || sizes.window == 1) continue;  // one or two keys: dq and dk are (close to) 0
    expect_close_norm(c.gradient(0, q_width), expected.dq, units, (what + " dq").c_str());
    expect_close_norm(c.gradient(q_width, kv_width), expected.dk, units, (what + " dk").c_str());
  }
}

// On packed tiles, where the processor has a unit for them: probabilities and their gradients are
// rounded to bf16 before they are multiplied.
class AttentionUnits : public ::testing::TestWithParam<detail::TileUnit> {
 protected:
  void SetUp() override {
    if (detail::best_tile_unit() < GetParam()) GTEST_SKIP() << "this processor has no such unit";
  }
};

TEST_P(AttentionUnits, forward_and_backward_match_double) {
  for (AttentionSizes const& sizes : all_sizes()) {
    Case<bf16> c(sizes, true);
    detail::attention_pairs_forward(c.args(), *c.exact_stream(3), GetParam());
    detail::attention_pairs_backward(c.backward_args(), *c.exact_stream(3), GetParam());
    auto const expected = reference::attention(c.s, widen(c.q), widen(c.k), widen(c.v));
    std::string const what = describe(sizes);
    expect_close(c.out, expected.out, 5, what.c_str());
    expect_close_norm(c.out, expected.out, 1, what.c_str());
    expect_close(c.logsumexp, expected.logsumexp, 16, what.c_str());
    auto const gradient =
        reference::attention_backward(c.s, widen(c.q), widen(c.k), widen(c.v), widen(c.dout));
    std::size_t const q_width = c.s.heads * c.s.head_dim, kv_width = c.s.kv_heads * c.s.head_dim;
    expect_close_norm(c.gradient(q_width + kv_width, kv_width), gradient.dv, 2,
                      (what + " dv").c_str());
    if (sizes.T <= 2 || sizes.window == 1) continue;  // one or two keys: dq and dk are (close to) 0
    expect_close_norm(c.gradient(0, q_width), gradient.dq, 2, (what + " dq").c_str());
    expect_close_norm(c.gradient(q_width, kv_width), gradient.dk, 2, (what + " dk").c_str());
  }
}

INSTANTIATE_TEST_SUITE_P(Units, AttentionUnits,
                         ::testing::Values(detail::TileUnit::avx512_bf16, detail::TileUnit::amx),
                         [](auto const& unit) {
                           return unit.param == detail::TileUnit::amx ? "amx" : "avx512_bf16";
                         });

TEST(AttentionReference, backward_matches_finite_differences) {
  for (std::size_t const window : {0, 3}) {
    AttentionSizes const s{
        .B = 2, .T = 5, .heads = 4, .kv_heads = 2, .head_dim = 3, .window = window, .scale = 0.6};
    Doubles const q = widen(random_values<float>(2 * 5 * 4 * 3, "q"));
    Doubles const k = widen(random_values<float>(2 * 5 * 2 * 3, "k"));
    Doubles const v = widen(random_values<float>(2 * 5 * 2 * 3, "v"));
    Doubles const dout = widen(random_values<float>(q.size(), "dout"));
    auto const loss = [&](Doubles const& at_q, Doubles const& at_k, Doubles const& at_v) {
      return reference::dot(dout, reference::attention(s, at_q, at_k, at_v).out);
    };
    auto const g = reference::attention_backward(s, q, k, v, dout);
    auto const expect_equal = [](Doubles const& a, Doubles const& b) {
      for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-8);
    };
    expect_equal(g.dq,
                 reference::numeric_gradient(q, [&](auto const& x) { return loss(x, k, v); }));
    expect_equal(g.dk,
                 reference::numeric_gradient(k, [&](auto const& x) { return loss(q, x, v); }));
    expect_equal(g.dv,
                 reference::numeric_gradient(v, [&](auto const& x) { return loss(q, k, x); }));
  }
}

TYPED_TEST(Attention, large_scores_do_not_overflow) {
  Case<TypeParam> c({.B = 1, .T = 49, .heads = 2, .kv_heads = 2, .head_dim = 32}, true, 40.0f);
  attention_forward(c.args(), *c.exact_stream());
  attention_backward(c.backward_args(), *c.exact_stream());
  auto const expected = reference::attention(c.s, widen(c.q), widen(c.k), widen(c.v));
  // Scores of several thousand are themselves rounded, so the softmax is less exact.
  expect_close(c.out, expected.out, sizeof(TypeParam) == 2 ? 4 : 1e5);
  for (TypeParam const value : c.dqkv) ASSERT_TRUE(std::isfinite(static_cast<float>(value)));
}

TYPED_TEST(Attention, later_positions_do_not_show_in_earlier_ones) {
  AttentionSizes const sizes{.B = 1, .T = 131, .heads = 2, .kv_heads = 1, .head_dim = 16};
  Case<TypeParam> whole(sizes, false), changed(sizes, false);
  for (std::size_t i = 100 * 16; i < changed.k.size(); ++i)
    changed.k[i] = changed.v[i] = TypeParam(50.0f);
  attention_forward(whole.args(), *whole.exact_stream());
  attention_forward(changed.args(), *changed.exact_stream());
  std::size_t const before = 100 * 2 * 16;
  EXPECT_EQ(std::memcmp(whole.out.data(), changed.out.data(), before * sizeof(TypeParam)), 0);
  EXPECT_NE(std::memcmp(whole.out.data(), changed.out.data(), whole.out.size() * sizeof(TypeParam)),
            0);
}

TYPED_TEST(Attention, results_do_not_depend_on_threads) {
  AttentionSizes const sizes{.B = 2, .T = 200, .heads = 6, .kv_heads = 3, .head_dim = 32};
  Case<TypeParam> one(sizes, true), many(sizes, true);
  attention_forward(one.args(), *one.exact_stream(1));
  attention_backward(one.backward_args(), *one.exact_stream(1));
  attention_forward(many.args(), *many.exact_stream(5));
  attention_backward(many.backward_args(), *many.exact_stream(5));
  EXPECT_TRUE(same_bits(one.out, many.out));
  EXPECT_TRUE(same_bits(one.logsumexp, many.logsumexp));
  EXPECT_TRUE(same_bits(one.dqkv, many.dqkv));
}

TYPED_TEST(Attention, agrees_on_the_baseline_instruction_set) {
  AttentionSizes const sizes{.B = 1, .T = 131, .heads = 4, .kv_heads = 2, .head_dim = 80};
  Case<TypeParam> c(sizes, true);
  auto const stream = c.exact_stream();
  detail::attention_forward(c.args(), *stream, detail::Isa::baseline);
  detail::attention_backward(c.backward_args(), *stream, detail::Isa::baseline);
  auto const expected = reference::attention(c.s, widen(c.q), widen(c.k), widen(c.v));
  auto const gradient =
      reference::attention_backward(c.s, widen(c.q), widen(c.k), widen(c.v), widen(c.dout));
  expect_close_norm(c.out, expected.out, sizeof(TypeParam) == 2 ? 0.6 : 8);
  expect_close_norm(c.gradient(0, 320), gradient.dq, sizeof(TypeParam) == 2 ? 2 : 16);
}

TEST(AttentionScratch, grows_with_the_length_and_not_with_its_square) {
  std::size_t const at_1k = attention_scratch_bytes(1, 1024, 12, 64, 2);
  std::size_t const at_4k = attention_scratch_bytes(1, 4096, 12, 64, 2);
  EXPECT_LE(at_4k, 4 * at_1k);
}

TEST(AttentionScratch, too_little_of_it_is_an_error_that_names_the_bytes) {
  Case<float> c({.B = 1, .T = 17, .heads = 2, .kv_heads = 2, .head_dim = 16}, true);
  try {
    attention_forward(c.args(), *make_stream(1, 64));
    FAIL() << "ran without scratch";
  } catch (Error const& error) {
    EXPECT_NE(error.problem().find("has 64"), std::string::npos) << error.what();
  }
}

TEST(AttentionArguments, heads_that_do_not_divide_are_refused) {
  Case<float> c({.B = 1, .T = 2, .heads = 2, .kv_heads = 2, .head_dim = 16}, true);
  auto args = c.args();
  args.heads = 3;
  EXPECT_THROW(attention_forward(args, *make_stream()), Error);
}

}  // namespace
}  // namespace spillway::ops
