// Tries whether processes of a job may read each other's memory, and looks at who owns the files
// that they see.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/commands/doctor.h"
#include "core/base/file_trust.h"
#include "fmt/format.h"

namespace cotune::cli {
namespace {

// A child of this process; killed and collected at the end of its scope.
class Child {
 public:
  // `body` runs in the child and gives its exit code. It calls nothing but system calls, as this
  // process has threads.
  template <typename Body>
  explicit Child(Body body) : parent_(getpid()), pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(getppid() == parent_ ? body() : 1);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    Wait();
  }

  pid_t pid() const { return pid_; }
  // Its exit code, when it ends by itself; -1 otherwise.
  int Wait() {
    int status = 0;
    if (pid_ <= 0 || waitpid(pid_, &status, 0) != pid_) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  const pid_t parent_;
  pid_t pid_;
};

// Why one child of this process may not read another's memory, as an errno; 0: it may. As ranks do
// it that one launcher has started.
int TryToReadAnother() {
  static const char word[] = "cotune";
  Child read([] {
    while (true) pause();
    return 0;
  });
  if (read.pid() < 0) return errno;
  Child reader([&] {
    char seen[sizeof(word)] = {};
    const iovec local{seen, sizeof(seen)};
    // Both are copies of this process: the word lies at the same address.
    const iovec remote{const_cast<char*>(word), sizeof(word)};
    if (process_vm_readv(read.pid(), &local, 1, &remote, 1, 0) < 0) return errno;
    return std::memcmp(seen, word, sizeof(word)) == 0 ? 0 : EIO;
  });
  if (reader.pid() < 0) return errno;
  const int code = reader.Wait();
  return code < 0 ? ECHILD : code;
}

void CheckReads(Checkup& checkup) {
  constexpr const char* kSubject = "memory of other ranks";
  const int error = TryToReadAnother();
  if (error == 0) {
    checkup.Ok(kSubject, "may be read (process_vm_readv)");
    return;
  }
  const Result<std::string> scope = FirstLine("/proc/sys/kernel/yama/ptrace_scope");
  checkup.Note(kSubject,
               fmt::format("may not be read (process_vm_readv: {}; "
                           "kernel.yama.ptrace_scope is {}): host/peer_read is left out",
                           std::strerror(error), scope ? *scope : "not there"),
               scope && *scope != "0"
                   ? "sysctl -w kernel.yama.ptrace_scope=0, or go without"
                   : "allow process_vm_readv in the container (docker: --cap-add=SYS_PTRACE, or "
                     "another seccomp profile), or go without");
}

// Plugins and databases are trusted by the owners of all folders above them. The root folder is
// above all.
void CheckOwners(Checkup& checkup) {
  constexpr const char* kSubject = "root folder";
  const std::string mistake = FolderPathTrustMistake("/");
  if (mistake.empty()) {
    checkup.Ok(kSubject, "belongs to this user or to root");
    return;
  }
  checkup.Note(
      kSubject,
      fmt::format("{}: plugins and tuned databases in it are refused, wherever they lie", mistake),
      "in a user namespace map root as well (unshare --map-auto, podman --userns=keep-id), "
      "or mount a folder of this user as the root");
}

}  // namespace

void CheckProcesses(Checkup& checkup) {
  CheckReads(checkup);
  CheckOwners(checkup);
}

}  // namespace cotune::cli
