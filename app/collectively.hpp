// Runs a local action on every rank and agrees on how it went: one message for one fault, on all
// ranks alike.
#pragma once

#include <optional>
#include <string>

#include "lib/comm/communicator.hpp"
#include "lib/core/error.hpp"

namespace spillway::app {

/// How an action ended over all ranks: empty if well everywhere, else the fault of the lowest rank
/// that failed, with its text.
struct Outcome {
  std::optional<Fault> fault;
  std::string text;  // on every rank
};

namespace detail {
Outcome agree(comm::Communicator& comm, std::optional<Fault> fault, std::string const& text);
}

/// The action must not call collectives. Every rank returns the same outcome.
template <class Action>
Outcome try_collectively(comm::Communicator& comm, Action&& action) {
  std::optional<Fault> fault;
  std::string text;
  try {
    action();
  } catch (Error const& error) {
    fault = error.fault();
    text = error.what();
  } catch (std::exception const& error) {
    fault = Fault::internal;
    text = error.what();
  }
  return detail::agree(comm, fault, text);
}

/// A fault that every rank knows of; rank 0 alone prints it.
class CollectiveError : public Error {
 public:
  using Error::Error;
};

/// Throws CollectiveError on every rank if the action failed on any.
template <class Action>
void collectively(comm::Communicator& comm, Action&& action) {
  Outcome const outcome = try_collectively(comm, std::forward<Action>(action));
  if (outcome.fault) throw CollectiveError(*outcome.fault, outcome.text);
}

}  // namespace spillway::app
