// What a block keeps never changes a bit; how the head cuts its rows changes only rounding.
#include <gtest/gtest.h>

#include <cstring>

#include "lib/core/error.hpp"
#include "lib/model/weight_source.hpp"
#include "tests/lib/model/cases.hpp"

namespace spillway::test {
namespace {

using model::Keep;

struct Setting {
  char const* name;
  DType compute;
  int threads;
};

class RecomputeTest : public testing::TestWithParam<Setting> {
 protected:
  Case const case_ = std::string(GetParam().name).rfind("tiny", 0) == 0
                         ? oracle_case(GetParam().name)
                         : reference_case(GetParam().name);

  ResidentModel run(Keep keep, model::LossSum& sum) {
    ResidentModel model =
        load(case_, {.compute = GetParam().compute, .keep = keep, .threads = GetParam().threads});
    sum = model.forward_backward(case_.tokens(), 0.01f);
    return model;
  }
};

TEST_P(RecomputeTest, selection_and_nothing_give_the_bits_of_everything) {
  model::LossSum right;
  ResidentModel const everything = run(Keep::everything, right);
  for (Keep keep : {Keep::selection, Keep::nothing}) {
    model::LossSum sum;
    ResidentModel const other = run(keep, sum);
    EXPECT_EQ(std::memcmp(&sum.loss, &right.loss, sizeof right.loss), 0);
    EXPECT_EQ(other.boundary_gradient(), everything.boundary_gradient());
    for (auto const& [name, tensor] : case_.weights) {
      auto const a = everything.gradient(name), b = other.gradient(name);
      EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << name;
    }
  }
}

TEST_P(RecomputeTest, the_less_is_kept_the_less_memory_it_takes) {
  auto const decoder = model::make_decoder(case_.spec, GetParam().compute, case_.shape.T);
  auto const kept = [&](Keep keep) { return decoder->kept_bytes(case_.shape, keep); };
  EXPECT_EQ(kept(Keep::nothing), 0u);
  EXPECT_LT(kept(Keep::selection), kept(Keep::everything));
  EXPECT_GE(decoder->workspace_bytes(case_.shape, Keep::nothing), kept(Keep::everything));
}

INSTANTIATE_TEST_SUITE_P(
    Models, RecomputeTest,
    testing::Values(Setting{"tiny-gpt2", DType::f32, 2}, Setting{"tiny-gpt2", DType::bf16, 2},
                    Setting{"tiny-llama", DType::f32, 1}, Setting{"tiny-llama", DType::bf16, 2},
                    Setting{"tiny-mixtral", DType::f32, 2}, Setting{"tiny-mixtral", DType::bf16, 2},
                    Setting{"tiny-qwen3", DType::f32, 2}, Setting{"tiny-qwen3", DType::bf16, 2},
                    Setting{"llama_odd", DType::bf16, 2}, Setting{"qwen3_biased", DType::bf16, 2},
                    Setting{"mixtral_top3", DType::bf16, 1}, Setting{"gpt2_odd", DType::bf16, 1}));

/// A GPT-2 or Llama whose vocabulary makes the head cut 48 rows into several parts, with random
/// weights.
model::ModelSpec wide_vocabulary(bool tied) {
  std::string const json = R"({"model_type": "llama", "vocab_size": 100003, "hidden_size": 8,
      "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8,
      "max_position_embeddings": 48, "tie_word_embeddings": )" +
                           std::string(tied ? "true}" : "false}");
  return model::make_spec(model::parse_config(json, "test"));
}

ResidentModel random_model(model::ModelSpec const& spec, ResidentModel::Options options) {
  ResidentModel model(spec, options);
  model::RandomWeights source(3);
  for (auto const& unit : spec.units) {
    for (auto tensor : unit.tensors) {
      tensor.init_std *= 20;  // logits that differ
      std::vector<float> values(static_cast<std::size_t>(shard::element_count(tensor.shape)));
      source.read(tensor, 0, values);
      model.set(tensor.name, values);
    }
  }
  return model;
}

class HeadTest : public testing::TestWithParam<bool> {};

TEST_P(HeadTest, rows_in_parts_give_the_loss_and_gradients_of_each_row_alone) {
  auto const spec = wide_vocabulary(GetParam());
  std::vector<std::int32_t> inputs, targets;
  for (int i = 0; i < 48; ++i) {
    inputs.push_back((i * 7919) % 100003);
    targets.push_back(i % 11 == 5 ? -1 : (i * 104729) % 100003);
  }
  model::Tokens const tokens{inputs, targets};
  ResidentModel model = random_model(spec, {.shape = {1, 48}});
  auto const sum = model.forward_backward(tokens, 1);
  // With all other targets masked the head sees one row's loss at a time.
  ResidentModel single = random_model(spec, {.shape = {1, 48}});
  double loss = 0;
  for (std::size_t i = 0; i < targets.size(); i += 6) {
    std::vector<std::int32_t> few(targets.size(), -1);
    std::copy_n(targets.begin() + static_cast<std::ptrdiff_t>(i), 6,
                few.begin() + static_cast<std::ptrdiff_t>(i));
    loss += single.forward_backward({inputs, few}, 1).loss;
  }
  EXPECT_NEAR(sum.loss, loss, 1e-7 * loss);
  EXPECT_EQ(sum.targets, 44);
  for (auto const& unit : spec.units)
    for (auto const& tensor : unit.tensors)
      EXPECT_LT(relative_distance(model.gradient(tensor.name), single.gradient(tensor.name)), 1e-5)
          << tensor.name;
}

TEST_P(HeadTest, kept_and_recomputed_logits_give_the_same_bits) {
  auto const spec = wide_vocabulary(GetParam());
  std::vector<std::int32_t> inputs, targets;
  for (int i = 0; i < 48; ++i) {
    inputs.push_back((i * 7919) % 100003);
    targets.push_back(i % 11 == 5 ? -1 : (i * 104729) % 100003);
  }
  ResidentModel kept = random_model(spec, {.keep = Keep::everything, .shape = {1, 48}});
  ResidentModel recomputed = random_model(spec, {.keep = Keep::nothing, .shape = {1, 48}});
  EXPECT_EQ(kept.forward_backward({inputs, targets}, 1).loss,
            recomputed.forward_backward({inputs, targets}, 1).loss);
  for (auto const& unit : spec.units)
    for (auto const& tensor : unit.tensors)
      EXPECT_EQ(kept.gradient(tensor.name), recomputed.gradient(tensor.name)) << tensor.name;
}

TEST_P(HeadTest, logits_of_a_row_give_its_loss) {
  auto const spec = wide_vocabulary(GetParam());
  std::vector<std::int32_t> const inputs(48, 17);
  std::vector<std::int32_t> targets(48, -1);
  targets[47] = 99'999;
  ResidentModel model = random_model(spec, {.shape = {1, 48}});
  double const loss = model.evaluate({inputs, targets}).loss;
  auto const logits = model.logits({inputs, targets}, 47);
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit));
  EXPECT_NEAR(loss, std::log(sum) - static_cast<double>(logits[99'999]), 1e-4);
}

TEST_P(HeadTest, workspace_does_not_grow_with_the_rows_times_the_vocabulary) {
  auto const decoder = model::make_decoder(wide_vocabulary(GetParam()), DType::f32, 4096);
  auto const bytes = decoder->workspace_bytes({8, 4096}, Keep::nothing);
  EXPECT_LT(bytes, std::size_t{64} << 20);  // all logits would be 13 GB
}

INSTANTIATE_TEST_SUITE_P(Heads, HeadTest, testing::Bool(), [](auto const& param) {
  return std::string(param.param ? "tied" : "untied");
});

TEST(DecoderTest, adds_head_and_embedding_gradients_of_a_tied_table) {
  // Token 5 appears as input only, 9 as target only: both rows of the one table move.
  auto const spec = wide_vocabulary(true);
  std::vector<std::int32_t> const inputs(48, 5), targets(48, 9);
  ResidentModel model = random_model(spec, {.shape = {1, 48}});
  model.forward_backward({inputs, targets}, 1);
  auto const gradient = model.gradient("model.embed_tokens.weight");
  auto const norm = [&](int token) {
    double sum = 0;
    for (int c = 0; c < 8; ++c) sum += std::pow(static_cast<double>(gradient[token * 8 + c]), 2);
    return std::sqrt(sum);
  };
  EXPECT_GT(norm(9), 10 * norm(77));
  EXPECT_GT(norm(5), 10 * norm(77));
}

TEST(DecoderTest, gradients_of_many_micro_batches_add_up_in_fp32) {
  // Scaling by 1/64 is exact in bf16 too, so 64 small gradients sum to the large one but for fp32
  // rounding.
  Case const oracle = oracle_case("tiny-gpt2");
  ResidentModel once = load(oracle, {.compute = DType::bf16});
  once.forward_backward(oracle.tokens(), 1.0f / 96);
  ResidentModel often = load(oracle, {.compute = DType::bf16});
  for (int i = 0; i < 64; ++i) often.forward_backward(oracle.tokens(), 1.0f / 96 / 64);
  for (auto const& [name, tensor] : oracle.weights)
    EXPECT_LT(relative_distance(often.gradient(name), once.gradient(name)), 2e-6) << name;
}

TEST(DecoderTest, refuses_types_it_does_not_compute_in) {
  try {
    model::make_decoder(wide_vocabulary(true), DType::f16, 8);
    FAIL();
  } catch (Error const& error) {
    EXPECT_NE(std::string(error.what()).find("fp16"), std::string::npos);
    EXPECT_EQ(error.fault(), Fault::usage);
  }
}

TEST(DecoderTest, refuses_a_workspace_that_is_too_small) {
  auto const spec = wide_vocabulary(true);
  auto const decoder = model::make_decoder(spec, DType::f32, 8);
  auto const device = device::make_cpu_device();
  auto const stream = device->make_stream(1 << 20, 1);
  model::Shape const shape{1, 8};
  std::vector<std::byte> x(decoder->boundary_bytes(shape)), out(x.size());
  std::vector<std::byte> workspace(64);
  std::vector<std::byte> weights(4096);
  EXPECT_THROW(decoder->block_forward(0, {weights.data(), nullptr}, shape, Keep::nothing, x, out,
                                      {}, workspace, *stream),
               Error);
}

}  // namespace
}  // namespace spillway::test
