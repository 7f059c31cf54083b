#include "app/start_checks.hpp"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <system_error>

#include "io/checkpoint/checkpoint.hpp"
#include "io/file.hpp"
#include "lib/core/bytes.hpp"
#include "lib/core/error.hpp"

namespace spillway::app {

void prepare_checkpoints(std::filesystem::path const& directory, Log log) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    fail(Fault::io, fmt::format("cannot make the checkpoint directory '{}' ({}). Choose another "
                                "run.dir or checkpoint.dir?",
                                directory.string(), error.message()));
  for (auto const& name : io::clean_leftovers(directory))
    log.root("removed {}: a save that did not finish", name);
}

void check_room(std::filesystem::path const& directory, std::uint64_t bytes, bool resumed,
                Log log) {
  std::uint64_t const free = io::free_bytes(directory);
  if (free < bytes && !resumed)
    fail(Fault::no_room,
         fmt::format("no checkpoint fits into '{}' (one takes {} bytes, {} are free: {} are "
                     "missing). Make room, or choose another checkpoint.dir?",
                     directory.string(), bytes, free, bytes - free));
  if (free < 2 * bytes)
    log.root(Level::warning,
             "'{}' has room for {} more checkpoint(s) of {} ({} are free; a new one is complete "
             "before an old one goes)",
             directory.string(), free / bytes, format_bytes(bytes), format_bytes(free));
}

void compare_data_order(std::string const& saved_text, std::string const& now_text, Log log) {
  auto const saved = nlohmann::json::parse(saved_text, nullptr, false);
  auto const now = nlohmann::json::parse(now_text, nullptr, false);
  if (!saved.is_object() || !now.is_object()) return;
  for (char const* key : {"data_seed", "data_shuffle", "data_seq_len", "data_sequences"})
    if (saved.contains(key) && saved[key] != now[key])
      log.root(Level::warning,
               "{} is {} now and was {} in the checkpoint: the data order is another one from here",
               key, now[key].dump(), saved[key].dump());
}

}  // namespace spillway::app
