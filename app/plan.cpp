// spillway plan: what would go where, and what is missing; allocates nothing.
#include "offload/plan.hpp"

#include <fmt/core.h>

#include "app/commands.hpp"
#include "app/host.hpp"
#include "app/run.hpp"
#include "lib/core/bytes.hpp"
#include "lib/core/numeric.hpp"

namespace spillway::app {
namespace {

Syntax plan_syntax() {
  return {.usage = "spillway plan [--config FILE] [--section.key=value ...] [--ranks N]",
          .summary =
              "Prints the bytes of every state on every tier, memory by purpose and the bytes "
              "that a step moves, for the largest rank. Exit code 4 where a budget is too small.",
          .flags = {{"ranks", "N", "ranks of the run (default 1)"},
                    {"ranks-per-host", "N", "of them on one host (default: all)"}},
          .sections = {"model", "data", "train", "optim", "zero", "offload", "checkpoint", "run"},
          .positional_max = 0};
}

int count(CommandLine const& line, char const* flag, int otherwise) {
  if (!line.has(flag)) return otherwise;
  std::string const text = line.flag(flag);
  char* end = nullptr;
  long const value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < 1 || value > 1'000'000)
    fail(Fault::usage, fmt::format("--{} = '{}' is not a number of ranks.", flag, text));
  return static_cast<int>(value);
}

// A process under MPI holds about this much before the engine is there; a run measures its own.
constexpr std::uint64_t kBaseBytes = std::uint64_t{64} << 20;

}  // namespace

int run_plan(Arguments const& arguments) {
  Syntax const syntax = plan_syntax();
  CommandLine const line = parse_command_line(syntax, arguments.words);
  if (answer_questions(line, syntax)) return 0;
  Options const& options = line.options;
  int const ranks = count(line, "ranks", 1);
  int const local = std::min(ranks, count(line, "ranks-per-host", ranks));
  validate_plan(options, ranks);
  optim::StateTypes const types{.compute = options.model.dtype, .grad = options.optim.grad_dtype};
  Planned const planned = prepare_plan(options, read_model(options.model), types, local);
  std::int64_t const micro = micro_batch_size(options, ranks);
  int const micro_batches = narrow<int>(options.train.global_batch / ranks / micro);
  int const waves = options.train.wave > 0 ? waves_of(micro_batches, options.train.wave) : 0;
  auto const budget = options.offload.host_memory.value_or(default_host_memory(local));
  auto const request =
      planned.request(options, {.size = ranks, .local_size = local}, {kBaseBytes, budget},
                      micro_batches, {.B = micro, .T = options.data.seq_len}, waves);
  auto const plan = offload::make_plan(request);
  fmt::print("{} on {} rank(s), {} bytes of state each\n{}", describe_parameters(planned.spec),
             ranks, plan.nvme_bytes + plan.store_bytes.states, offload::describe(plan, request));
  return 0;
}

}  // namespace spillway::app
