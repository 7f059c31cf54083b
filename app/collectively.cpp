#include "app/collectively.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <span>
#include <vector>

namespace spillway::app::detail {

Outcome agree(comm::Communicator& comm, std::optional<Fault> fault, std::string const& text) {
  double const mine[2] = {fault ? static_cast<double>(*fault) : 0.0,
                          static_cast<double>(text.size())};
  auto const all = comm.all_gather_values(mine);
  for (int rank = 0; rank < comm.size(); ++rank) {
    auto const code = static_cast<int>(all[static_cast<std::size_t>(rank) * 2]);
    if (code == 0) continue;
    std::string shared(static_cast<std::size_t>(all[static_cast<std::size_t>(rank) * 2 + 1]), ' ');
    if (comm.rank() == Rank{rank}) shared = text;
    comm.broadcast(std::as_writable_bytes(std::span(shared)), Rank{rank});
    if (comm.size() > 1 && rank > 0) shared = fmt::format("[r{}] {}", rank, shared);
    return {static_cast<Fault>(code), shared};
  }
  return {};
}

}  // namespace spillway::app::detail
