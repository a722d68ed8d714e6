#include "cli/output/results_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

namespace cotune::cli {
namespace {

std::atomic<int> results_file{STDOUT_FILENO};
static_assert(std::atomic<int>::is_always_lock_free);

}  // namespace

int ResultsFile() { return results_file.load(); }

LibrariesPrintToError::LibrariesPrintToError() {
  std::fflush(stdout);
  constexpr int kBeyondStandardFiles = 3;
  const int results = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, kBeyondStandardFiles);
  if (results < 0) return;
  results_file.store(results);
  dup2(STDERR_FILENO, STDOUT_FILENO);
}

LibrariesPrintToError::~LibrariesPrintToError() {
  const int results = ResultsFile();
  if (results == STDOUT_FILENO) return;
  // A library may have left its lines in the buffer.
  std::fflush(stdout);
  dup2(results, STDOUT_FILENO);
  results_file.store(STDOUT_FILENO);
  close(results);
}

}  // namespace cotune::cli
