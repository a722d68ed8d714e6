// A connection that breaks while both processes live: a message that UCX gives up is a failure that
// names the sender, and a message that came before is none.
#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "plugins/testing/rank_processes.h"
#include "plugins/ucx/testing/inner_rank.h"

namespace cotune::ucx {
namespace {

using namespace backend_test;  // NOLINT(google-build-using-namespace)

constexpr int kRanks = 3;
constexpr int kReceiver = 0;
constexpr int kRoot = 1;   // its connections break
constexpr int kOther = 2;  // the receiver waits for it meanwhile
constexpr int kPolls = 1000;
constexpr uint64_t kSmall = 1024;
constexpr uint64_t kLarge = 20 * 1024;  // above the threshold of a rendezvous
constexpr uint8_t kSent = 5;
constexpr uint8_t kUntouched = 77;

enum Event { kSentAll, kTaken, kBroken, kSeen, kDone };

// Ends both directions of every TCP connection of this process, which stays alive.
void BreakConnections() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  while (const dirent* const entry = readdir(folder.get())) {
    const int file = std::atoi(entry->d_name);
    sockaddr_storage peer{};
    socklen_t bytes = sizeof(peer);
    if (getpeername(file, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) continue;
    if (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) shutdown(file, SHUT_RDWR);
  }
}

bool IsFull(const std::vector<uint8_t>& data, uint8_t value) {
  return std::count(data.begin(), data.end(), value) == static_cast<int64_t>(data.size());
}

// The receiver is still in the first call, which takes the way over kOther, when the root's message
// of the second call comes to it, and then the end of the root's connections.
class BrokenConnectionsTest : public testing::Test {
 protected:
  BrokenConnectionsTest() {
    job_.Set("tls", "tcp");
    job_.Set("net_devices", "lo");
    job_.Set("rndv_thresh", "8192");
  }

  // `receive` is the receiver's second call, with `bytes` bytes.
  template <class Receive>
  std::string Run(uint64_t bytes, Receive receive) {
    RankProcesses ranks(kRanks, [&](int number) -> std::string {
      std::vector<uint8_t> first(kSmall, number == kRoot ? 1 : 0);
      std::vector<uint8_t> second(bytes, number == kRoot ? kSent : kUntouched);
      InnerRank rank(job_.host(), number, kRanks);
      if (!rank.wrong().empty()) return rank.wrong();
      // Before the first rendezvous UCX asks the receiver for its number of the endpoint.
      std::vector<uint8_t> large(kLarge);
      rank.Begin("knomial?radix=2", kRoot, large);
      if (std::string wrong = rank.FinishText(); !wrong.empty()) return wrong;
      if (number == kOther) job_.Await(kSeen);
      rank.Begin("chain", kRoot, first);
      if (number == kReceiver && !SeesTheBreak(rank)) return "the first call is over already";
      if (std::string wrong = rank.FinishText(); !wrong.empty()) return "first call: " + wrong;
      if (number != kOther) rank.Begin("knomial?radix=2", kRoot, second);
      std::string wrong;
      if (number == kRoot) SendAndBreak(rank);
      if (number == kReceiver) {
        wrong = receive(rank, second);
        job_.Post(kDone);
      }
      // Their own views of the failure would compete with the receiver's.
      job_.Await(kDone);
      return wrong;
    });
    return ranks.WaitAll();
  }

 private:
  bool SeesTheBreak(InnerRank& rank) {
    // The message is in the socket, and so it comes with the next polls.
    job_.Await(kSentAll);
    for (int i = 0; i < kPolls; ++i) rank.Poll();
    job_.Post(kTaken);
    job_.Await(kBroken);
    while (rank.group().worker().PeerStatus(kRoot) == UCS_OK) {
      if (rank.Poll() != Advance::kInProgress) return false;
    }
    job_.Post(kSeen);
    return true;
  }

  // A small message is complete at once.
  void SendAndBreak(InnerRank& rank) {
    Advance advance = Advance::kInProgress;
    for (int i = 0; i < kPolls && advance == Advance::kInProgress; ++i) advance = rank.Poll();
    job_.Post(kSentAll);
    job_.Await(kTaken);
    BreakConnections();
    job_.Post(kBroken);
  }

  JobForTest job_;
};

TEST_F(BrokenConnectionsTest, AnAnnouncedMessageThatUcxCancelsFailsTheCallAndNamesTheSender) {
  EXPECT_EQ(Run(kLarge,
                [](InnerRank& rank, const std::vector<uint8_t>& data) -> std::string {
                  if (rank.Finish() == Advance::kComplete) {
                    return IsFull(data, kUntouched) ? "success without data" : "success";
                  }
                  const Failure failure = *rank.group().Health();
                  const bool is_lost = failure.message.find("is lost") != std::string::npos;
                  return failure.status == COTUNE_PEER_FAILED && failure.failed_rank == kRoot &&
                                 is_lost
                             ? ""
                             : failure.message;
                }),
            "");
}

TEST_F(BrokenConnectionsTest, AMessageThatCameBeforeTheConnectionBrokeIsRight) {
  EXPECT_EQ(Run(kSmall,
                [](InnerRank& rank, const std::vector<uint8_t>& data) -> std::string {
                  std::string wrong = rank.FinishText();
                  return wrong.empty() && !IsFull(data, kSent) ? "wrong data" : wrong;
                }),
            "");
}

}  // namespace
}  // namespace cotune::ucx
