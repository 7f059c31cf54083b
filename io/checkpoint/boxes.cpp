#include "io/checkpoint/boxes.hpp"

namespace spillway::io {

namespace {

struct Splitter {
  std::span<std::int64_t const> shape;
  std::vector<Box> boxes;

  /// Splits `run`, given relative to the sub-array that `prefix` (indices of the leading
  /// dimensions) leaves, and that begins at element `base` of the whole.
  void split(std::vector<std::uint64_t> const& prefix, std::int64_t base, shard::Range run) {
    if (run.size() == 0) return;
    std::size_t const dimension = prefix.size();
    std::int64_t const row = shard::element_count(shape.subspan(dimension + 1));
    std::int64_t first = run.begin / row;
    std::int64_t const last = run.end / row;
    std::int64_t const head = run.begin % row;
    std::int64_t const tail = run.end % row;
    if (head != 0) {  // a row that is entered in the middle
      std::int64_t const end = first == last ? tail : row;
      descend(prefix, base, first, row, {head, end});
      if (first == last) return;
      ++first;
    }
    if (last > first) whole_rows(prefix, base, row, {first, last});
    if (tail != 0) descend(prefix, base, last, row, {0, tail});
  }

  void descend(std::vector<std::uint64_t> prefix, std::int64_t base, std::int64_t index,
               std::int64_t row, shard::Range run) {
    prefix.push_back(static_cast<std::uint64_t>(index));
    split(prefix, base + index * row, run);
  }

  void whole_rows(std::vector<std::uint64_t> const& prefix, std::int64_t base, std::int64_t row,
                  shard::Range rows) {
    Box box{prefix,
            std::vector<std::uint64_t>(prefix.size(), 1),
            {base + rows.begin * row, base + rows.end * row}};
    box.start.push_back(static_cast<std::uint64_t>(rows.begin));
    box.extent.push_back(static_cast<std::uint64_t>(rows.size()));
    for (std::size_t d = prefix.size() + 1; d < shape.size(); ++d) {
      box.start.push_back(0);
      box.extent.push_back(static_cast<std::uint64_t>(shape[d]));
    }
    boxes.push_back(std::move(box));
  }
};

}  // namespace

std::vector<Box> boxes_of(std::span<std::int64_t const> shape, shard::Range run) {
  Splitter splitter{shape, {}};
  splitter.split({}, 0, run);
  return std::move(splitter.boxes);
}

}  // namespace spillway::io
