// Tiers and the placement of states on them.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lib/optim/state.hpp"

namespace spillway::offload {

enum class Tier : std::uint8_t { device, host, nvme };
/// What the user asks for; automatic leaves it to the planner.
enum class Want : std::uint8_t { automatic, device, host, nvme };

constexpr std::string_view name_of(Tier tier) {
  switch (tier) {
    case Tier::device: return "device";
    case Tier::host: return "host";
    case Tier::nvme: return "nvme";
  }
  return "";
}

/// Tier of each state kind of one unit.
using UnitPlacement = std::array<Tier, optim::kKinds>;
using Placement = std::vector<UnitPlacement>;

}  // namespace spillway::offload
