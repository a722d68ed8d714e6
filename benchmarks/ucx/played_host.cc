#include "benchmarks/ucx/played_host.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace cotune::bench {
namespace {

std::string PathOf(const std::string& folder, const std::string& host) {
  return folder + "/" + host + ".pid";
}

// Returns whether this process is now in the namespace of the other one.
bool Enter(pid_t pid, const std::string& kind) {
  const std::string path = "/proc/" + std::to_string(pid) + "/ns/" + kind;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = file >= 0 && setns(file, 0) == 0;
  if (!entered) std::fprintf(stderr, "%s: %s\n", path.c_str(), std::strerror(errno));
  if (file >= 0) close(file);
  return entered;
}

}  // namespace

std::string HostName(int rank) { return "r" + std::to_string(rank); }

std::string PlayHost(int rank, const std::string& folder) {
  const std::string name = HostName(rank);
  if (unshare(CLONE_NEWUTS) != 0 || sethostname(name.data(), name.size()) != 0) {
    return "a host name of its own: " + std::string(std::strerror(errno));
  }
  std::ofstream file(PathOf(folder, name));
  file << getpid() << std::endl;
  return file ? "" : "cannot write " + PathOf(folder, name);
}

int RunOnHost(const std::string& folder, const std::string& host, const std::string& command) {
  pid_t pid = 0;
  if (!(std::ifstream(PathOf(folder, host)) >> pid)) {
    std::fprintf(stderr, "no process plays the host %s\n", host.c_str());
    return 3;
  }
  if (!Enter(pid, "net") || !Enter(pid, "uts")) return 3;
  execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
  std::perror("/bin/sh");
  return 127;
}

}  // namespace cotune::bench
