// Every placement gives the same bits: the store against a plain array and a plain AdamW.
#include "offload/tiered_store.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>

#include "lib/core/error.hpp"
#include "lib/device/device.hpp"
#include "tests/support/fault_engine.hpp"

namespace spillway::offload {
namespace {

using optim::StateKind;
using train::Fetch;
using train::Use;

/// A directory of its own that disappears with the test.
class TempDirectory {
 public:
  TempDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "spillway-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::filesystem::path const& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

model::ModelSpec two_units() {
  model::ModelSpec spec;
  spec.units = {
      {"a", {{.name = "w", .shape = {300, 701}, .decay = true}, {.name = "b", .shape = {99}}}},
      {"b", {{.name = "n", .shape = {5000}}}}};
  return spec;
}

float first_weight(std::int64_t i) { return 0.01f * static_cast<float>(i % 97) - 0.3f; }
float gradient(int unit, int step, std::int64_t i) {
  return 1e-3f * static_cast<float>((i * 31 + unit * 7 + step * 13) % 211) - 0.1f;
}

struct Result {
  std::vector<std::vector<std::byte>> hi;
  std::vector<double> squares;
  bool operator==(Result const&) const = default;
};

/// A store with all its parts, for one rank.
struct Rig {
  TempDirectory directory;
  model::ModelSpec spec = two_units();
  optim::StateTypes types;
  std::unique_ptr<device::Device> device = device::make_cpu_device();
  // The thread sanitizer does not see the barriers of OpenMP's library: one thread under it.
  int threads = std::getenv("TSAN_OPTIONS") ? 1 : 2;
  std::unique_ptr<device::Stream> stream = device->make_stream(1 << 20, threads);
  std::unique_ptr<device::Stream> background = device->make_stream(1 << 16, 1);
  std::unique_ptr<io::Engine> engine;
  std::unique_ptr<SwapSpace> swap;
  std::unique_ptr<device::Block> memory;
  std::unique_ptr<TieredStore> store;
  std::vector<Fetch> fetches;  // update a, update b, then, as backward does, weights b, weights a

  Rig(UnitPlacement placement, optim::StateTypes state_types, io::EngineKind kind, int slots)
      : Rig(placement, state_types, slots,
            [kind](std::string const& probe) { return io::make_engine(kind, {}, probe); }) {}

  using MakeEngine = std::function<std::unique_ptr<io::Engine>(std::string const&)>;
  Rig(UnitPlacement placement, optim::StateTypes state_types, int slots, MakeEngine const& make)
      : types(state_types) {
    Placement const all(spec.units.size(), placement);
    auto geometry = make_geometry({.spec = spec,
                                   .types = types,
                                   .placement = all,
                                   .tile_elements = 65536,
                                   .rank = Rank{0},
                                   .ranks = 1,
                                   .directory_weights = {1.0, 2.0}});
    std::size_t window = 0;
    bool const lends = TieredStore::lends(placement, 1);
    for (auto [unit, use] :
         {std::pair{0, Use::update}, {1, Use::update}, {1, Use::weights}, {0, Use::weights}}) {
      auto const bytes =
          lends ? 0
                : static_cast<std::size_t>(spec.layout(UnitId{unit}).shard_elements(1)) *
                      types.bytes(StateKind::hi);
      fetches.push_back({UnitId{unit}, use, {window, bytes}});
      window += bytes;
    }
    engine = make(directory.path().string());
    swap = std::make_unique<SwapSpace>(
        std::vector{directory.path() / "one", directory.path() / "two"}, geometry.file_bytes, "t");
    memory = device->allocate(host_state_bytes(geometry) + window +
                              static_cast<std::size_t>(slots) * slot_bytes(65536, types));
    store = std::make_unique<TieredStore>(TieredStore::Parts{.geometry = std::move(geometry),
                                                             .ranks = 1,
                                                             .slots = slots,
                                                             .tile_elements = 65536,
                                                             .window_bytes = window,
                                                             .checksums = true,
                                                             .engine = engine.get(),
                                                             .swap = swap.get(),
                                                             .stream = *stream,
                                                             .background = *background},
                                          memory->bytes());
    store->fill([&](UnitId, shard::Range flat, optim::StateView const& view) {
      for (std::int64_t i = 0; i < view.elements; ++i) set(view, i, first_weight(flat.begin + i));
    });
  }

  void set(optim::StateView const& view, std::int64_t i, float value) const {
    if (types.compute == DType::f32) {
      view.as<float>(StateKind::hi)[i] = value;
    } else {
      ops::split_master(value, view.as<bf16>(StateKind::hi)[i],
                        view.as<std::int16_t>(StateKind::lo)[i]);
    }
  }

  void put_gradients(int step, Result& result) {
    for (int unit = 0; unit < 2; ++unit) {
      auto const n = spec.layout(UnitId{unit}).shard_elements(1);
      std::vector<float> part(static_cast<std::size_t>(n));
      auto const fill = [&](float factor) {
        for (std::int64_t i = 0; i < n; ++i)
          part[static_cast<std::size_t>(i)] = factor * gradient(unit, step, i);
      };
      fill(0.25f);
      store->put_gradient(UnitId{unit}, part, {.first = true, .last = false});
      fill(0.75f);
      result.squares.push_back(
          store->put_gradient(UnitId{unit}, part, {.first = false, .last = true}));
    }
  }

  void pass(ops::AdamwStep const& step, Result& result) {
    store->begin_pass(fetches, step);
    for (int at = 0; at < static_cast<int>(fetches.size()); ++at) {
      auto const whole = store->acquire(at);
      result.hi.emplace_back(whole.begin(), whole.end());
      store->release(at);
    }
    store->end_pass();
  }

  Result run() {
    Result result;
    for (int step = 1; step <= 3; ++step) {
      put_gradients(step, result);
      float const t = static_cast<float>(step);
      pass({.lr = 1e-2f,
            .weight_decay = 0.1f,
            .bias1 = 1 - std::pow(0.9f, t),
            .bias2 = 1 - std::pow(0.95f, t),
            .grad_scale = 0.5f},
           result);
    }
    return result;
  }
};

constexpr Tier H = Tier::host;
constexpr Tier N = Tier::nvme;

class StoreTypes : public testing::TestWithParam<optim::StateTypes> {};

TEST_P(StoreTypes, every_placement_slot_count_and_io_engine_gives_the_same_bits) {
  Result const expected = Rig({H, H, H, H, H}, GetParam(), io::EngineKind::threads, 3).run();
  for (UnitPlacement placement : {UnitPlacement{N, N, N, N, N},
                                  {H, N, N, N, N},
                                  {N, H, H, H, H},
                                  {H, H, N, H, N},
                                  {N, N, H, N, H},
                                  {H, H, H, H, N}})
    for (io::EngineKind kind : {io::EngineKind::automatic, io::EngineKind::threads})
      for (int slots : {3, 8}) EXPECT_EQ(Rig(placement, GetParam(), kind, slots).run(), expected);
}

INSTANTIATE_TEST_SUITE_P(Types, StoreTypes,
                         testing::Values(optim::StateTypes{},
                                         optim::StateTypes{DType::bf16, DType::f32},
                                         optim::StateTypes{DType::bf16, DType::bf16}),
                         [](auto const& types) {
                           return std::string(name_of(types.param.compute)) + "_grad_" +
                                  std::string(name_of(types.param.grad));
                         });

TEST(TieredStore, spilled_weights_follow_a_double_precision_adamw) {
  Rig rig({N, N, N, N, N}, {}, io::EngineKind::automatic, 4);
  Result const result = rig.run();
  auto const& hi = result.hi[result.hi.size() - 2];  // of unit b: 5000 plain elements, no decay
  for (std::int64_t i = 0; i < 5000; i += 37) {
    double w = first_weight(i), m = 0, v = 0;
    for (int step = 1; step <= 3; ++step) {
      double const g = 0.5 * gradient(1, step, i);
      m = 0.9 * m + 0.1 * g;
      v = 0.95 * v + 0.05 * g * g;
      w -= 1e-2 * (m / (1 - std::pow(0.9, step))) /
           (std::sqrt(v / (1 - std::pow(0.95, step))) + 1e-8);
    }
    float got = 0;
    std::memcpy(&got, hi.data() + i * 4, 4);
    EXPECT_NEAR(got, w, 2e-6) << i;
  }
}

TEST(TieredStore, delays_and_disturbed_transfers_change_no_bit) {
  Result const expected = Rig({H, H, H, H, H}, {}, io::EngineKind::threads, 3).run();
  for (std::uint64_t seed : {1u, 2u, 3u}) {
    test::FaultPlan const plan{
        .seed = seed, .again = 0.1, .interrupted = 0.1, .shortened = 0.2, .delay_us_max = 3000};
    for (int slots : {3, 8})
      EXPECT_EQ(Rig({N, N, N, N, N}, {}, slots,
                    [&](std::string const&) { return test::make_fault_engine(plan); })
                    .run(),
                expected)
          << "seed " << seed;
  }
}

TEST(TieredStore, a_bit_that_comes_back_changed_is_named_and_not_computed_with) {
  for (std::uint64_t read : {1u, 9u, 20u}) {
    test::FaultPlan const plan{.flipped_read = read};
    Rig rig({N, N, N, N, N}, {}, 4,
            [&](std::string const&) { return test::make_fault_engine(plan); });
    try {
      rig.run();
      FAIL() << "read " << read << " was not noticed";
    } catch (Error const& error) {
      EXPECT_EQ(error.fault(), Fault::io);
      EXPECT_NE(std::string(error.what()).find("came back changed"), std::string::npos);
      EXPECT_NE(std::string(error.what()).find(rig.directory.path().string()), std::string::npos);
    }
  }
}

TEST(TieredStore, a_failing_disk_ends_the_pass_with_path_and_error) {
  test::FaultPlan const plan{
      .shot = test::FaultPlan::Shot{.direction = io::Direction::write, .from = 12}};
  Rig rig({N, N, N, N, N}, {}, 4,
          [&](std::string const&) { return test::make_fault_engine(plan); });
  try {
    rig.run();
    FAIL() << "the error was lost";
  } catch (Error const& error) {
    EXPECT_EQ(error.fault(), Fault::io);
    EXPECT_NE(std::string(error.what()).find("EIO"), std::string::npos) << error.what();
  }
}

TEST(TieredStore, squares_are_those_of_the_sum_of_both_parts) {
  Rig rig({N, N, N, N, N}, {}, io::EngineKind::automatic, 3);
  Result result;
  rig.put_gradients(1, result);
  double expected = 0;
  auto const n = rig.spec.layout(UnitId{0}).shard_elements(1);
  for (std::int64_t i = 0; i < n; ++i) expected += std::pow(gradient(0, 1, i), 2.0);
  EXPECT_NEAR(result.squares[0] / expected, 1.0, 1e-6);
}

}  // namespace
}  // namespace spillway::offload
