// `spillway ckpt`: looks at, checks, compares and removes checkpoints.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "app/checkpoint_paths.hpp"
#include "app/closest.hpp"
#include "app/commands.hpp"
#include "app/exchange.hpp"
#include "app/option_text.hpp"
#include "app/options.hpp"
#include "lib/core/bytes.hpp"
#include "lib/core/error.hpp"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

void print_json(Json const& json) {
  fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace));
}

std::unique_ptr<io::Engine> engine_for(fs::path const& directory) {
  return io::make_engine(io::EngineKind::automatic, {}, directory.string());
}

std::int64_t parameters(io::CheckpointSchema const& schema) {
  std::int64_t sum = 0;
  for (auto const& unit : schema.units)
    for (auto const& tensor : unit.layout.tensors()) sum += tensor.range.size();
  return sum;
}

Json summary(fs::path const& path) {
  io::CheckpointReader const reader(path);
  return {{"path", path.string()},
          {"step", reader.state().step},
          {"tokens", reader.state().tokens},
          {"ranks", reader.ranks()},
          {"dtype", name_of(reader.schema().weight_type)},
          {"parameters", parameters(reader.schema())},
          {"bytes", checkpoint_bytes(path)}};
}

int list(CommandLine const& line) {
  fs::path const folder = checkpoints_folder(line.positional.at(0));
  fs::path const latest = latest_checkpoint(folder);
  Json rows = Json::array();
  for (auto const& path : io::list_checkpoints(folder)) {
    Json row;
    try {
      row = summary(path);
    } catch (Error const& error) {
      row = {{"path", path.string()}, {"fault", error.problem()}};
    }
    row["latest"] = !latest.empty() && fs::canonical(path) == latest;
    rows.push_back(row);
  }
  if (line.has("json")) return print_json(rows), 0;
  for (auto const& row : rows) {
    std::string const name = fs::path(row["path"].get<std::string>()).filename().string();
    if (row.contains("fault")) {
      fmt::print("{}  BROKEN: {}\n", name, row["fault"].get<std::string>());
      continue;
    }
    fmt::print("{}  {} tokens  {} ranks  {}  {}{}\n", name, row["tokens"].get<std::int64_t>(),
               row["ranks"].get<int>(), row["dtype"].get<std::string>(),
               format_bytes(row["bytes"].get<std::uint64_t>()),
               row["latest"].get<bool>() ? "  latest" : "");
  }
  return 0;
}

Json tensor_rows(io::CheckpointSchema const& schema) {
  Json rows = Json::array();
  for (auto const& unit : schema.units)
    for (auto const& tensor : unit.layout.tensors())
      rows.push_back({{"unit", unit.name}, {"name", tensor.name}, {"shape", tensor.shape}});
  return rows;
}

int show(CommandLine const& line) {
  fs::path const path = one_checkpoint(line.positional.at(0));
  Json all = summary(path);
  io::CheckpointReader const reader(path);
  all["next_position"] = reader.state().next_position;
  all["state"] = Json::parse(reader.state().json, nullptr, false);
  all["config"] = Json::parse(reader.schema().config_json, nullptr, false);
  all["tensors"] = tensor_rows(reader.schema());
  if (line.has("json")) return print_json(all), 0;
  for (char const* key :
       {"path", "step", "tokens", "next_position", "ranks", "dtype", "parameters", "bytes"}) {
    Json const& value = all[key];
    fmt::print("{:<14} {}\n", key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  fmt::print("{:<14} {}\n{:<14} {}\n", "state", all["state"].dump(), "config",
             all["config"].dump());
  for (auto const& tensor : all["tensors"])
    fmt::print("  {:<12} {:<48} {}\n", tensor["unit"].get<std::string>(),
               tensor["name"].get<std::string>(), tensor["shape"].dump());
  return 0;
}

int verify(CommandLine const& line) {
  int code = 0;
  for (auto const& path : all_checkpoints(line.positional.at(0))) {
    try {
      io::CheckpointReader const reader(path);
      reader.verify(*engine_for(path));
      fmt::print("{} OK ({})\n", path.string(), format_bytes(checkpoint_bytes(path)));
    } catch (Error const& error) {
      fmt::print("{} BROKEN: {}\n", path.string(), error.what());
      code = static_cast<int>(error.fault());
    }
  }
  return code;
}

int diff(CommandLine const& line) {
  io::CheckpointReader const first(one_checkpoint(line.positional.at(0)));
  io::CheckpointReader const second(one_checkpoint(line.positional.at(1)));
  auto const differences = io::diff_checkpoints(first, second, *engine_for(first.directory()));
  for (auto const& difference : differences) fmt::print("{}\n", difference);
  if (differences.empty()) fmt::print("identical\n");
  return differences.empty() ? 0 : 1;
}

int prune(CommandLine const& line) {
  fs::path const folder = checkpoints_folder(line.positional.at(0));
  auto const keep = integer_codec(1, 1 << 30).read(line.flag("keep"));
  if (!keep)
    fail(Fault::usage, fmt::format("bad value '{}' for --keep (it takes a whole number >= 1: how "
                                   "many of the newest stay). Add --keep=N?",
                                   line.flag("keep")));
  std::vector<fs::path> kept;
  fs::path const latest = latest_checkpoint(folder);
  if (!latest.empty()) kept.push_back(folder / latest.filename());
  auto const own = io::list_checkpoints(folder);
  for (auto const& path : io::superseded(own, static_cast<int>(*keep), kept)) {
    std::string const size = format_bytes(checkpoint_bytes(path));
    if (!line.has("dry-run")) io::remove_checkpoint(path);
    fmt::print("{} {} ({})\n", line.has("dry-run") ? "would remove" : "removed", path.string(),
               size);
  }
  return 0;
}

struct Subcommand {
  std::string name;
  Syntax syntax;
  std::size_t positional;
  int (*run)(CommandLine const&);
};

std::vector<Subcommand> subcommands() {
  Flag const json{"json", "", "print JSON"};
  Flag const dtype{"dtype", "TYPE", "fp32 or bf16"};
  auto const made = [](std::string const& name, std::string const& operands,
                       std::string const& summary, std::vector<Flag> flags, std::size_t count,
                       int (*run)(CommandLine const&)) {
    Syntax syntax;
    syntax.usage = fmt::format("spillway ckpt {} {}", name, operands);
    syntax.summary = summary;
    syntax.flags = std::move(flags);
    syntax.positional_max = count;
    return Subcommand{name, syntax, count, run};
  };
  return {
      made("ls", "DIR", "Lists the checkpoints of a run.", {json}, 1, list),
      made("show", "CKPT", "Prints what a checkpoint holds.", {json}, 1, show),
      made("verify", "CKPT|DIR", "Reads every byte and compares checksums.", {}, 1, verify),
      made("diff", "CKPT CKPT", "Compares all tensors bit by bit; exit code 1 if they differ.", {},
           2, diff),
      made("prune", "DIR --keep=N", "Removes all but the N newest checkpoints, never `latest`.",
           {{"keep", "N", "newest checkpoints that stay"},
            {"dry-run", "", "only say what would be removed"}},
           1, prune),
      made("export", "CKPT FOLDER", "Writes a Hugging Face folder (config.json, safetensors).",
           {dtype, {"shard-bytes", "SIZE", "largest size of one file [5GB]"}}, 2,
           export_checkpoint),
      made("import", "FOLDER DIR", "Makes a checkpoint of step 0 from a Hugging Face folder.",
           {dtype}, 2, import_checkpoint),
  };
}

std::string ckpt_help() {
  std::string text = "usage: spillway ckpt COMMAND ...\n\n";
  for (auto const& sub : subcommands())
    text += fmt::format("  {:<34} {}\n", sub.syntax.usage.substr(14), sub.syntax.summary);
  return text + "\nCKPT is a checkpoint (step-*), or a run, whose newest checkpoint is meant.\n";
}

}  // namespace

int run_ckpt(Arguments const& arguments) {
  std::vector<std::string> words = arguments.words;
  if (words.empty()) fail(Fault::usage, "ckpt needs a command.\n" + ckpt_help());
  std::string const name = words.front();
  if (name == "--help" || name == "-h") return fmt::print("{}", ckpt_help()), 0;
  words.erase(words.begin());
  std::vector<std::string> names;
  for (auto const& sub : subcommands()) {
    names.push_back(sub.name);
    if (sub.name != name) continue;
    CommandLine const line = parse_command_line(sub.syntax, words);
    if (answer_questions(line, sub.syntax)) return 0;
    if (line.positional.size() < sub.positional)
      fail(Fault::usage, fmt::format("an argument is missing (usage: {}).", sub.syntax.usage));
    return sub.run(line);
  }
  fail(Fault::usage, fmt::format("unknown command 'ckpt {}'. Did you mean 'ckpt {}'?", name,
                                 closest(name, names)));
}

}  // namespace spillway::app
