// A folder's tensors against the description of a model: heads tied and not, prefixes, buffers,
// strangers.
#include <gtest/gtest.h>

#include <bit>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "io/safetensors/safetensors_weights.hpp"
#include "tests/io/safetensors/test_files.hpp"

namespace spillway {
namespace {

using io::TensorInfo;
using model::ModelSpec;
using model::TensorSpec;

constexpr char const* kHead = "lm_head.weight";

/// Every element of a tensor has the value that the test gives it.
struct Constant : io::TensorReader {
  std::map<std::string, float> values;
  void read(TensorInfo const& tensor, std::int64_t begin, std::span<float> out) override {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = values.at(tensor.name) + static_cast<float>(begin + static_cast<std::int64_t>(i));
  }
};

ModelSpec spec_of(model::Family family, bool tied) {
  bool const gpt2 = family == model::Family::gpt2;
  ModelSpec spec;
  spec.config.family = family;
  spec.config.tied_head = tied;
  auto const add = [&](std::string unit, std::string name, std::vector<std::int64_t> shape) {
    TensorSpec tensor;
    tensor.name = std::move(name);
    tensor.shape = std::move(shape);
    spec.units.push_back({std::move(unit), {tensor}});
  };
  add("embedding", gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight", {8, 4});
  add("block.0",
      gpt2 ? "transformer.h.0.attn.c_attn.bias" : "model.layers.0.self_attn.q_proj.weight", {4});
  add("norm", gpt2 ? "transformer.ln_f.weight" : "model.norm.weight", {4});
  if (!tied) add("head", kHead, {8, 4});
  return spec;
}

/// A folder with the tensors of a GPT-2, which tests then change.
class Folder {
 public:
  Folder() {
    set("transformer.wte.weight", {8, 4}, 100);
    set("transformer.h.0.attn.c_attn.bias", {4}, 200);
    set("transformer.ln_f.weight", {4}, 300);
  }
  void set(std::string const& name, std::vector<std::int64_t> shape, float value) {
    remove(name);
    tensors_.push_back({name, DType::f32, std::move(shape)});
    source_.values[name] = value;
  }
  void remove(std::string const& name) {
    std::erase_if(tensors_, [&](auto const& tensor) { return tensor.name == name; });
  }
  void strip_prefix() {
    for (auto& tensor : tensors_) {
      float const value = source_.values.at(tensor.name);
      if (tensor.name.starts_with("transformer.")) tensor.name = tensor.name.substr(12);
      source_.values[tensor.name] = value;
    }
  }
  /// First element of `name` as the model would get it.
  float first(ModelSpec const& spec, std::string const& name) {
    float value = 0;
    TensorSpec tensor;
    tensor.name = name;
    open(spec).read(tensor, 0, std::span(&value, 1));
    return value;
  }
  io::SafetensorsWeights open(ModelSpec const& spec) {
    io::write_safetensors(scratch_.path(), tensors_, source_);
    return {scratch_.path(), spec};
  }
  std::string refusal(ModelSpec const& spec) {
    auto const text = test::error_of([&] { open(spec); });
    test::expect_parts(text, {scratch_.path().string()});
    return text;
  }

 private:
  test::ScratchFolder scratch_;
  std::vector<TensorInfo> tensors_;
  Constant source_;
};

ModelSpec const kTied = spec_of(model::Family::gpt2, true);
ModelSpec const kUntied = spec_of(model::Family::gpt2, false);
constexpr char const* kEmbedding = "transformer.wte.weight";

TEST(SafetensorsWeights, tensors_are_read_by_their_names) {
  Folder folder;
  EXPECT_EQ(folder.first(kTied, kEmbedding), 100);
  EXPECT_EQ(folder.first(kTied, "transformer.h.0.attn.c_attn.bias"), 200);
}

TEST(SafetensorsWeights, a_range_is_passed_on) {
  Folder folder;
  auto weights = folder.open(kTied);
  std::vector<float> values(3);
  weights.read(kTied.units[0].tensors[0], 29, values);
  EXPECT_EQ(values, (std::vector<float>{129, 130, 131}));
}

TEST(SafetensorsWeights, names_without_the_prefix_of_the_base_model_are_taken) {
  Folder folder;
  folder.strip_prefix();
  EXPECT_EQ(folder.first(kTied, kEmbedding), 100);
  EXPECT_EQ(folder.first(kTied, "transformer.ln_f.weight"), 300);
}

TEST(SafetensorsWeights, the_same_tensor_with_and_without_prefix_is_refused) {
  Folder folder;
  folder.set("wte.weight", {8, 4}, 100);
  test::expect_parts(folder.refusal(kTied), {"wte.weight", "does not have"});
}

TEST(SafetensorsWeights, a_tied_head_may_be_absent) {
  Folder folder;
  EXPECT_EQ(folder.first(kTied, kEmbedding), 100);
}

TEST(SafetensorsWeights, a_tied_head_may_be_there_if_it_is_equal) {
  Folder folder;
  folder.set(kHead, {8, 4}, 100);
  EXPECT_EQ(folder.first(kTied, kEmbedding), 100);
}

TEST(SafetensorsWeights, a_tied_head_that_differs_is_refused_with_the_place) {
  Folder folder;
  folder.set(kHead, {8, 4}, 101);
  test::expect_parts(folder.refusal(kTied),
                     {kHead, kEmbedding, "element 0", "101", "100", "tie_word_embeddings"});
}

TEST(SafetensorsWeights, a_tied_head_of_another_shape_is_refused) {
  Folder folder;
  folder.set(kHead, {4, 8}, 100);
  test::expect_parts(folder.refusal(kTied), {kHead, "type or shape"});
}

TEST(SafetensorsWeights, a_tied_model_takes_its_embedding_from_the_head_alone) {
  Folder folder;
  folder.remove(kEmbedding);
  folder.set(kHead, {8, 4}, 500);
  EXPECT_EQ(folder.first(kTied, kEmbedding), 500);
}

TEST(SafetensorsWeights, a_tied_model_without_embedding_and_head_is_refused) {
  Folder folder;
  folder.remove(kEmbedding);
  test::expect_parts(folder.refusal(kTied), {kEmbedding, kHead});
}

TEST(SafetensorsWeights, an_untied_head_is_read) {
  Folder folder;
  folder.set(kHead, {8, 4}, 500);
  EXPECT_EQ(folder.first(kUntied, kHead), 500);
  EXPECT_EQ(folder.first(kUntied, kEmbedding), 100);
}

TEST(SafetensorsWeights, an_untied_head_that_is_absent_is_refused) {
  Folder folder;
  test::expect_parts(folder.refusal(kUntied), {kHead, "tie_word_embeddings"});
}

TEST(SafetensorsWeights, an_untied_embedding_is_not_taken_from_the_head) {
  Folder folder;
  folder.remove(kEmbedding);
  folder.set(kHead, {8, 4}, 500);
  test::expect_parts(folder.refusal(kUntied), {kEmbedding});
}

TEST(SafetensorsWeights, a_wrong_shape_is_named_with_both) {
  Folder folder;
  folder.set(kEmbedding, {8, 5}, 100);
  test::expect_parts(folder.refusal(kTied), {kEmbedding, "[8, 5]", "[8, 4]"});
  folder.set(kEmbedding, {32}, 100);
  test::expect_parts(folder.refusal(kTied), {"[32]"});
}

TEST(SafetensorsWeights, missing_tensors_are_counted_and_named) {
  Folder folder;
  folder.remove("transformer.ln_f.weight");
  folder.remove("transformer.h.0.attn.c_attn.bias");
  test::expect_parts(folder.refusal(kTied),
                     {"2 of", "transformer.ln_f.weight", "transformer.h.0.attn.c_attn.bias"});
}

TEST(SafetensorsWeights, buffers_of_older_versions_are_passed_over) {
  Folder folder;
  folder.set("transformer.h.0.attn.bias", {1, 1, 2, 2}, 1);
  folder.set("transformer.h.0.attn.masked_bias", {}, 1);
  EXPECT_EQ(folder.first(kTied, kEmbedding), 100);
}

TEST(SafetensorsWeights, rotary_buffers_of_older_versions_are_passed_over) {
  Folder folder;
  for (auto name :
       {"transformer.wte.weight", "transformer.h.0.attn.c_attn.bias", "transformer.ln_f.weight"})
    folder.remove(name);
  folder.set("model.embed_tokens.weight", {8, 4}, 700);
  folder.set("model.layers.0.self_attn.q_proj.weight", {4}, 1);
  folder.set("model.norm.weight", {4}, 1);
  folder.set("model.layers.0.self_attn.rotary_emb.inv_freq", {2}, 1);
  EXPECT_EQ(folder.first(spec_of(model::Family::llama, true), "model.embed_tokens.weight"), 700);
}

TEST(SafetensorsWeights, other_extra_tensors_are_counted_and_named) {
  Folder folder;
  for (int i = 0; i < 9; ++i) folder.set("transformer.h." + std::to_string(i) + ".lora", {1}, 0);
  test::expect_parts(folder.refusal(kTied), {"9 tensors", "transformer.h.0.lora", "and 4 more"});
}

TEST(SafetensorsWeights, a_weight_of_a_type_that_is_not_read_is_named_with_it) {
  test::ScratchFolder scratch;
  std::string const header =
      R"({"transformer.wte.weight":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})";
  test::write_file(scratch / "model.safetensors",
                   test::bytes_of(std::uint64_t{header.size()}) + header + std::string(8, '\0'));
  ModelSpec spec = kTied;
  spec.units.resize(1);
  auto const text = test::error_of([&] { io::SafetensorsWeights(scratch.path(), spec); });
  test::expect_parts(text, {"transformer.wte.weight", "I64"});
}

TEST(SafetensorsWeights, models_saved_by_transformers_are_read_whole) {
  for (std::string name : {"tiny-gpt2", "tiny-llama", "tiny-llama3-tied"}) {
    std::string const folder = std::string(SPILLWAY_TEST_DATA) + "/oracle/" + name;
    auto const config = test::read_file(folder + "/config.json");
    ModelSpec const spec = model::make_spec(model::parse_config(config, folder));
    io::SafetensorsWeights weights(folder, spec);
    std::istringstream listed(test::python(SPILLWAY_REFERENCE, "bits '" + folder + "'"));
    std::map<std::string, std::uint32_t> bits;
    for (std::string tensor; listed >> tensor;) listed >> bits[tensor];
    std::size_t count = 0;
    for (auto const& unit : spec.units)
      for (auto const& tensor : unit.tensors) {
        float value = 0;
        weights.read(tensor, shard::element_count(tensor.shape) - 1, std::span(&value, 1));
        EXPECT_EQ(std::bit_cast<std::uint32_t>(value), bits.at(tensor.name)) << tensor.name;
        ++count;
      }
    EXPECT_EQ(count, bits.size()) << name;
  }
}

}  // namespace
}  // namespace spillway
