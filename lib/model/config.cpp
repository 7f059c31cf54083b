// Reads a Hugging Face config.json into a ModelConfig; every value is checked before it is used.
#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>

#include "lib/core/error.hpp"
#include "lib/model/config_parts.hpp"

namespace spillway::model {
namespace {

constexpr double kParametersMax = 1e15;

constexpr std::initializer_list<char const*> kDropoutKeys = {
    "attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout", "hidden_dropout", "dropout"};

void read_notes(ConfigObject const& file, ModelConfig& config) {
  for (char const* key : kDropoutKeys) {
    double const rate = file.number(key, 0, 1, 0.0);
    if (rate > 0)
      config.notes.push_back(
          fmt::format("{} = {} is not followed: training runs without dropout", key, rate));
  }
}

void check_size(ModelConfig const& config, std::string const& origin) {
  auto const wide = [](std::int64_t a, std::int64_t b) { return double(a) * double(b); };
  double const attention = wide(config.hidden_size, config.heads * config.head_dim) * 4;
  double const mlp = wide(config.hidden_size, config.intermediate_size) * 3 *
                     static_cast<double>(std::max<std::int64_t>(config.experts, 1));
  double const total = double(config.layers) * (attention + mlp) +
                       wide(config.hidden_size, config.vocab_size) * 2 +
                       wide(config.hidden_size, config.max_positions);
  if (total > kParametersMax)
    fail(Fault::bad_input,
         fmt::format("{}: the model would have about {:.3g} parameters (more than "
                     "{:.0e}). Is a size mistyped?",
                     origin, total, kParametersMax));
}

}  // namespace

ModelConfig parse_config(std::string const& text, std::string const& origin) {
  ConfigObject const file(text, origin);
  ModelConfig config;
  read_family(file, config);
  if (file.has("quantization_config"))
    file.refuse("quantization_config", "models with plain weights are supported");
  config.initializer_range = file.number("initializer_range", 0, 1e3, 0.02);
  config.dtype = file.text("dtype", file.text("torch_dtype", ""));
  config.json = text;
  read_notes(file, config);
  check_size(config, origin);
  return config;
}

}  // namespace spillway::model
