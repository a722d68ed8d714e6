#include "plugins/ucx/testing/network_world.h"

#include <sched.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <vector>

namespace cotune::ucx {
namespace {

using backend_test::JobForTest;
using backend_test::RankProcesses;

enum Event { kApart, kLinked };

// Runs a command of iproute2. Empty, or its words.
std::string Run(const std::string& command) {
  FILE* const pipe = popen(("PATH=$PATH:/usr/sbin:/sbin; " + command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return "popen: " + std::string(std::strerror(errno));
  std::string words;
  std::array<char, 256> buffer;
  while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) words += buffer.data();
  const int status = pclose(pipe);
  return status == 0 ? "" : command + ": " + words;
}

std::string RunAll(const std::vector<std::string>& commands) {
  for (const std::string& command : commands) {
    if (std::string wrong = Run(command); !wrong.empty()) return wrong;
  }
  return "";
}

// Gives this process a network of its own; as a user that is not root by way of a user namespace.
std::string LeaveNetwork() {
  if (unshare(CLONE_NEWNET) == 0) return "";
  const uid_t user = getuid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) {
    return "unshare of the network: " + std::string(std::strerror(errno));
  }
  std::ofstream("/proc/self/uid_map") << "0 " << user << " 1";
  return "";
}

// What `body` says in a process with a network of its own.
std::string InNetworkOfItsOwn(const std::function<std::string()>& body) {
  RankProcesses world(1, [&](int /*rank*/) -> std::string {
    if (std::string wrong = LeaveNetwork(); !wrong.empty()) return wrong;
    return body();
  });
  return world.Wait(0);
}

std::string DeviceOf(int rank) { return "rank" + std::to_string(rank); }

std::string SetUpRank(int rank) {
  const std::string device = kRankDevice;
  return RunAll({"ip link set lo up",
                 "ip address add 10.77.0." + std::to_string(rank + 1) + "/24 dev " + device,
                 "ip link set " + device + " up",
                 // The system takes its time until a device can send, and UCX leaves others out.
                 "for i in $(seq 250); do ip link show " + device +
                     " | grep -q LOWER_UP && exit 0; sleep 0.02; done; echo it does not come up; "
                     "exit 1"});
}

// Into the namespace of the rank.
std::string BridgeTo(int rank, pid_t pid) {
  const std::string device = DeviceOf(rank);
  return RunAll({"ip link add " + device + " type veth peer name " + kRankDevice + " netns " +
                     std::to_string(pid),
                 "ip link set " + device + " master bridge", "ip link set " + device + " up"});
}

std::string SwitchTo(int rank, pid_t pid, SlowSwitch& slow) {
  const std::string device = DeviceOf(rank);
  if (std::string wrong = slow.AddPort(device); !wrong.empty()) return wrong;
  return Run("ip link set " + device + " netns " + std::to_string(pid) + " name " + kRankDevice +
             " address " + SlowSwitch::AddressOf(rank) + " mtu 9000");
}

}  // namespace

std::string WhyNoNetworkWorld() {
  return InNetworkOfItsOwn([] {
    return RunAll({"ip link add bridge type bridge", "ip link add one type veth peer name other"});
  });
}

std::string WhyNoSlowSwitch() {
  return InNetworkOfItsOwn([] { return SlowSwitch({}).AddPort("one"); });
}

std::string RunInNetworkWorld(int ranks, LinkQuality quality, const backend_test::RankBody& body,
                              const std::function<void()>& during) {
  JobForTest events;
  return InNetworkOfItsOwn([&]() -> std::string {
    std::string wrong = RunAll({"ip link add bridge type bridge", "ip link set bridge up"});
    if (!wrong.empty()) return wrong;
    RankProcesses processes(ranks, [&](int rank) -> std::string {
      if (unshare(CLONE_NEWNET) != 0) return "unshare: " + std::string(std::strerror(errno));
      events.Post(kApart);
      events.Await(kLinked);
      std::string failed = SetUpRank(rank);
      return failed.empty() ? body(rank) : failed;
    });
    events.Await(kApart, static_cast<uint32_t>(ranks));
    SlowSwitch slow(quality);
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t pid = processes.pid(rank);
      wrong = quality.is_perfect() ? BridgeTo(rank, pid) : SwitchTo(rank, pid, slow);
      if (!wrong.empty()) return wrong;
    }
    slow.Start();
    events.Post(kLinked);
    during();
    return processes.WaitAll();
  });
}

void TakeLinkDown(int rank) {
  const std::string wrong = Run("ip link set " + DeviceOf(rank) + " down");
  if (wrong.empty()) return;
  std::fprintf(stderr, "test set-up failed: %s\n", wrong.c_str());
  std::abort();
}

}  // namespace cotune::ucx
