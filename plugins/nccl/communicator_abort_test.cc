// The end of a process in which NCCL still frees a communicator.
#include "plugins/nccl/communicator_abort.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>

namespace cotune::nccl {
namespace {

int exit_has_begun = -1;

// Frees nothing before the process exits.
NcclResult AbortDuringExit(NcclComm /*comm*/) {
  eventfd_t value = 0;
  eventfd_read(exit_has_begun, &value);
  std::fputs("freed, ", stderr);
  return kNcclSuccess;
}

void ExitWhileAnAbortRuns() {
  exit_has_begun = eventfd(0, 0);
  std::atexit([] { std::fputs("libraries end", stderr); });
  int communicator = 0;
  const CommunicatorAbort abort(AbortDuringExit, reinterpret_cast<NcclComm>(&communicator),
                                std::nullopt, nullptr);
  std::atexit([] { eventfd_write(exit_has_begun, 1); });
  std::exit(0);
}

TEST(CommunicatorAbortDeathTest, ExitWaitsUntilTheCommunicatorIsFreed) {
  EXPECT_EXIT(ExitWhileAnAbortRuns(), ::testing::ExitedWithCode(0), "freed, libraries end");
}

void ExitOfAForkedChild() {
  exit_has_begun = eventfd(0, 0);
  int communicator = 0;
  const CommunicatorAbort abort(AbortDuringExit, reinterpret_cast<NcclComm>(&communicator),
                                std::nullopt, nullptr);
  // The child has no thread that could end the abort; the alarm ends one that waits for it.
  const pid_t child = fork();
  if (child == 0) {
    alarm(4);
    std::exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  eventfd_write(exit_has_begun, 1);
  std::exit(WIFEXITED(status) ? 0 : 1);
}

TEST(CommunicatorAbortDeathTest, AForkedChildWaitsForNoThreadOfItsParent) {
  EXPECT_EXIT(ExitOfAForkedChild(), ::testing::ExitedWithCode(0), "freed");
}

}  // namespace
}  // namespace cotune::nccl
