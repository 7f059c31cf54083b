#include "lib/model/weight_source.hpp"

#include <algorithm>

#include "lib/core/philox.hpp"

namespace spillway::model {

void RandomWeights::read(TensorSpec const& tensor, std::int64_t begin, std::span<float> out) {
  if (tensor.init_std == 0) {
    std::fill(out.begin(), out.end(), static_cast<float>(tensor.init_mean));
    return;
  }
  std::uint64_t const stream = hash_name(tensor.name);
  std::uint64_t element = static_cast<std::uint64_t>(begin);
  for (std::size_t i = 0; i < out.size();) {
    auto const block = normals(seed_, stream, element / 4);
    for (std::size_t lane = element % 4; lane < 4 && i < out.size(); ++lane, ++i, ++element)
      out[i] =
          static_cast<float>(tensor.init_mean + tensor.init_std * static_cast<double>(block[lane]));
  }
}

}  // namespace spillway::model
