#include "app/closest.hpp"

#include <algorithm>
#include <limits>

namespace spillway::app {

int edit_distance(std::string_view a, std::string_view b) {
  std::size_t const columns = b.size() + 1;
  std::vector<int> distance((a.size() + 1) * columns);
  auto const at = [&](std::size_t i, std::size_t j) -> int& { return distance[i * columns + j]; };
  for (std::size_t i = 0; i <= a.size(); ++i) at(i, 0) = static_cast<int>(i);
  for (std::size_t j = 0; j <= b.size(); ++j) at(0, j) = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      int const replaced = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replaced});
      bool const swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
    }
  }
  return at(a.size(), b.size());
}

std::string closest(std::string_view word, std::vector<std::string> const& known) {
  std::string best;
  int least = std::numeric_limits<int>::max();
  for (auto const& candidate : known) {
    int distance = edit_distance(word, candidate);
    auto const dot = candidate.rfind('.');
    if (dot != std::string::npos && word.find('.') == std::string_view::npos)
      distance = std::min(distance, edit_distance(word, candidate.substr(dot + 1)));
    if (distance >= least) continue;
    least = distance;
    best = candidate;
  }
  return best;
}

}  // namespace spillway::app
