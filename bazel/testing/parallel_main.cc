// The main of tests that wait more than they compute: runs the test as several processes at once,
// each with its share of the cases (GoogleTest's own shards), and prints what they printed one
// after the other. For Bazel it is one test.
//
// COTUNE_TEST_PROCESSES says how many; a process that is one of them does not start others.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr char kProcesses[] = "COTUNE_TEST_PROCESSES";

struct Part {
  pid_t pid = -1;
  int output = -1;
  // GoogleTest makes it at the start and removes it at the end: a part that calls exit(0) early
  // leaves it.
  std::string unfinished_path;
};

std::vector<Part>* parts = nullptr;

void Print(const Part& part) {
  char bytes[4096];
  off_t at = 0;
  for (ssize_t count = 0; (count = pread(part.output, bytes, sizeof bytes, at)) > 0; at += count) {
    [[maybe_unused]] const ssize_t written =
        write(STDOUT_FILENO, bytes, static_cast<size_t>(count));
  }
}

// Bazel's time for the test is up: what the parts have said so far tells which of them hangs.
void PrintAllAndEnd(int signal) {
  for (const Part& part : *parts) {
    if (part.pid > 0) Print(part);
  }
  std::signal(signal, SIG_DFL);
  raise(signal);
}

[[noreturn]] void RunPart(int index, int total, const Part& part, pid_t parent, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before the line above
  dup2(part.output, STDOUT_FILENO);
  dup2(part.output, STDERR_FILENO);
  unsetenv(kProcesses);
  unsetenv("XML_OUTPUT_FILE");  // all would write the same one; Bazel makes it out of the log
  setenv("TEST_PREMATURE_EXIT_FILE", part.unfinished_path.c_str(), 1);
  setenv("GTEST_TOTAL_SHARDS", std::to_string(total).c_str(), 1);
  setenv("GTEST_SHARD_INDEX", std::to_string(index).c_str(), 1);
  execv("/proc/self/exe", argv);
  std::perror("the test cannot start itself");
  _exit(1);
}

Part Start(int index, int total, char** argv) {
  Part part;
  std::string path = testing::TempDir() + "/part.XXXXXX";
  part.output = mkostemp(path.data(), O_CLOEXEC | O_APPEND);
  if (part.output < 0) {
    std::perror("no file for the output of a part of the test");
    std::exit(1);
  }
  unlink(path.c_str());
  part.unfinished_path = path + ".unfinished";
  const pid_t parent = getpid();
  part.pid = fork();
  if (part.pid == 0) RunPart(index, total, part, parent, argv);
  return part;
}

// Waits for the end of a part, prints its output and returns whether it passed.
bool Finish(Part& part, int index) {
  int status = 0;
  const bool has_ended = part.pid > 0 && waitpid(part.pid, &status, 0) == part.pid;
  Print(part);
  part.pid = -1;
  const bool is_unfinished = unlink(part.unfinished_path.c_str()) == 0;
  const bool passed = has_ended && WIFEXITED(status) && WEXITSTATUS(status) == 0 && !is_unfinished;
  if (!passed) {
    dprintf(STDOUT_FILENO, "part %d of the test failed: status %d%s\n", index, status,
            is_unfinished ? ", it ended in the middle of a case" : "");
  }
  return passed;
}

}  // namespace

int main(int argc, char** argv) {
  const char* processes = std::getenv(kProcesses);
  const int total = processes == nullptr ? 1 : std::atoi(processes);
  if (total <= 1) {
    testing::InitGoogleMock(&argc, argv);
    return RUN_ALL_TESTS();
  }
  std::vector<Part> started;
  for (int i = 0; i < total; ++i) started.push_back(Start(i, total, argv));
  parts = &started;
  std::signal(SIGTERM, PrintAllAndEnd);
  bool all_passed = true;
  for (int i = 0; i < total; ++i) all_passed = Finish(started[i], i) && all_passed;
  return all_passed ? 0 : 1;
}
