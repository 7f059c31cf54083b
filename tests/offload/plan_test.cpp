// The planner keeps budgets, names what is missing, and never lets a placement change a number.
#include "offload/plan.hpp"

#include <gtest/gtest.h>

#include <random>

#include "lib/core/error.hpp"

namespace spillway::offload {
namespace {

using optim::StateKind;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

model::ModelSpec gpt2(std::int64_t hidden, std::int64_t layers, std::int64_t vocabulary) {
  return model::make_spec(model::parse_config(
      R"({"model_type": "gpt2", "n_positions": 256, "n_head": 4, "vocab_size": )" +
          std::to_string(vocabulary) + R"(, "n_embd": )" + std::to_string(hidden) +
          R"(, "n_layer": )" + std::to_string(layers) + "}",
      "test"));
}

struct Case {
  model::ModelSpec spec;
  std::unique_ptr<model::Decoder> decoder;
  explicit Case(model::ModelSpec model, DType compute = DType::f32)
      : spec(std::move(model)), decoder(model::make_decoder(spec, compute, 128)) {}

  PlanRequest request(std::uint64_t budget) const {
    PlanRequest result{.spec = spec, .decoder = *decoder};
    result.engine.micro = {.B = 2, .T = 128};
    result.engine.micro_batches = 4;
    result.directory_weights = {1.0};
    result.host_memory = budget;
    result.base_bytes = 40 * kMiB;
    return result;
  }
};

std::uint64_t state_bytes(Plan const& plan, PlanRequest const& request, Tier tier) {
  std::uint64_t bytes = 0;
  for (int unit = 0; unit < static_cast<int>(plan.placement.size()); ++unit)
    for (StateKind kind : optim::kStateKinds)
      if (plan.placement[static_cast<std::size_t>(unit)][optim::index(kind)] == tier)
        bytes += static_cast<std::uint64_t>(
                     request.spec.layout(UnitId{unit}).shard_elements(request.ranks)) *
                 request.types.bytes(kind);
  return bytes;
}

TEST(Plan, keeps_everything_in_memory_where_there_is_room) {
  Case const test(gpt2(128, 3, 1000));
  auto const request = test.request(8192 * kMiB);
  Plan const plan = make_plan(request);
  EXPECT_EQ(plan.nvme_bytes, 0u);
  EXPECT_EQ(plan.read_bytes + plan.written_bytes, 0u);
  EXPECT_EQ(plan.engine.keep, model::Keep::everything);
}

TEST(Plan, stays_within_every_budget_it_accepts_and_places_every_byte_once) {
  std::mt19937 random(20261201);
  for (int round = 0; round < 60; ++round) {
    Case const test(gpt2(64 * (1 + static_cast<std::int64_t>(random() % 6)),
                         1 + static_cast<std::int64_t>(random() % 5),
                         257 + static_cast<std::int64_t>(random() % 4000)));
    auto request = test.request((80 + random() % 160) * kMiB);
    request.ranks = 1 + static_cast<int>(random() % 4);
    try {
      Plan const plan = make_plan(request);
      EXPECT_LE(plan.host_bytes, request.host_memory);
      std::uint64_t const all =
          state_bytes(plan, request, Tier::host) + state_bytes(plan, request, Tier::nvme);
      std::uint64_t expected = 0;
      for (int unit = 0; unit < static_cast<int>(test.spec.units.size()); ++unit)
        expected += static_cast<std::uint64_t>(
                        test.spec.layout(UnitId{unit}).shard_elements(request.ranks)) *
                    16;
      EXPECT_EQ(all, expected);
      EXPECT_EQ(plan.nvme_bytes, state_bytes(plan, request, Tier::nvme));
    } catch (Error const& error) {
      EXPECT_EQ(error.fault(), Fault::no_room) << error.what();
    }
  }
}

TEST(Plan, moves_each_spilled_parameter_as_often_as_the_design_says) {
  // fp32, untied by layout: hi 4, m 4, v 4, grad 4. Read: update 16, backward's weights 4. Written:
  // 12 + 4.
  model::ModelSpec spec = gpt2(64, 2, 300);
  Case const test(spec);
  auto request = test.request(120 * kMiB);
  request.params = request.optimizer = request.gradients = Want::nvme;
  Plan const plan = make_plan(request);
  std::uint64_t blocks = 0;
  for (int unit : {1, 2})
    blocks += static_cast<std::uint64_t>(spec.layout(UnitId{unit}).shard_elements(1));
  auto const embedding = static_cast<std::uint64_t>(spec.layout(UnitId{0}).shard_elements(1));
  auto const head = static_cast<std::uint64_t>(spec.layout(UnitId{3}).shard_elements(1));
  // The tied embedding is read again for the head, and its gradient comes in two parts.
  EXPECT_EQ(plan.read_bytes, blocks * 20 + head * 16 + embedding * (16 + 4 + 4));
  EXPECT_EQ(plan.written_bytes, blocks * 16 + head * 16 + embedding * (12 + 8));
}

TEST(Plan, refuses_what_cannot_be_kept_and_names_the_missing_bytes) {
  Case const test(gpt2(256, 2, 5000));
  auto request = test.request(70 * kMiB);
  try {
    make_plan(request);
    FAIL() << "a budget below the reserve was accepted";
  } catch (Error const& error) {
    EXPECT_EQ(error.fault(), Fault::no_room);
    std::string const text = error.what();
    auto const at = text.find(" bytes are missing");
    ASSERT_NE(at, std::string::npos) << text;
    // Adding just the missing bytes makes it possible.
    auto const from = text.rfind(' ', at - 1) + 1;
    request.host_memory += std::stoull(text.substr(from, at - from));
    EXPECT_NO_THROW(make_plan(request));
    request.host_memory -= 1;
    EXPECT_THROW(make_plan(request), Error);
  }
}

TEST(Plan, without_a_directory_everything_must_fit_and_the_advice_is_a_directory) {
  Case const test(gpt2(256, 4, 5000));
  auto request = test.request(130 * kMiB);
  request.directory_weights.clear();
  try {
    make_plan(request);
    FAIL() << "states larger than the budget were accepted";
  } catch (Error const& error) {
    EXPECT_NE(std::string(error.what()).find("--offload.nvme"), std::string::npos) << error.what();
  }
}

TEST(Plan, the_number_of_waves_does_not_depend_on_where_states_are) {
  Case const test(gpt2(128, 3, 1000));
  for (std::uint64_t budget : {95 * kMiB, 120 * kMiB, 200 * kMiB, 2000 * kMiB}) {
    auto request = test.request(budget);
    std::vector<int> waves;
    for (Want want : {Want::automatic, Want::nvme}) {
      request.params = request.optimizer = request.gradients = want;
      try {
        waves.push_back(make_plan(request).engine.waves);
      } catch (Error const&) {
        waves.push_back(-1);
      }
    }
    EXPECT_EQ(waves[0], waves[1]) << budget;
  }
}

TEST(Plan, asks_for_a_directory_before_it_places_anything_on_nvme) {
  Case const test(gpt2(64, 1, 300));
  auto request = test.request(1024 * kMiB);
  request.directory_weights.clear();
  request.optimizer = Want::nvme;
  try {
    make_plan(request);
    FAIL() << "nvme without directory was accepted";
  } catch (Error const& error) {
    EXPECT_EQ(error.fault(), Fault::usage);
  }
}

}  // namespace
}  // namespace spillway::offload
