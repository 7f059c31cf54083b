// spillway train: one process of a run, started by mpirun, srun or alone.
#include <chrono>
#include <cmath>
#include <optional>

#include "app/collectively.hpp"
#include "app/commands.hpp"
#include "app/signals.hpp"
#include "app/training.hpp"
#include "lib/comm/mpi/mpi_runtime.hpp"
#include "lib/comm/watchdog.hpp"
#include "lib/core/log.hpp"

namespace spillway::app {
namespace {

Syntax train_syntax() {
  return {.usage = "spillway train [--config FILE] [--section.key=value ...]",
          .summary =
              "Trains a model; started by mpirun, srun or alone. The same command goes on "
              "where a stopped or killed run has left its last checkpoint.",
          .flags = {},
          .sections = {"model", "data", "train", "optim", "zero", "offload", "checkpoint", "run"},
          .positional_max = 0};
}

/// A fault of one rank ends the job; one that all ranks know of ends it in order.
int guarded_training(Options const& options, comm::Communicator& comm, StopSignals& signals,
                     Oversight& oversight) {
  Log const log(comm.rank());
  try {
    return train_run(options, comm, signals, oversight);
  } catch (CollectiveError const& error) {
    log.root(Level::error, "{}", error.what());
    comm.barrier();  // the message is out before mpirun sees the first non-zero exit
    return static_cast<int>(error.fault());
  } catch (Error const& error) {
    log.local(Level::error, "{}", error.what());
    if (comm.size() > 1) comm.abort(static_cast<int>(error.fault()));
    return static_cast<int>(error.fault());
  } catch (std::exception const& error) {
    log.local(Level::error, "{}", error.what());
    if (comm.size() > 1) comm.abort(static_cast<int>(Fault::internal));
    return static_cast<int>(Fault::internal);
  }
}

comm::WatchdogOptions watchdog_options(RunOptions const& options) {
  return {.timeout = std::chrono::milliseconds(std::llround(options.peer_timeout * 1e3))};
}

/// A dead peer ends this rank with one message, and the job with it.
comm::Watchdog::Callbacks callbacks(comm::Communicator& comm, Oversight const& oversight) {
  return {.on_alarm =
              [&comm](comm::PeerReport const& report) {
                Log(comm.rank()).local(Level::error, "{}", comm::describe(report));
                if (report.alarm != comm::Alarm::stalled) comm.abort(static_cast<int>(Fault::peer));
              },
          .oldest_request =
              [&oversight] {
                auto const* io = oversight.io.load();
                double const age = io ? io->stats().oldest_request_s : 0.0;
                return comm::Watchdog::Request{age > 0 ? "disk" : "", age};
              }};
}

}  // namespace

int run_train(Arguments const& arguments) {
  Syntax const syntax = train_syntax();
  CommandLine const line = parse_command_line(syntax, arguments.words);
  if (answer_questions(line, syntax)) return 0;
  StopSignals signals(line.options.run.stop_signals);
  std::optional<comm::MpiRuntime> mpi;
  if (comm::started_by_launcher()) mpi.emplace();
  auto const comm = mpi ? comm::make_mpi_communicator() : comm::make_self_communicator();
  Log const log(comm->rank());
  if (auto const warning = comm::launch_warning(comm->size()); !warning.empty())
    log.root(Level::warning, "{}", warning);
  Oversight oversight;
  comm::Watchdog watchdog(*comm, watchdog_options(line.options.run), callbacks(*comm, oversight));
  oversight.set_phase = [&](std::string_view phase) { watchdog.set_phase(phase); };
  return guarded_training(line.options, *comm, signals, oversight);
}

}  // namespace spillway::app
