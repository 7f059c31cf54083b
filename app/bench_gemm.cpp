// `spillway bench gemm`: the products of one training step on its own shapes, by oneDNN and by this
// program. What oneDNN takes for them is the GEMM bound of a framework that uses it. Biases, norms,
// attention and all that is no product of a linear layer are left out.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/bench.hpp"
#include "app/small_file.hpp"
#include "lib/core/error.hpp"
#include "lib/model/head.hpp"
#include "lib/model/spec.hpp"
#include "lib/ops/matmul.hpp"

namespace spillway::app {
namespace {

constexpr char const* kGpt2 = R"({"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024,
    "n_embd": 768, "n_layer": 12, "n_head": 12})";

/// How the gradient of x is stored: alone, or as the first or a later term of a sum in fp32.
enum class Term { only, first, later };

/// A linear layer: y = x W, rows of x and how often a step has them. The head's stands for all of
/// its parts, which differ by a column or two.
struct Layer {
  std::string name;
  std::int64_t rows, in, out;
  double count;
  bool in_out;  // how the weight is stored
  Term term = Term::only;
  bool logits = false;  // y is fp32 at any type
};

std::vector<Layer> layers_of(model::ModelConfig const& config, std::int64_t rows) {
  bool const in_out = config.weight_order == model::WeightOrder::in_out;
  bool const gated = config.mlp == model::Mlp::gated_silu;
  std::int64_t const width = config.hidden_size, inner = config.intermediate_size;
  std::int64_t const queries = config.heads * config.head_dim;
  std::int64_t const keys = config.kv_heads * config.head_dim;
  double const blocks = static_cast<double>(config.layers);
  std::vector<Layer> layers = {{"qkv", rows, width, queries + 2 * keys, blocks, in_out},
                               {"out", rows, queries, width, blocks, in_out}};
  if (gated) layers.push_back({"gate", rows, width, inner, blocks, in_out, Term::first});
  layers.push_back({"up", rows, width, inner, blocks, in_out, gated ? Term::later : Term::only});
  layers.push_back({"down", rows, inner, width, blocks, in_out});
  model::HeadCut const cut = model::cut_head(rows, config.vocab_size);
  double const parts = static_cast<double>(rows) / static_cast<double>(cut.rows) *
                       static_cast<double>(config.vocab_size) / static_cast<double>(cut.columns);
  layers.push_back({"head", cut.rows, width, cut.columns, parts, false, Term::later, true});
  return layers;
}

/// One product of a layer, in the types that the model uses.
struct Product {
  std::string name;
  double count;
  ops::MatmulArgs args;
};

std::vector<Product> products_of(Layer const& layer, DType type) {
  ops::Matrix const plain{nullptr, type, false, 0}, turned{nullptr, type, true, 0};
  ops::MatmulArgs forward{.M = layer.rows,
                          .N = layer.out,
                          .K = layer.in,
                          .a = plain,
                          .b = layer.in_out ? plain : turned,
                          .c_type = layer.logits ? DType::f32 : type};
  ops::MatmulArgs input{.M = layer.rows,
                        .N = layer.in,
                        .K = layer.out,
                        .a = plain,
                        .b = layer.in_out ? turned : plain,
                        .c_type = layer.term == Term::only ? type : DType::f32,
                        .accumulate = layer.term == Term::later};
  ops::MatmulArgs weight{.M = layer.in_out ? layer.in : layer.out,
                         .N = layer.in_out ? layer.out : layer.in,
                         .K = layer.rows,
                         .a = turned,
                         .b = plain,
                         .cold = true};
  return {{layer.name, layer.count, forward},
          {layer.name + " dX", layer.count, input},
          {layer.name + " dW", layer.count, weight}};
}

struct Result {
  Product product;
  double onednn_s = 0, own_s = 0;
  double flops() const {
    auto const& a = product.args;
    return 2.0 * static_cast<double>(a.M) * static_cast<double>(a.N) * static_cast<double>(a.K);
  }
};

/// oneDNN's ways with a type, of which the faster counts.
std::vector<ops::OneDnnWay> ways_with(DType type) {
  if (type == DType::f32) return {ops::OneDnnWay::blas, ops::OneDnnWay::primitive};
  return {ops::OneDnnWay::primitive};
}

Result measure(Product product, int threads, int rounds) {
  auto const device = device::make_cpu_device();
  auto& args = product.args;
  RandomArray a(*device, args.M * args.K, args.a.type), b(*device, args.K * args.N, args.b.type);
  RandomArray c(*device, args.M * args.N, args.c_type);
  args.a.data = a.as<void const*>();
  args.b.data = b.as<void const*>();
  args.c = c.as<void*>();
  auto const ways = ways_with(args.a.type);
  std::size_t scratch = ops::matmul_scratch_bytes(args, threads);
  for (auto const way : ways)
    scratch = std::max(scratch, ops::matmul_by_onednn_scratch_bytes(args, way, threads));
  auto const stream = device->make_stream(scratch, threads);
  Result result{product};
  auto const shorten = [](double& best, double seconds) {
    best = best == 0 ? seconds : std::min(best, seconds);
  };
  // By turns, so that what disturbs the machine disturbs all.
  for (int round = 0; round < rounds; ++round) {
    for (auto const way : ways)
      shorten(result.onednn_s, fastest(2, [&] { ops::matmul_by_onednn(args, way, *stream); }));
    shorten(result.own_s, fastest(2, [&] { ops::matmul(args, *stream); }));
  }
  return result;
}

struct Settings {
  std::int64_t rows;
  DType type;
  int threads;
};

nlohmann::json to_json(std::vector<Result> const& results, Settings const& settings) {
  nlohmann::json all = {{"threads", settings.threads},
                        {"rows", settings.rows},
                        {"dtype", std::string(name_of(settings.type))},
                        {"products", nlohmann::json::array()}};
  double onednn = 0, own = 0;
  for (Result const& result : results) {
    auto const& args = result.product.args;
    onednn += result.product.count * result.onednn_s;
    own += result.product.count * result.own_s;
    all["products"].push_back({{"name", result.product.name},
                               {"M", args.M},
                               {"N", args.N},
                               {"K", args.K},
                               {"count", result.product.count},
                               {"onednn_gflops", result.flops() / result.onednn_s * 1e-9},
                               {"spillway_gflops", result.flops() / result.own_s * 1e-9},
                               {"ratio", result.onednn_s / result.own_s}});
  }
  all["onednn_s"] = onednn;
  all["spillway_s"] = own;
  all["ratio"] = onednn / own;
  all["onednn_tokens_per_s"] = static_cast<double>(settings.rows) / onednn;
  all["spillway_tokens_per_s"] = static_cast<double>(settings.rows) / own;
  return all;
}

void print(nlohmann::json const& all) {
  fmt::print("{} threads, {}, a step of {} tokens\n", all["threads"].get<int>(),
             all["dtype"].get<std::string>(), all["rows"].get<std::int64_t>());
  fmt::print("{:<8} {:>6} x {:>6} x {:>6} {:>8}  {:>14} {:>11} {:>6}\n", "", "M", "N", "K",
             "a step", "oneDNN GFLOP/s", "own GFLOP/s", "ratio");
  for (auto const& product : all["products"])
    fmt::print("{:<8} {:>6} x {:>6} x {:>6} {:>8.1f}  {:>14.0f} {:>11.0f} {:>6.2f}\n",
               product["name"].get<std::string>(), product["M"].get<std::int64_t>(),
               product["N"].get<std::int64_t>(), product["K"].get<std::int64_t>(),
               product["count"].get<double>(), product["onednn_gflops"].get<double>(),
               product["spillway_gflops"].get<double>(), product["ratio"].get<double>());
  fmt::print(
      "all      oneDNN {:.3f} s, the GEMM bound: {:.0f} tokens/s; own {:.3f} s: {:.0f} "
      "tokens/s, {:.2f} times as fast\n",
      all["onednn_s"].get<double>(), all["onednn_tokens_per_s"].get<double>(),
      all["spillway_s"].get<double>(), all["spillway_tokens_per_s"].get<double>(),
      all["ratio"].get<double>());
}

}  // namespace

int bench_gemm(std::vector<std::string> const& words) {
  Syntax syntax;
  syntax.usage = "spillway bench gemm [flags]";
  syntax.summary =
      "Computes the products of one training step, each by oneDNN and by this program.";
  syntax.flags = {{"config", "FILE", "config.json of the model [GPT-2 124M]"},
                  {"batch", "N", "sequences of a step [4]"},
                  {"seq", "N", "tokens of a sequence [256]"},
                  {"dtype", "TYPE", "fp32 or bf16 [bf16]"},
                  {"rounds", "N", "of which the fastest counts [5]"},
                  {"threads", "N", "threads [all that may be used]"},
                  {"json", "", "print one JSON object"}};
  CommandLine const line = parse_command_line(syntax, words);
  if (answer_questions(line, syntax)) return 0;
  Settings settings{};
  settings.rows =
      whole_flag(line, "batch", {1, 1 << 20, 4}) * whole_flag(line, "seq", {1, 1 << 20, 256});
  settings.type = dtype_from_name(line.flag("dtype", "bf16"));
  if (settings.type != DType::f32 && settings.type != DType::bf16)
    fail(Fault::usage,
         fmt::format("bad value '{}' for --dtype (it takes fp32 or bf16).", line.flag("dtype")));
  settings.threads = threads_flag(line);
  auto const rounds = static_cast<int>(whole_flag(line, "rounds", {1, 1000, 5}));
  std::string const file = line.flag("config");
  auto const config = file.empty() ? model::parse_config(kGpt2, "GPT-2 124M")
                                   : model::parse_config(read_small_file(file), file);
  if (config.experts > 0)
    fail(Fault::usage,
         "bench gemm has no mixture of experts (a router decides how many rows each "
         "has). Use the config.json of a dense model?");
  std::vector<Result> results;
  for (Layer const& layer : layers_of(config, settings.rows))
    for (Product const& product : products_of(layer, settings.type))
      results.push_back(measure(product, settings.threads, rounds));
  nlohmann::json const all = to_json(results, settings);
  if (line.has("json"))
    fmt::print("{}\n", all.dump(2));
  else
    print(all);
  return 0;
}

}  // namespace spillway::app
