#include "app/saver.hpp"

#include <algorithm>
#include <system_error>
#include <vector>

#include "app/collectively.hpp"
#include "lib/core/error.hpp"

namespace spillway::app {

Saver::Saver(SaverOptions options, io::CheckpointSchema schema, comm::Communicator& comm,
             io::Engine& engine, offload::TieredStore& store, Log log)
    : options_(std::move(options)),
      schema_(std::move(schema)),
      comm_(comm),
      engine_(engine),
      store_(store),
      log_(log) {
  if (!options_.owns_directory) return;
  for (auto const& path : io::list_checkpoints(options_.directory)) own_.insert(path);
}

Saver::~Saver() = default;

bool Saver::begin(io::TrainingState state) {
  state_ = std::move(state);
  std::filesystem::path const directory =
      options_.directory / (io::checkpoint_name(state_.step) + ".tmp");
  auto outcome = try_collectively(comm_, [&] {
    if (comm_.rank() == Rank{0}) io::prepare_checkpoint(options_.directory, state_.step);
  });
  if (!outcome.fault)
    outcome = try_collectively(comm_, [&] {
      writer_ = std::make_unique<io::ShardWriter>(directory, schema_, comm_.rank(), comm_.size(),
                                                  engine_);
    });
  if (!outcome.fault) {
    store_.begin_save(*writer_);
    return true;
  }
  writer_.reset();
  comm_.barrier();
  std::error_code ignored;
  if (comm_.rank() == Rank{0}) std::filesystem::remove_all(directory, ignored);
  if (*outcome.fault != Fault::no_room) throw CollectiveError(*outcome.fault, outcome.text);
  log_.root(Level::warning,
            "step {} is not saved: {} Training goes on; the older checkpoints stay.", state_.step,
            outcome.text);
  return false;
}

void Saver::finish() {
  store_.finish_save();
  std::vector<std::byte> part;
  collectively(comm_, [&] { part = writer_->finish(); });
  writer_.reset();
  auto const parts = comm_.gather(part, Rank{0});
  collectively(comm_, [&] {
    if (comm_.rank() != Rank{0}) return;
    auto const path = io::commit_checkpoint(options_.directory, schema_, state_, parts);
    own_.insert(path);
    log_.root("saved {}", path.string());
    retain();
  });
}

void Saver::retain() {
  if (options_.keep <= 0) return;
  auto kept = io::list_checkpoints(options_.directory);
  std::erase_if(kept, [&](auto const& path) { return own_.count(path) == 0; });
  for (std::size_t at = 0; at + static_cast<std::size_t>(options_.keep) < kept.size(); ++at) {
    if (kept[at] == options_.resumed_from) continue;
    // Renamed first: a half-removed checkpoint never stands under a valid name.
    auto const aside = kept[at].string() + ".tmp";
    std::filesystem::rename(kept[at], aside);
    std::filesystem::remove_all(aside);
    own_.erase(kept[at]);
  }
}

}  // namespace spillway::app
