// The main of test programs that run under mpirun: rank 0 prints, a failure on any rank fails all.
#include <gtest/gtest.h>

#include <iostream>
#include <memory>

#include "lib/comm/communicator.hpp"
#include "lib/comm/mpi/mpi_runtime.hpp"

namespace {

/// Prints failures with the rank. A failed case ends the job: its ranks are no longer in step, and
/// the others might wait for this one in a collective.
class RankReporter : public testing::EmptyTestEventListener {
 public:
  explicit RankReporter(spillway::comm::Communicator& communicator) : communicator_(communicator) {}

  void OnTestPartResult(testing::TestPartResult const& result) override {
    if (!result.failed()) return;
    std::cerr << "[r" << communicator_.rank().get() << "] "
              << (result.file_name() != nullptr ? result.file_name() : "") << ":"
              << result.line_number() << ": " << result.message() << std::endl;
  }
  void OnTestEnd(testing::TestInfo const& test) override {
    if (!test.result()->Failed()) return;
    std::cerr << "[r" << communicator_.rank().get() << "] failed: " << test.test_suite_name() << "."
              << test.name() << std::endl;
    communicator_.abort(1);
  }

 private:
  spillway::comm::Communicator& communicator_;
};

}  // namespace

int main(int argc, char** argv) {
  spillway::comm::MpiRuntime const runtime;
  auto const communicator = spillway::comm::make_mpi_communicator();
  testing::InitGoogleTest(&argc, argv);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (communicator->rank().get() != 0) delete listeners.Release(listeners.default_result_printer());
  listeners.Append(new RankReporter(*communicator));  // owned by the list
  int const result = RUN_ALL_TESTS();
  communicator->barrier();
  return result;
}
