#include "sync/socket/process_state.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "core/base/usable_processors.h"

namespace cotune::sync {
namespace {

std::string ReadProc(int pid, const char* name) {
  std::ifstream file(fmt::format("/proc/{}/{}", pid, name));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Process numbers of another PID namespace mean other processes here.
bool IsProcOwn() {
  std::string own(32, '\0');
  const ssize_t length = readlink("/proc/self", own.data(), own.size());
  return length > 0 && own.substr(0, static_cast<size_t>(length)) == fmt::format("{}", getpid());
}

// The number of processors that the ranks may use. Launchers bind each rank to its own, so that
// sets that differ mean the whole machine.
size_t ProcessorsOfRanks(int pid) {
  constexpr std::string_view kField = "Cpus_allowed_list:\t";
  const std::string status = ReadProc(pid, "status");
  const size_t found = status.find(kField);
  if (found == std::string::npos) return 0;
  const size_t begin = found + kField.size();
  const std::string theirs = status.substr(begin, status.find('\n', begin) - begin);
  const std::string ours = UsableProcessors();
  if (theirs == ours) return ProcessorsIn(ours).size();
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? static_cast<size_t>(online) : 0;
}

}  // namespace

PeerState PeerStateOf(const ProcessFacts& facts) {
  if (facts.state == 0) return {};
  if (facts.state == 'T' || facts.state == 't') {
    return {fmt::format("its process {} is stopped (state {})", facts.pid, facts.state),
            "see what has stopped it (SIGSTOP, a debugger), then run again"};
  }
  if (facts.state == 'Z' || facts.state == 'X') {
    return {fmt::format("its process {} has ended", facts.pid),
            "look at its output and exit code, then run again"};
  }
  const std::string alive =
      fmt::format("its process {} is alive (state {})", facts.pid, facts.state);
  if (facts.processors > 0 && static_cast<size_t>(facts.ranks) > facts.processors) {
    return {fmt::format(
                "{}, and the machine may be overloaded: {} ranks on {} usable processor{}, {:.1f} "
                "to each",
                alive, facts.ranks, facts.processors, facts.processors == 1 ? "" : "s",
                static_cast<double>(facts.ranks) / static_cast<double>(facts.processors)),
            "start fewer ranks on this machine, or see what that process does"};
  }
  return {alive + ", and it or the machine is busy", "see what else runs on this machine"};
}

ProcessFacts LookAtPeer(int socket_fd, int ranks) {
  ProcessFacts facts;
  facts.ranks = ranks;
  ucred peer = {};
  socklen_t size = sizeof(peer);
  const bool has_number =
      getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.pid > 0;
  if (!has_number || !IsProcOwn()) return facts;
  facts.pid = peer.pid;
  if (access(fmt::format("/proc/{}", peer.pid).c_str(), F_OK) != 0) {
    if (errno == ENOENT) facts.state = 'X';
    return facts;
  }
  const std::string stat = ReadProc(peer.pid, "stat");
  // The name of the program, in parentheses, may contain any of the signs that follow it.
  const size_t name_end = stat.rfind(") ");
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return facts;
  facts.state = stat[name_end + 2];
  facts.processors = ProcessorsOfRanks(peer.pid);
  return facts;
}

}  // namespace cotune::sync
