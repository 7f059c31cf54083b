// spillway generate: text from a checkpoint or a Hugging Face folder, one token after another.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "app/checkpoint_paths.hpp"
#include "app/commands.hpp"
#include "app/host.hpp"
#include "app/run.hpp"
#include "app/state_fill.hpp"
#include "io/safetensors/safetensors_weights.hpp"
#include "io/tokens/byte_tokenizer.hpp"
#include "lib/core/error.hpp"
#include "lib/core/philox.hpp"

namespace spillway::app {
namespace {

Syntax generate_syntax() {
  return {.usage = "spillway generate --checkpoint DIR | --model.path=FOLDER [--prompt TEXT]",
          .summary =
              "Continues a text. Tokens are bytes. Any of the run's checkpoints will do; "
              "DIR may be the run directory.",
          .flags = {{"checkpoint", "DIR", "a checkpoint, a directory of checkpoints or a run"},
                    {"prompt", "TEXT", "what to continue (default: a line end)"},
                    {"tokens", "N", "how many tokens to add (default 100)"},
                    {"temperature", "X", "0: the likeliest token (default 0.8)"},
                    {"top-k", "K", "choose among the K likeliest; 0: all (default 40)"},
                    {"seed", "N", "of the choices (default 1)"}},
          .sections = {"model", "offload"},
          .positional_max = 0};
}

double number(CommandLine const& line, char const* flag, double otherwise) {
  if (!line.has(flag)) return otherwise;
  std::string const text = line.flag(flag);
  char* end = nullptr;
  double const value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= 0) || !std::isfinite(value))
    fail(Fault::usage, fmt::format("--{} = '{}' is not a number of at least 0.", flag, text));
  return value;
}

/// How the next token is drawn from logits.
struct Choice {
  double temperature = 0.8;
  std::size_t top_k = 40;
  std::uint64_t seed = 1;
};

std::int32_t choose(std::span<float const> logits, Choice const& choice, std::uint64_t position) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  // Ties go to the lower token, so that the text depends on the weights and the seed only.
  auto const likelier = [&](std::int32_t a, std::int32_t b) {
    float const la = logits[static_cast<std::size_t>(a)];
    float const lb = logits[static_cast<std::size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  std::size_t const count = choice.top_k == 0 ? order.size() : std::min(choice.top_k, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    likelier);
  if (choice.temperature <= 0) return order.front();
  double const most = logits[static_cast<std::size_t>(order.front())];
  std::vector<double> weight(count);
  for (std::size_t i = 0; i < count; ++i)
    weight[i] = std::exp((logits[static_cast<std::size_t>(order[i])] - most) / choice.temperature);
  double const total = std::accumulate(weight.begin(), weight.end(), 0.0);
  double left = total * uniform_open(philox(choice.seed, position, hash_name("generate"))[0]);
  for (std::size_t i = 0; i < count; ++i)
    if ((left -= weight[i]) <= 0) return order[i];
  return order[count - 1];
}

/// A model in reading order: nothing but weights is kept.
struct Reader {
  Options options;
  Planned planned;
  std::unique_ptr<comm::Communicator> comm = comm::make_self_communicator();
  std::unique_ptr<Machinery> machinery;
  std::unique_ptr<train::Engine> engine;

  void build(model::ModelSpec spec, DType compute, std::int64_t T) {
    options.data.seq_len = T;
    planned = prepare_plan(options, std::move(spec), {.compute = compute, .weights_only = true}, 1);
    auto const budget = options.offload.host_memory.value_or(default_host_memory(1));
    auto const request =
        planned.request(options, {}, {resident_bytes(), budget}, 1, {.B = 1, .T = T}, 1);
    machinery =
        std::make_unique<Machinery>(options, planned, offload::make_plan(request), Ranks{}, "");
    engine = machinery->make_engine(planned, *comm, {});
  }
};

std::int64_t context_length(model::ModelConfig const& config, std::int64_t wanted) {
  constexpr std::int64_t kMost = 1024;
  std::int64_t const most =
      config.max_positions > 0 ? std::min(config.max_positions, kMost) : kMost;
  return std::clamp<std::int64_t>(wanted, 1, most);
}

void load(CommandLine const& line, Reader& reader, std::int64_t length) {
  if (line.has("checkpoint")) {
    io::CheckpointReader const saved(one_checkpoint(line.flag("checkpoint")));
    auto spec = model::make_spec(
        model::parse_config(saved.schema().config_json, saved.directory().string()));
    auto const T = context_length(spec.config, length);
    reader.build(std::move(spec), saved.schema().weight_type, T);
    saved.check_model(checkpoint_schema(reader.planned.spec, reader.planned.types.compute));
    fill_state(reader.machinery->store(), reader.planned.types, saved, reader.machinery->io());
    return;
  }
  if (line.options.model.path.empty())
    fail(Fault::usage, "no model is given. Add --checkpoint DIR or --model.path=FOLDER?");
  auto spec = read_model(line.options.model);
  auto const T = context_length(spec.config, length);
  reader.build(std::move(spec), line.options.model.dtype, T);
  io::SafetensorsWeights weights(line.options.model.path, reader.planned.spec);
  fill_weights(reader.machinery->store(), reader.planned.spec, reader.planned.types, weights,
               reader.machinery->stream());
}

}  // namespace

int run_generate(Arguments const& arguments) {
  Syntax const syntax = generate_syntax();
  CommandLine const line = parse_command_line(syntax, arguments.words);
  if (answer_questions(line, syntax)) return 0;
  Choice const choice{.temperature = number(line, "temperature", 0.8),
                      .top_k = static_cast<std::size_t>(number(line, "top-k", 40)),
                      .seed = static_cast<std::uint64_t>(number(line, "seed", 1))};
  auto const count = static_cast<std::int64_t>(number(line, "tokens", 100));
  std::string const prompt = line.flag("prompt", "\n");
  std::vector<std::int32_t> tokens;
  for (unsigned char byte : prompt) tokens.push_back(byte);

  Reader reader{.options = line.options};
  load(line, reader, static_cast<std::int64_t>(tokens.size()) + count);
  auto const& config = reader.planned.spec.config;
  if (config.vocab_size < 256)
    fail(Fault::bad_input, fmt::format("the model knows {} tokens (a byte needs 256). Use another "
                                       "model?",
                                       config.vocab_size));
  auto const context = static_cast<std::size_t>(reader.options.data.seq_len);
  std::vector<float> logits(static_cast<std::size_t>(config.vocab_size));
  fmt::print("{}", prompt);
  for (std::int64_t at = 0; at < count; ++at) {
    std::span<std::int32_t const> seen(tokens);
    if (seen.size() > context) seen = seen.last(context);
    reader.engine->next_logits(seen, logits);
    std::int32_t const token = choose(logits, choice, static_cast<std::uint64_t>(at));
    if (token >= 256) break;  // end of text
    tokens.push_back(token);
    std::fputc(token, stdout);
    std::fflush(stdout);
  }
  fmt::print("\n");
  return 0;
}

}  // namespace spillway::app
