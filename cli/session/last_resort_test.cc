#include "cli/session/last_resort.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/backend/call_watchdog.h"
#include "core/database/tuning_journal.h"
#include "gtest/gtest.h"

namespace cotune::cli {
namespace {

constexpr int kPipeBytes = 4096;

struct Pipe {
  Pipe() { EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0); }
  ~Pipe() {
    close(ends[0]);
    close(ends[1]);
  }
  int ends[2] = {-1, -1};
};

CallSubject SubjectForTest(const std::string& choice) {
  return {"fake", "fake.so", choice, "all_reduce", 64, "choice " + choice};
}

// Waits until the other end has sent a byte.
void Await(int fd) {
  char byte = 0;
  while (read(fd, &byte, 1) < 0) {
  }
}

void Crash(const std::string& choice) {
  const CallSubject subject = SubjectForTest(choice);
  CallSlot slot(nullptr, nullptr);
  const RunningCall call(slot, subject, "prepare", 0);
  std::raise(SIGSEGV);
}

// Whether the thread of the process waits for something, or is gone with its process.
bool WaitsOrIsGone(pid_t pid, pid_t thread) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/task/" + std::to_string(thread) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return true;
  const char state = text[name_end + 2];
  return state == 'S' || state == 'Z' || state == 'X';
}

// The child: two threads crash, the second one when it is told to.
[[noreturn]] void CrashTwice(const std::string& journal, int errors, int begin, int thread_id) {
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  Console console(stdout, stderr, "tune", {}, false);
  console.set_error_pipe(errors);
  CatchCrashes(console);
  NoteRank(1, 2);
  NoteJournal(journal);
  std::thread second([&] {
    const pid_t own = gettid();
    Await(begin);
    if (write(thread_id, &own, sizeof(own)) != sizeof(own)) _exit(1);
    Crash("fake/second");
  });
  Crash("fake/first");
  _exit(1);
}

// The pipe to the parent is full, so that the handler of the first crash has to wait.
TEST(LastResortTest, AThreadThatCrashesMeanwhileDoesNotEndTheProcessBeforeTheFirstIsNamed) {
  std::string folder = ::testing::TempDir() + "/last_resort_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/t.tdb";
  const std::string journal_path = path + ".journal";
  ASSERT_TRUE(TuningJournal::Open(path, JournalKind::kTune).value()->Begin({}));
  const auto empty_bytes = std::filesystem::file_size(journal_path);
  Pipe errors;
  Pipe begin;
  Pipe thread_id;
  ASSERT_EQ(fcntl(errors.ends[1], F_SETPIPE_SZ, kPipeBytes), kPipeBytes);
  const std::string full(kPipeBytes, 'x');
  ASSERT_EQ(write(errors.ends[1], full.data(), full.size()), kPipeBytes);
  const pid_t child = fork();
  if (child == 0) CrashTwice(journal_path, errors.ends[1], begin.ends[0], thread_id.ends[1]);
  // The blame is written in front of the message.
  while (std::filesystem::file_size(journal_path) == empty_bytes) sched_yield();
  ASSERT_EQ(write(begin.ends[1], "b", 1), 1);
  pid_t second = -1;
  ASSERT_EQ(read(thread_id.ends[0], &second, sizeof(second)), ssize_t{sizeof(second)});
  while (!WaitsOrIsGone(child, second)) sched_yield();
  close(std::exchange(errors.ends[1], -1));
  std::string said;
  char buffer[kPipeBytes];
  for (ssize_t size = 0; (size = read(errors.ends[0], buffer, sizeof(buffer))) > 0;) {
    said.append(buffer, static_cast<size_t>(size));
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) << status;
  EXPECT_NE(said.find("rank 1 crashed: SIGSEGV in prepare of choice fake/first"), std::string::npos)
      << said;
  EXPECT_EQ(said.find("fake/second"), std::string::npos) << said;
  const auto journal = TuningJournal::Open(path, JournalKind::kTune);
  ASSERT_TRUE(journal.has_value());
  EXPECT_EQ(
      (*journal)->blames(),
      (std::vector<JournalBlame>{{{"all_reduce", 64, "fake/first"}, 1, "SIGSEGV in prepare"}}));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace cotune::cli
