// What is saved by N ranks is read by M, element for element.
#include <gtest/gtest.h>

#include <thread>

#include "lib/core/error.hpp"
#include "tests/io/checkpoint/support.hpp"

namespace spillway::io::test {

class ReshardTest : public testing::TestWithParam<std::tuple<DType, int>> {};

TEST_P(ReshardTest, every_element_is_equal_at_one_to_four_ranks) {
  auto const [type, ranks] = GetParam();
  TempDir const dir;
  auto const engine = test_engine();
  auto const schema = awkward_schema(type);
  CheckpointReader const reader(save(dir.path(), schema, ranks, 7, *engine));
  EXPECT_EQ(reader.ranks(), ranks);
  for (int readers = 1; readers <= 4; ++readers) {
    for (int rank = 0; rank < readers; ++rank) {
      for (std::size_t i = 0; i < schema.units.size(); ++i) {
        UnitId const unit{static_cast<int>(i)};
        auto const range = schema.units[i].layout.shard_range(Rank{rank}, readers);
        for (SavedKind kind : all_kinds(schema)) {
          std::vector<std::byte> out(
              static_cast<std::size_t>(range.size()) * size_of(schema.type(kind)), std::byte{0x5a});
          reader.read(unit, kind, range, out, *engine);
          EXPECT_EQ(as_floats(schema.type(kind), out), expected_range(schema, unit, kind, range))
              << name_of(kind) << " of unit " << i << ", rank " << rank << " of " << readers;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(SavedBy, ReshardTest,
                         testing::Combine(testing::Values(DType::f32, DType::bf16),
                                          testing::Values(1, 2, 3, 4)),
                         [](auto const& test) {
                           return std::string(name_of(std::get<0>(test.param))) + "_" +
                                  std::to_string(std::get<1>(test.param)) + "_ranks";
                         });

TEST(CheckpointTest, any_part_of_a_tensor_reads_as_fp32) {
  TempDir const dir;
  auto const engine = test_engine();
  auto const schema = awkward_schema(DType::bf16);
  CheckpointReader const reader(save(dir.path(), schema, 3, 1, *engine));
  std::string const name = "model.layers.0.self_attn.q_proj.weight";
  for (SavedKind kind : all_kinds(schema)) {
    for (std::int64_t begin : {0, 1, 65535, 88387, 265188}) {
      std::vector<float> out(
          std::min<std::size_t>(100'003, static_cast<std::size_t>(265'189 - begin)));
      reader.read_tensor(kind, name, begin, out, *engine);
      for (std::size_t i = 0; i < out.size(); ++i)
        ASSERT_EQ(out[i], value_of(schema, kind, name, begin + static_cast<std::int64_t>(i)))
            << name_of(kind) << " at " << begin << " + " << i;
    }
  }
  std::vector<float> out(2);
  EXPECT_NE(error_of([&] {
              reader.read_tensor(SavedKind::m, "no.such", 0, out, *engine);
            }).find("no.such"),
            std::string::npos);
}

TEST(CheckpointTest, master_of_an_fp32_run_is_its_weight) {
  TempDir const dir;
  auto const engine = test_engine();
  auto const schema = awkward_schema(DType::f32);
  CheckpointReader const reader(save(dir.path(), schema, 2, 1, *engine));
  std::vector<float> master(13);
  std::vector<float> weight(13);
  reader.read_tensor(SavedKind::master, "model.norm.weight", 0, master, *engine);
  reader.read_tensor(SavedKind::weight, "model.norm.weight", 0, weight, *engine);
  EXPECT_EQ(master, weight);
}

TEST(CheckpointTest, beyond_the_saved_shards_everything_is_zero) {
  TempDir const dir;
  auto const engine = test_engine();
  auto const schema = awkward_schema(DType::f32);
  CheckpointReader const reader(save(dir.path(), schema, 1, 1, *engine));
  std::vector<std::byte> out(8192 * 4, std::byte{1});
  reader.read(UnitId{0}, SavedKind::m, {409'600, 417'792}, out, *engine);
  EXPECT_EQ(out, std::vector<std::byte>(out.size()));
}

TEST(CheckpointTest, state_and_schema_come_back_as_they_were) {
  TempDir const dir;
  auto const engine = test_engine();
  auto schema = awkward_schema(DType::bf16);
  schema.config_json =
      "{\"text\": \"" + std::string(200'000, 'x') + "\"}";  // an attribute would end at 64 KiB
  TrainingState const state{123'456'789'012, 9'007'199'254'740'993, 4'611'686'018'427'387'905,
                            R"({"a": "ü", "b": [1.5]})"};
  auto const parts = write_shards(prepare_checkpoint(dir.path(), state.step), schema, 2, *engine);
  auto const path = commit_checkpoint(dir.path(), schema, state, parts);
  EXPECT_EQ(path.filename(), "step-123456789012");
  CheckpointReader const reader(path);
  EXPECT_EQ(reader.state().step, state.step);
  EXPECT_EQ(reader.state().tokens, state.tokens);
  EXPECT_EQ(reader.state().next_position, state.next_position);
  EXPECT_EQ(reader.state().json, state.json);
  EXPECT_EQ(reader.schema().config_json, schema.config_json);
  EXPECT_EQ(reader.schema().weight_type, DType::bf16);
  ASSERT_EQ(reader.schema().units.size(), schema.units.size());
  for (std::size_t i = 0; i < schema.units.size(); ++i) {
    EXPECT_EQ(reader.schema().units[i].name, schema.units[i].name);
    EXPECT_EQ(reader.schema().units[i].layout.tensors(), schema.units[i].layout.tensors());
  }
  reader.check_model(schema);
}

TEST(CheckpointTest, another_model_is_refused_by_the_name_of_the_first_difference) {
  TempDir const dir;
  auto const engine = test_engine();
  auto const schema = awkward_schema(DType::f32);
  CheckpointReader const reader(save(dir.path(), schema, 2, 1, *engine));
  using Tensors = std::vector<shard::FlatLayout::Tensor>;
  auto const refusal = [&](CheckpointSchema const& expected) {
    return error_of([&] { reader.check_model(expected); });
  };
  auto shape = schema;
  shape.units[0].layout = shard::FlatLayout(Tensors{{"model.embed_tokens.weight", {131, 61}}});
  EXPECT_NE(refusal(shape).find(
                "'model.embed_tokens.weight' has shape [61, 131] (the model expects [131, 61])"),
            std::string::npos);
  auto renamed = schema;
  renamed.units[2].layout = shard::FlatLayout(Tensors{{"norm", {13}}, {"scale", {}}});
  EXPECT_NE(refusal(renamed).find("'model.norm.weight' (the model expects 'norm')"),
            std::string::npos);
  auto longer = schema;
  longer.units[0].layout =
      shard::FlatLayout(Tensors{{"model.embed_tokens.weight", {61, 131}}, {"bias", {3}}});
  EXPECT_NE(refusal(longer).find("lacks tensor 'bias'"), std::string::npos);
  auto shorter = schema;
  shorter.units.pop_back();
  EXPECT_NE(refusal(shorter).find("has unit 'head'"), std::string::npos);
  EXPECT_NE(refusal(awkward_schema(DType::bf16)).find("weights are fp32 (the run uses bf16)"),
            std::string::npos);
}

TEST(CheckpointTest, two_threads_write_one_shard) {
  TempDir const dir;
  auto const engine = test_engine();
  auto const schema = awkward_schema(DType::bf16);
  auto const directory = prepare_checkpoint(dir.path(), 4);
  ShardWriter writer(directory, schema, Rank{0}, 1, *engine);
  auto const write_every_second = [&](std::size_t offset) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < schema.units.size(); ++i)
      for (SavedKind kind : all_kinds(schema)) {
        if (count++ % 2 != offset) continue;
        UnitId const unit{static_cast<int>(i)};
        auto bytes =
            shard_bytes(schema, unit, kind, schema.units[i].layout.shard_range(Rank{0}, 1));
        writer.write(unit, kind, 0, bytes.span()).wait();
      }
  };
  std::thread other([&] { write_every_second(0); });
  write_every_second(1);
  other.join();
  std::vector<std::vector<std::byte>> const parts{writer.finish()};
  CheckpointReader const reader(commit_checkpoint(dir.path(), schema, state_at(4), parts));
  reader.verify(*engine);
}

TEST(CheckpointTest, writers_of_several_ranks_live_in_one_process) {
  TempDir const dir;
  auto const engine = test_engine();
  auto const schema = awkward_schema(DType::f32);
  auto const directory = prepare_checkpoint(dir.path(), 4);
  std::vector<std::vector<std::byte>> parts(4);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&, rank] {
      ShardWriter writer(directory, schema, Rank{rank}, 4, *engine);
      for (std::size_t i = 0; i < schema.units.size(); ++i)
        for (SavedKind kind : all_kinds(schema)) {
          UnitId const unit{static_cast<int>(i)};
          auto bytes =
              shard_bytes(schema, unit, kind, schema.units[i].layout.shard_range(Rank{rank}, 4));
          writer.write(unit, kind, 0, bytes.span()).wait();
        }
      parts[static_cast<std::size_t>(rank)] = writer.finish();
    });
  for (auto& rank : ranks) rank.join();
  CheckpointReader const reader(commit_checkpoint(dir.path(), schema, state_at(4), parts));
  reader.verify(*engine);
}

TEST(CheckpointTest, a_shard_with_an_element_missing_is_not_finished) {
  TempDir const dir;
  auto const engine = test_engine();
  auto const schema = awkward_schema(DType::f32);
  auto const directory = prepare_checkpoint(dir.path(), 4);
  {
    ShardWriter writer(directory, schema, Rank{0}, 2, *engine);
    for (std::size_t i = 0; i < schema.units.size(); ++i)
      for (SavedKind kind : all_kinds(schema)) {
        UnitId const unit{static_cast<int>(i)};
        auto bytes =
            shard_bytes(schema, unit, kind, schema.units[i].layout.shard_range(Rank{0}, 2));
        bool const cut = i == 1 && kind == SavedKind::m;
        auto const data = cut ? bytes.span().first(kChecksumElements * 4) : bytes.span();
        writer.write(unit, kind, 0, data).wait();
      }
    auto const error = error_of([&] { writer.finish(); });
    EXPECT_NE(error.find("'/block.0/m'"), std::string::npos) << error;
    EXPECT_NE(error.find("element 65536"), std::string::npos) << error;
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory)) << "a failed save keeps its space";
}

TEST(CheckpointTest, pieces_off_the_checksum_blocks_are_refused) {
  TempDir const dir;
  auto const engine = test_engine();
  auto const schema = awkward_schema(DType::f32);
  ShardWriter writer(prepare_checkpoint(dir.path(), 1), schema, Rank{0}, 1, *engine);
  AlignedBytes bytes(4 * kChecksumElements);
  auto const refused = [&](std::int64_t begin, std::span<std::byte> data) {
    return !error_of([&] { writer.write(UnitId{1}, SavedKind::m, begin, data).wait(); }).empty();
  };
  EXPECT_TRUE(refused(4096, bytes.span()));
  EXPECT_TRUE(refused(0, bytes.span().first(4096)));
  EXPECT_TRUE(refused(327'680, bytes.span()));
  EXPECT_TRUE(refused(0, bytes.span().subspan(4)));
  EXPECT_FALSE(refused(0, bytes.span()));
}

TEST(CheckpointTest, commit_refuses_parts_of_another_model_or_number_of_ranks) {
  TempDir const dir;
  auto const engine = test_engine();
  auto const schema = awkward_schema(DType::f32);
  auto const parts = write_shards(prepare_checkpoint(dir.path(), 1), schema, 2, *engine);
  auto const refusal = [&](CheckpointSchema const& other,
                           std::vector<std::vector<std::byte>> const& given) {
    return error_of([&] { commit_checkpoint(dir.path(), other, state_at(1), given); });
  };
  auto fewer = schema;
  fewer.units.pop_back();
  EXPECT_NE(refusal(fewer, parts), "");
  EXPECT_NE(refusal(schema, {parts[0]}), "");
  EXPECT_NE(refusal(schema, {parts[1], parts[0]}).find("shard-00000-of-00002.h5"),
            std::string::npos);
  auto twice = schema;
  twice.units[0].layout =
      shard::FlatLayout(std::vector<shard::FlatLayout::Tensor>{{"scale", {61, 131}}});
  EXPECT_NE(refusal(twice, parts).find("two tensors are named 'scale'"), std::string::npos);
  EXPECT_NE(refusal(schema, {parts[0], std::vector<std::byte>(5)}), "");
  EXPECT_TRUE(list_checkpoints(dir.path()).empty());
  commit_checkpoint(dir.path(), schema, state_at(1), parts);
  EXPECT_EQ(list_checkpoints(dir.path()).size(), 1u);
}

TEST(CheckpointTest, the_announced_size_covers_what_is_written) {
  TempDir const dir;
  auto const engine = test_engine();
  for (DType type : {DType::f32, DType::bf16})
    for (int ranks : {1, 3}) {
      auto schema = awkward_schema(type);
      for (int i = 1; i < 12; ++i) {
        auto unit = schema.units[2];
        unit.name = "more." + std::to_string(i);
        std::vector<shard::FlatLayout::Tensor> tensors;
        for (int t = 0; t < 12; ++t)
          tensors.push_back({unit.name + "." + std::to_string(t), {101, 103}});
        unit.layout = shard::FlatLayout(tensors);
        schema.units.push_back(unit);
      }
      std::uint64_t bytes = 0;
      for (auto const& entry :
           std::filesystem::directory_iterator(save(dir.path(), schema, ranks, ranks, *engine)))
        bytes += entry.file_size();
      auto const announced = shard_file_bytes(schema, ranks) * static_cast<std::uint64_t>(ranks);
      EXPECT_GE(announced, bytes);
      EXPECT_LE(announced, bytes + bytes / 3) << "so much more would refuse saves that have room";
    }
}

TEST(CheckpointTest, checkpoints_of_any_number_of_ranks_compare_as_identical) {
  TempDir const dir;
  auto const engine = test_engine();
  auto const schema = awkward_schema(DType::bf16);
  CheckpointReader const one(save(dir.path(), schema, 1, 1, *engine));
  CheckpointReader const four(save(dir.path(), schema, 4, 4, *engine));
  EXPECT_EQ(diff_checkpoints(one, four, *engine), std::vector<std::string>{});
}

TEST(CheckpointTest, a_comparison_counts_the_elements_that_differ) {
  TempDir const dir;
  auto const engine = test_engine();
  auto const schema = awkward_schema(DType::f32);
  CheckpointReader const first(save(dir.path(), schema, 2, 1, *engine));
  auto const directory = prepare_checkpoint(dir.path(), 2);
  ShardWriter writer(directory, schema, Rank{0}, 1, *engine);
  for (std::size_t i = 0; i < schema.units.size(); ++i)
    for (SavedKind kind : all_kinds(schema)) {
      UnitId const unit{static_cast<int>(i)};
      auto bytes = shard_bytes(schema, unit, kind, schema.units[i].layout.shard_range(Rank{0}, 1));
      if (i == 1 && kind == SavedKind::v) {
        auto* const values = reinterpret_cast<float*>(bytes.span().data());
        values[3] += 2.0f;
        values[70'000] -= 4.5f;
        values[265'189] = 1.0f;  // padding between two tensors
      }
      writer.write(unit, kind, 0, bytes.span()).wait();
    }
  std::vector<std::vector<std::byte>> const parts{writer.finish()};
  CheckpointReader const second(commit_checkpoint(dir.path(), schema, state_at(2), parts));
  EXPECT_EQ(diff_checkpoints(first, second, *engine),
            std::vector<std::string>{
                "model.layers.0.self_attn.q_proj.weight v: 2 of 265189 elements differ, largest "
                "difference 4.5"});
}

}  // namespace spillway::io::test
