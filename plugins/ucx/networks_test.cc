// Groups over several networks: no memory in common, delays, losses, and a link that goes down.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <string>
#include <vector>

#include "plugins/testing/rank_processes.h"
#include "plugins/testing/tested_backend.h"
#include "plugins/ucx/testing/network_world.h"

namespace cotune::ucx {
namespace {

using namespace backend_test;  // NOLINT(google-build-using-namespace)

constexpr int kRanks = 3;
constexpr int64_t kLongNs = 120 * kSecondNs;
constexpr int64_t kShortNs = 2 * kSecondNs;
constexpr cotune_dtype_t kF32 = {COTUNE_DTYPE_FLOAT, 32, 1};

enum Event { kRunning };

cotune_problem_t SumOf(uint64_t count) {
  return AbiProblem(COTUNE_ALL_REDUCE, kF32, COTUNE_SUM, count, kRanks);
}

// How the group says that it reaches a peer.
std::string ConnectionText(const GroupForTest& group, int peer) {
  const auto* extension = static_cast<const cotune_connections_v1_t*>(
      Tested().api->get_extension(group.backend(), COTUNE_CONNECTIONS_EXTENSION));
  std::array<char, 64> text{};
  cotune_error_t error = EmptyError();
  const cotune_status_t status =
      extension->connection_text(group.group(), peer, text.data(), text.size(), &error);
  return status == COTUNE_OK ? text.data() : error.message;
}

// Runs every choice of an all_reduce of `count` elements.
std::string RunChoices(const GroupForTest& group, int rank, uint64_t count) {
  const cotune_problem_t problem = SumOf(count);
  for (const cotune_choice_t& choice : RunnableChoices(group.backend(), problem)) {
    const std::vector<float> send(count, static_cast<float>(rank + 1));
    std::vector<float> receive(count);
    cotune_error_t error = EmptyError();
    const cotune_status_t status = RunOnce(group.group(), problem, choice.name, send.data(),
                                           receive.data(), MonotonicNs() + kLongNs, &error);
    if (status != COTUNE_OK) return std::string(choice.name) + ": " + error.message;
    if (receive != std::vector<float>(count, 6)) return std::string(choice.name) + ": wrong sum";
  }
  return "";
}

// Calls in a row, each of which waits for what the others send in it and have sent after the call
// before: their data takes the way that often.
std::string RunCallsThatTakeAtLeast(const GroupForTest& group, int64_t delay_ns) {
  constexpr int kCalls = 10;
  constexpr uint64_t kCount = 100;
  const int64_t begin_ns = MonotonicNs();
  for (int call = 0; call < kCalls; ++call) {
    const std::vector<float> send(kCount, 1);
    std::vector<float> receive(kCount);
    cotune_error_t error = EmptyError();
    const cotune_status_t status =
        RunOnce(group.group(), SumOf(kCount), "knomial?radix=2", send.data(), receive.data(),
                MonotonicNs() + kLongNs, &error);
    if (status != COTUNE_OK) return error.message;
  }
  const int64_t took_ns = MonotonicNs() - begin_ns;
  return took_ns >= (kCalls - 1) * delay_ns ? "" : "took only " + std::to_string(took_ns) + " ns";
}

void PrepareNetworks() {
  if (const std::string why = WhyNoNetworkWorld(); !why.empty()) {
    GTEST_SKIP() << "no networks can be made here: " << why;
  }
  // Only what can leave the namespace.
  setenv("UCX_TLS", "tcp,self", 1);
  setenv("UCX_NET_DEVICES", kRankDevice, 1);
}

class NetworksTest : public testing::TestWithParam<LinkQuality> {
 protected:
  void SetUp() override { PrepareNetworks(); }
};

TEST_P(NetworksTest, EveryChoiceGivesTheSum) {
  const LinkQuality quality = GetParam();
  const std::string why = quality.is_perfect() ? "" : WhyNoSlowSwitch();
  if (!why.empty()) GTEST_SKIP() << "no delays and losses can be had here: " << why;
  JobForTest job;
  EXPECT_EQ(RunInNetworkWorld(kRanks, quality,
                              [&](int rank) -> std::string {
                                GroupForTest group(job.host(), "g", rank, AllRanks(kRanks),
                                                   MonotonicNs() + kLongNs);
                                if (group.status() != COTUNE_OK) return group.error().message;
                                const std::string connection =
                                    ConnectionText(group, (rank + 1) % kRanks);
                                if (connection != "tcp/eth0") return "not by TCP: " + connection;
                                for (const uint64_t count : {100, 50'000, 400'000}) {
                                  std::string wrong = RunChoices(group, rank, count);
                                  if (!wrong.empty()) return wrong;
                                }
                                return RunCallsThatTakeAtLeast(group, quality.delay_ns);
                              }),
            "");
}

std::string NetworkName(const testing::TestParamInfo<LinkQuality>& info) {
  const char* names[] = {"Plain", "Delay100us", "Delay1ms", "Loss1Percent"};
  return names[info.index];
}

INSTANTIATE_TEST_SUITE_P(Networks, NetworksTest,
                         testing::Values(LinkQuality{}, LinkQuality{.delay_ns = 100'000},
                                         LinkQuality{.delay_ns = 1'000'000},
                                         LinkQuality{.loss = 0.01}),
                         NetworkName);

class FaultyNetworksTest : public testing::Test {
 protected:
  void SetUp() override { PrepareNetworks(); }
};

// The rank behind the link is cut off from the others, and they name it. It learns of that by the
// store of the job, or names one of them: it cannot know who is at fault.
TEST_F(FaultyNetworksTest, ALinkThatGoesDownInACallIsNamedAtTheDeadline) {
  constexpr int kCutOff = 1;
  JobForTest job;
  const auto rank_body = [&](int rank) -> std::string {
    GroupForTest group(job.host(), "g", rank, AllRanks(kRanks), MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    constexpr uint64_t kCount = 50'000;
    const std::vector<float> send(kCount, 1);
    std::vector<float> receive(kCount);
    cotune_error_t error = EmptyError();
    cotune_status_t status = COTUNE_OK;
    int64_t begin_ns = 0;
    for (int call = 0; status == COTUNE_OK; ++call) {
      if (call == 20 && rank == kCutOff) job.Post(kRunning);
      begin_ns = MonotonicNs();
      status = RunOnce(group.group(), SumOf(kCount), "ring", send.data(), receive.data(),
                       begin_ns + kShortNs, &error);
      if (status == COTUNE_OK && receive != std::vector<float>(kCount, kRanks)) return "wrong sum";
    }
    const bool in_time = MonotonicNs() - begin_ns < 2 * kShortNs;
    const bool is_named = rank == kCutOff ? error.failed_rank >= 0 : error.failed_rank == kCutOff;
    return status == COTUNE_PEER_FAILED && in_time && is_named
               ? ""
               : "status " + std::to_string(status) + ": " + error.message;
  };
  EXPECT_EQ(RunInNetworkWorld(kRanks, {}, rank_body,
                              [&] {
                                job.Await(kRunning);
                                TakeLinkDown(kCutOff);
                              }),
            "");
}

TEST_F(FaultyNetworksTest, WithEveryFrameLostTheGroupIsNotMade) {
  if (const std::string why = WhyNoSlowSwitch(); !why.empty()) GTEST_SKIP() << why;
  JobForTest job;
  EXPECT_EQ(RunInNetworkWorld(2, {.loss = 1},
                              [&](int rank) -> std::string {
                                GroupForTest group(job.host(), "g", rank, AllRanks(2),
                                                   MonotonicNs() + kShortNs);
                                return group.status() != COTUNE_OK ? "" : "the group is made";
                              }),
            "");
}

// Ranks of different networks that can only use memory in common find no way.
TEST_F(FaultyNetworksTest, WithoutATransportInCommonTheGroupIsRefused) {
  JobForTest job;
  job.Set("tls", "self");
  EXPECT_EQ(RunInNetworkWorld(2, {},
                              [&](int rank) -> std::string {
                                GroupForTest group(job.host(), "g", rank, AllRanks(2),
                                                   MonotonicNs() + kShortNs);
                                const std::string text = group.error().message;
                                const bool refused = group.status() == COTUNE_UNSUPPORTED &&
                                                     text.find("ucx.tls") != std::string::npos;
                                return refused ? "" : text;
                              }),
            "");
}

}  // namespace
}  // namespace cotune::ucx
