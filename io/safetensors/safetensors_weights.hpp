// Initial weights from a Hugging Face folder, checked against the description of the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "io/safetensors/safetensors.hpp"
#include "lib/model/weight_source.hpp"

namespace spillway::io {

/// All tensors of the model must be there with their shapes, and nothing else but known buffers.
/// Names are taken with and without the prefix of the base model ("transformer." or "model."). A
/// tied model takes its embedding from the head if only that is there, and refuses a head that
/// differs from the embedding.
class SafetensorsWeights : public model::WeightSource {
 public:
  /// Throws Fault::bad_input naming folder and tensors.
  SafetensorsWeights(std::filesystem::path const& folder, model::ModelSpec const& spec);

  void read(model::TensorSpec const& tensor, std::int64_t begin, std::span<float> out) override;

 private:
  std::string stored_name(std::string const& name) const;
  void resolve(model::ModelSpec const& spec);
  void check_shapes(model::ModelSpec const& spec) const;
  void settle_tied_head(model::ModelSpec const& spec);
  void check_same(std::string const& embedding, std::string const& head) const;
  void check_extra() const;

  SafetensorsFolder folder_;
  std::string origin_;                            // for messages
  std::map<std::string, std::string> stored_as_;  // name in the model -> name in the file
  bool head_accounted_for_ = false;               // a tied model's copy of the embedding
};

}  // namespace spillway::io
