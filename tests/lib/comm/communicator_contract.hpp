// What every communicator must do, whatever carries it; each case runs on all ranks.
#pragma once

#include <ostream>
#include <vector>

#include "lib/comm/communicator.hpp"

namespace spillway::test {

struct ContractCase {
  char const* name;
  void (*run)(comm::Communicator&);
};

inline void PrintTo(ContractCase const& contract_case, std::ostream* out) {
  *out << contract_case.name;
}

std::vector<ContractCase> contract_cases();

}  // namespace spillway::test
