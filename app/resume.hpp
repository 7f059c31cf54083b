// Which checkpoint a run goes on from, and what to do when it does not verify.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "app/options.hpp"
#include "io/checkpoint/checkpoint.hpp"
#include "lib/comm/communicator.hpp"
#include "lib/core/error.hpp"
#include "lib/core/log.hpp"
#include "lib/train/engine.hpp"

namespace spillway::app {

struct ResumePoint {
  std::unique_ptr<io::CheckpointReader> reader;  // of this rank; empty: from the beginning
  std::vector<std::filesystem::path> older;      // that may be tried next, newest last

  train::Progress progress() const;
  /// Waves that the checkpoint's run took for so many micro-batches; 0: free to choose.
  int waves_for(int micro_batches) const;
};

/// checkpoint.resume: never; a path, which must be good; auto: the newest in checkpoint.dir whose
/// index verifies. What is skipped is named with the reason. Throws CollectiveError on all ranks
/// alike: Fault::bad_input where there are checkpoints but none is good.
ResumePoint find_resume_point(Options const& options, comm::Communicator& comm, Log log);

/// After `text` spoiled the reading of point.reader: the next older checkpoint with resume = auto,
/// else throws.
void fall_back(Options const& options, comm::Communicator& comm, Log log, std::string const& text,
               Fault fault, ResumePoint& point);

}  // namespace spillway::app
