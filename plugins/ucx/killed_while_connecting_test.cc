// Rank 1 is killed when rank 0 has connected to it and has sent nothing yet: rank 0 gets an error
// that names it. UCX 1.13 and 1.22 abort rank 0 if they use blocking connects.
#include <dlfcn.h>
#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <string>
#include <utility>

#include "plugins/testing/rank_processes.h"

namespace cotune::ucx {
namespace {

using namespace backend_test;  // NOLINT(google-build-using-namespace)

constexpr int kConnecting = 0;
constexpr int kKilled = 1;
constexpr int kRanks = 2;

enum Event { kIsStopped, kHasConnected, kIsDead };

// Set where the first connection over TCP of this process is the one that the test is about.
JobForTest* connecting = nullptr;

int ConnectWhileThePeerDies(int file, const sockaddr* address, socklen_t bytes) {
  static const auto system_connect =
      reinterpret_cast<int (*)(int, const sockaddr*, socklen_t)>(dlsym(RTLD_NEXT, "connect"));
  if (connecting == nullptr || address->sa_family != AF_INET) {
    return system_connect(file, address, bytes);
  }
  JobForTest& job = *std::exchange(connecting, nullptr);
  // The kernel accepts the connection for a stopped process, and resets it when the process dies.
  job.Await(kIsStopped);
  const int result = system_connect(file, address, bytes);
  const int error = errno;
  job.Post(kHasConnected);
  job.Await(kIsDead);
  errno = error;
  return result;
}

// The store of the rank that is killed, which stops with its address published and connects to
// nobody.
cotune_status_t PutAndStop(void* context, const char* key, const void* data, uint64_t bytes) {
  static_cast<JobForTest*>(context)->host().store_put(context, key, data, bytes);
  raise(SIGSTOP);
  return COTUNE_INTERNAL;
}

std::string Join(JobForTest& job, int rank) {
  cotune_host_t host = job.host();
  if (rank == kKilled) host.store_put = PutAndStop;
  if (rank == kConnecting) connecting = &job;
  const GroupForTest group(host, "g", rank, AllRanks(kRanks), MonotonicNs() + 60 * kSecondNs);
  const std::string message = group.error().message;
  if (connecting != nullptr) return "no connection was begun: " + message;
  const bool is_named = group.status() == COTUNE_PEER_FAILED &&
                        group.error().failed_rank == kKilled &&
                        message.find("job rank 1 (rank 1 of the group) died") == 0;
  return is_named ? "" : std::to_string(group.status()) + ": " + message;
}

TEST(KilledWhileConnectingTest, IsNamed) {
  JobForTest job;
  RankProcesses ranks(kRanks, [&](int rank) { return Join(job, rank); });
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(ranks.pid(kKilled)), &info, WSTOPPED | WEXITED | WNOWAIT);
  ASSERT_EQ(info.si_code, CLD_STOPPED) << ranks.Wait(kKilled);
  job.Post(kIsStopped);
  job.Await(kHasConnected);
  ranks.Kill(kKilled, SIGKILL);
  EXPECT_EQ(ranks.Wait(kKilled), "signal 9");
  job.Post(kIsDead);
  EXPECT_EQ(ranks.Wait(kConnecting), "");
}

}  // namespace
}  // namespace cotune::ucx

// UCX, which is loaded later, calls this one instead of the system's.
extern "C" __attribute__((visibility("default"))) int connect(int file, const sockaddr* address,
                                                              socklen_t bytes) {
  return cotune::ucx::ConnectWhileThePeerDies(file, address, bytes);
}
