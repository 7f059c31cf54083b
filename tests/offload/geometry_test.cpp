// Tiles cover shards exactly, spilled kinds lie beside each other, files share in proportion.
#include "offload/geometry.hpp"

#include <gtest/gtest.h>

#include <numeric>

namespace spillway::offload {
namespace {

using optim::StateKind;

model::ModelSpec odd_spec() {
  model::ModelSpec spec;
  spec.units = {{"embedding", {{.name = "e", .shape = {997, 131}, .decay = true}}},
                {"block.0",
                 {{.name = "w", .shape = {331, 257}, .decay = true}, {.name = "b", .shape = {77}}}},
                {"head", {{.name = "n", .shape = {13}}}}};
  return spec;
}

Geometry geometry_of(model::ModelSpec const& spec, Tier tier, int rank, int ranks,
                     std::vector<double> weights, optim::StateTypes types = {}) {
  UnitPlacement unit;
  unit.fill(tier);
  Placement const placement(spec.units.size(), unit);
  return make_geometry({.spec = spec,
                        .types = types,
                        .placement = placement,
                        .tile_elements = 65536,
                        .rank = Rank{rank},
                        .ranks = ranks,
                        .directory_weights = std::move(weights)});
}

TEST(Geometry, tiles_cover_every_shard_without_gap_or_overlap) {
  auto const spec = odd_spec();
  for (int ranks : {1, 2, 3, 4})
    for (int rank = 0; rank < ranks; ++rank) {
      auto const geometry = geometry_of(spec, Tier::nvme, rank, ranks, {1.0});
      for (auto const& unit : geometry.units) {
        std::int64_t next = 0;
        for (auto const& tile : unit.tiles) {
          EXPECT_EQ(tile.begin, next);
          next += tile.elements;
        }
        EXPECT_EQ(next, unit.elements);
        EXPECT_EQ(unit.elements % 4096, 0);
      }
    }
}

TEST(Geometry, extents_in_one_file_follow_each_other_and_add_up_to_its_size) {
  auto const spec = odd_spec();
  optim::StateTypes const types{.compute = DType::bf16, .grad = DType::bf16};
  auto const geometry = geometry_of(spec, Tier::nvme, 1, 2, {1.0}, types);
  std::uint64_t next = 0;
  for (auto const& unit : geometry.units)
    for (auto const& tile : unit.tiles) {
      EXPECT_EQ(tile.offset, next);
      // hi 2, lo 2, m 4, v 4, grad 2 bytes
      next += static_cast<std::uint64_t>(tile.elements) * 14;
      EXPECT_EQ(unit.spilled_offset(StateKind::lo, tile.elements, types),
                static_cast<std::uint64_t>(tile.elements) * 2);
      EXPECT_EQ(unit.spilled_offset(StateKind::grad, tile.elements, types),
                static_cast<std::uint64_t>(tile.elements) * 12);
    }
  EXPECT_EQ(geometry.file_bytes.at(0), next);
}

TEST(Geometry, kinds_in_host_memory_take_no_place_in_a_tile) {
  auto const spec = odd_spec();
  UnitPlacement mixed{Tier::host, Tier::host, Tier::nvme, Tier::nvme, Tier::host};
  Placement const placement(spec.units.size(), mixed);
  auto const geometry = make_geometry({.spec = spec,
                                       .types = {},
                                       .placement = placement,
                                       .tile_elements = 65536,
                                       .rank = Rank{0},
                                       .ranks = 1,
                                       .directory_weights = {1.0}});
  auto const& unit = geometry.units[0];
  EXPECT_EQ(unit.spilled_bytes(1000, {}), 8000u);
  EXPECT_EQ(unit.spilled_offset(StateKind::v, 1000, {}), 4000u);
  EXPECT_FALSE(unit.spills(StateKind::hi, {}));
}

TEST(Geometry, directories_get_bytes_in_proportion_to_their_weights) {
  model::ModelSpec spec;
  for (int unit = 0; unit < 40; ++unit)
    spec.units.push_back({"u" + std::to_string(unit), {{.name = "w", .shape = {65536}}}});
  auto const geometry = geometry_of(spec, Tier::nvme, 0, 1, {3.0, 1.0});
  EXPECT_EQ(geometry.file_bytes.at(0), 3 * geometry.file_bytes.at(1));
}

TEST(Geometry, segments_are_the_tensors_within_the_shard) {
  auto const spec = odd_spec();
  std::int64_t decayed = 0;
  std::int64_t plain = 0;
  for (int rank = 0; rank < 3; ++rank) {
    auto const geometry = geometry_of(spec, Tier::host, rank, 3, {});
    for (auto const& segment : geometry.units[1].segments)
      (segment.decay ? decayed : plain) += segment.range.size();
  }
  EXPECT_EQ(decayed, 331 * 257);
  EXPECT_EQ(plain, 77);
}

}  // namespace
}  // namespace spillway::offload
