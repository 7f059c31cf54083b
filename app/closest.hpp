// "Did you mean": the known word nearest to a mistyped one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace spillway::app {

/// Insertions, deletions, replacements and swaps of neighbours (optimal string alignment).
int edit_distance(std::string_view a, std::string_view b);

/// The nearest of `known`; where `word` has no dot, keys are also compared by the part after
/// theirs, so that "lr" finds "optim.lr". The first one wins a tie.
std::string closest(std::string_view word, std::vector<std::string> const& known);

}  // namespace spillway::app
