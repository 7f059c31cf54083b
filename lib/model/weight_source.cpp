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
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint64_t const element = static_cast<std::uint64_t>(begin) + i;
    double const value = static_cast<double>(normal(seed_, stream, element));
    out[i] = static_cast<float>(tensor.init_mean + tensor.init_std * value);
  }
}

}  // namespace spillway::model
