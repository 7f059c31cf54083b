// Models with known answers, read from tests/data.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/support/resident_model.hpp"
#include "tests/support/safetensors_lite.hpp"

namespace spillway::test {

struct Case {
  model::ModelSpec spec;
  StoredTensors weights;  // by name
  StoredTensors expected;
  std::vector<std::int32_t> inputs, targets;
  model::Shape shape;

  model::Tokens tokens() const { return {inputs, targets}; }
};

inline std::string data_path(std::string const& name) { return SPILLWAY_TEST_DATA "/" + name; }

/// tests/data/oracle/<name>: written by transformers in float64 (shared/oracle/make_oracle.py).
inline Case oracle_case(std::string const& name) {
  std::string const folder = data_path("oracle/" + name);
  Case result;
  result.spec = model::make_spec(
      model::parse_config(read_text(folder + "/config.json"), folder + "/config.json"));
  result.weights = read_safetensors(folder + "/model.safetensors");
  result.expected = read_safetensors(folder + "/oracle.safetensors");
  auto const& tokens = result.expected.at("tokens");
  result.shape = {tokens.shape[0], tokens.shape[1] - 1};
  for (std::int64_t b = 0; b < result.shape.B; ++b) {
    auto const row = tokens.integers.begin() + b * tokens.shape[1];
    result.inputs.insert(result.inputs.end(), row, row + result.shape.T);
    result.targets.insert(result.targets.end(), row + 1, row + result.shape.T + 1);
  }
  return result;
}

/// tests/data/reference/<name>: written by make_reference.py beside it.
inline Case reference_case(std::string const& name) {
  std::string const stem = data_path("reference/" + name);
  Case result;
  result.spec = model::make_spec(model::parse_config(read_text(stem + ".json"), stem + ".json"));
  result.expected = read_safetensors(stem + ".safetensors");
  std::string const prefix = "weights.";
  for (auto const& [key, value] : result.expected)
    if (key.rfind(prefix, 0) == 0) result.weights.emplace(key.substr(prefix.size()), value);
  auto const& inputs = result.expected.at("inputs");
  result.shape = {inputs.shape[0], inputs.shape[1]};
  result.inputs = inputs.integers;
  result.targets = result.expected.at("targets").integers;
  return result;
}

inline ResidentModel load(Case const& from, ResidentModel::Options options = {}) {
  options.shape = from.shape;
  ResidentModel model(from.spec, options);
  for (auto const& [name, tensor] : from.weights) model.set(name, tensor.floats);
  return model;
}

/// |a - b| / |b|, Euclidean.
inline double relative_distance(std::vector<float> const& a, std::vector<float> const& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / norm);
}

/// Largest |a - b|.
inline double largest_difference(std::vector<float> const& a, std::vector<float> const& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    double const difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= largest)) largest = difference;  // NaN stays
  }
  return largest;
}

}  // namespace spillway::test
