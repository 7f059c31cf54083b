#include "lib/model/feed_forward.hpp"

#include "lib/model/experts.hpp"
#include "lib/model/mlp.hpp"

namespace spillway::model {

template <class T>
std::unique_ptr<FeedForward<T>> make_feed_forward(ModelConfig const& config,
                                                  shard::FlatLayout const& layout,
                                                  std::int64_t layer) {
  if (config.experts > 0) return std::make_unique<ExpertsLayer<T>>(config, layout, layer);
  return std::make_unique<MlpLayer<T>>(config, layout, layer);
}

template std::unique_ptr<FeedForward<float>> make_feed_forward(ModelConfig const&,
                                                               shard::FlatLayout const&,
                                                               std::int64_t);
template std::unique_ptr<FeedForward<bf16>> make_feed_forward(ModelConfig const&,
                                                              shard::FlatLayout const&,
                                                              std::int64_t);

}  // namespace spillway::model
