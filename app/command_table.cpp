// Command name -> function.
#include "app/commands.hpp"

namespace spillway::app {

std::vector<Command> command_table() {
  return {
      {"train", "trains a model; under mpirun, srun, or alone", run_train},
      {"plan", "what would go where, and what is missing; allocates nothing", run_plan},
      {"generate", "text from a checkpoint or a Hugging Face folder", run_generate},
      {"tokenize", "text and JSONL to token files", run_tokenize},
      {"ckpt", "ls, show, verify, diff, prune, export, import of checkpoints", run_ckpt},
      {"bench", "this machine's limits, and how close the program comes", run_bench},
      {"doctor", "what this machine offers", run_doctor},
  };
}

}  // namespace spillway::app
