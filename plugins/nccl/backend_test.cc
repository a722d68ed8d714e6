// The built plugin as a host program sees it, over libraries that stand in for NVIDIA's. Each case
// has a process of its own: NCCL looks for its tuner once.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <map>

#include "plugins/nccl/testing/fakes.h"
#include "plugins/nccl/testing/nccl_ranks.h"

namespace cotune::nccl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

cotune_problem_t Sum(uint64_t count, int world_size) {
  return AbiProblem(COTUNE_ALL_REDUCE, kAbiF32, COTUNE_SUM, count, world_size);
}

std::string CreateRefusal(int device, const JobForTest& job = {}) {
  cotune_backend_t* backend = nullptr;
  cotune_error_t error = EmptyError();
  const cotune_status_t status = LoadPlugin().create(&job.host(), device, &backend, &error);
  EXPECT_EQ(backend, nullptr);
  EXPECT_EQ(status, COTUNE_UNSUPPORTED);
  return error.message;
}

// "2 AllReduce ring, 4 Send": what was enqueued how often, by whom it may be.
std::string CountCalls(const FakeNcclState& state) {
  std::map<std::string, int> counts;
  for (const FakeCall& call : state.calls) {
    ++counts[call.name + (call.algorithm < 0 ? "" : call.algorithm == 0 ? " tree" : " ring")];
  }
  std::string text;
  for (const auto& [name, count] : counts) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + name;
  }
  return text;
}

TEST(BackendDeathTest, TableIsComplete) {
  IN_CHILD({
    const cotune_backend_api_t& api = LoadPlugin();
    EXPECT_EQ(api.struct_size, sizeof(api));
    EXPECT_STREQ(api.name, "nccl");
    EXPECT_EQ(api.memory_kinds, 1u << COTUNE_MEMORY_CUDA);
    EXPECT_EQ(api.get_extension(nullptr, "cotune.other/1"), nullptr);
    api.destroy(nullptr);
    api.group_destroy(nullptr);
    api.plan_destroy(nullptr);
  });
}

TEST(BackendDeathTest, WithoutGpuOrNcclItSaysSo) {
  IN_CHILD(EXPECT_THAT(CreateRefusal(-1), HasSubstr("GPUs only")));
  IN_CHILD({
    LoadFakeCuda();
    EXPECT_THAT(CreateRefusal(8), HasSubstr("no GPU 8"));
  });
  IN_CHILD({
    LoadFakeCuda();
    JobForTest job;
    job.Set("library", "/nowhere/libnccl.so.2");
    EXPECT_THAT(CreateRefusal(0, job), HasSubstr("/nowhere/libnccl.so.2"));
    EXPECT_EQ(LoadFakeCuda().contexts_held, 0);
  });
}

TEST(BackendDeathTest, MulticastIsSwitchedOffAndNeverUsed) {
  IN_CHILD({
    setenv("NCCL_NVLS_ENABLE", "1", 1);
    FakeRank::LoadLibraries();
    EXPECT_THAT(CreateRefusal(0), HasSubstr("NCCL_NVLS_ENABLE"));
  });
  IN_CHILD({
    FakeRank::LoadLibraries();
    JobForTest job;
    FakeRank rank(job, "g", 0, 1);
    EXPECT_STREQ(getenv("NCCL_NVLS_ENABLE"), "0");
  });
}

TEST(BackendDeathTest, EveryVersionOfNcclFindsItsTuner) {
  for (const auto& [version, symbol] : {std::pair("22304", "ncclTunerPlugin_v3"),
                                        {"22602", "ncclTunerPlugin_v4"},
                                        {"22809", "ncclTunerPlugin_v5"},
                                        {"23007", "ncclTunerPlugin_v5"}}) {
    IN_CHILD({
      setenv("FAKE_NCCL_VERSION", version, 1);
      FakeNcclState& state = FakeRank::LoadLibraries();
      JobForTest job;
      RunRanks(2, [&](int r) {
        FakeRank rank(job, "g", r, 2);
        ASSERT_EQ(rank.status(), COTUNE_OK) << rank.message();
        EXPECT_EQ(rank.Run(Sum(1 << 20, 2), "tree?proto=ll128&channels=16"), "");
        EXPECT_EQ(rank.Run(Sum(1 << 20, 2), "auto"), "");
      });
      EXPECT_EQ(state.tuner_symbol, symbol);
      EXPECT_THAT(state.misuse, IsEmpty());
      ASSERT_GE(state.calls.size(), 4u);
      const auto count = [&](int algorithm, int protocol, int channels) {
        return std::count_if(state.calls.begin(), state.calls.end(), [&](const FakeCall& call) {
          return call.count == 1 << 20 && call.algorithm == algorithm &&
                 call.protocol == protocol && call.channels == channels;
        });
      };
      EXPECT_EQ(count(0, 1, 16), 2) << "tree with ll128 on 16 channels";
      EXPECT_EQ(count(1, 0, 0), 2) << "the fake's own pick, once NVLS is ruled out";
    });
  }
}

TEST(BackendDeathTest, OldNcclRunsAutoAlone) {
  IN_CHILD({
    setenv("FAKE_NCCL_VERSION", "22105", 1);
    FakeRank::LoadLibraries();
    JobForTest job;
    FakeRank rank(job, "g", 0, 1);
    ASSERT_EQ(rank.status(), COTUNE_OK) << rank.message();
    EXPECT_THAT(rank.Runnable(Sum(1 << 20, 4)), ::testing::ElementsAre("auto"));
    EXPECT_THAT(rank.RefusalOf(Sum(1 << 20, 4), "ring"), HasSubstr("2.21.5"));
  });
}

TEST(BackendDeathTest, AnotherTunerOfTheUserIsKept) {
  IN_CHILD({
    setenv("NCCL_TUNER_PLUGIN", "/opt/mine.so", 1);
    FakeRank::LoadLibraries();
    JobForTest job;
    FakeRank rank(job, "g", 0, 1);
    EXPECT_THAT(rank.Runnable(Sum(1 << 20, 4)), ::testing::ElementsAre("auto"));
    EXPECT_THAT(rank.RefusalOf(Sum(1 << 20, 4), "ring"), HasSubstr("/opt/mine.so"));
    EXPECT_STREQ(getenv("NCCL_TUNER_PLUGIN"), "/opt/mine.so");
  });
}

TEST(BackendDeathTest, ATunerThatNcclDidNotFindIsToldInPrepare) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    // A communicator of the program, before the backend is there.
    auto init = reinterpret_cast<NcclResult (*)(NcclComm*, int, NcclUniqueId, int, NcclConfig*)>(
        dlsym(dlopen(LibraryForTest(kFakeNccl).c_str(), RTLD_NOW), "ncclCommInitRankConfig"));
    NcclComm earlier = nullptr;
    NcclConfig config;
    config.version = 22809;
    config.blocking = 0;
    init(&earlier, 1, {}, 0, &config);
    JobForTest job;
    RunRanks(2, [&](int r) {
      FakeRank rank(job, "g", r, 2);
      ASSERT_EQ(rank.status(), COTUNE_OK) << rank.message();
      EXPECT_THAT(rank.Run(Sum(1 << 20, 2), "ring?proto=simple"), HasSubstr("create the backend"));
      EXPECT_EQ(rank.Run(Sum(1 << 20, 2), "auto"), "");
    });
    EXPECT_THAT(state.misuse, IsEmpty());
  });
}

TEST(BackendDeathTest, WhatNcclForbidsIsToldInPrepare) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    state.forbidden = DecisionBit(Algorithm::kRing, Protocol::kLl128);
    JobForTest job;
    RunRanks(2, [&](int r) {
      FakeRank rank(job, "g", r, 2);
      EXPECT_THAT(rank.Run(Sum(1 << 20, 2), "ring?proto=ll128"), HasSubstr("does not allow ring"));
      EXPECT_EQ(rank.Run(Sum(1 << 20, 2), "ring?proto=simple"), "");
    });
  });
}

TEST(BackendDeathTest, ADecisionThatNcclDoesNotFollowIsNoSilentSuccess) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    JobForTest job;
    RunRanks(2, [&](int r) {
      FakeRank rank(job, "g", r, 2);
      cotune_plan_t* plan = rank.Prepare(Sum(1 << 20, 2), "ring?proto=ll128");
      ASSERT_NE(plan, nullptr) << rank.message();
      {
        const std::lock_guard lock(state.mutex);
        state.forbidden = DecisionBit(Algorithm::kRing, Protocol::kLl128);
      }
      EXPECT_EQ(rank.Launch(plan), COTUNE_UNSUPPORTED);
      EXPECT_THAT(rank.message(), HasSubstr("did not take ring with ll128"));
      rank.api().plan_destroy(plan);
    });
  });
}

TEST(BackendDeathTest, GroupsLeaveNothingBehind) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    JobForTest job;
    RunRanks(4, [&](int r) {
      FakeRank rank(job, "g", r, 4);
      ASSERT_EQ(rank.status(), COTUNE_OK) << rank.message();
      EXPECT_EQ(rank.Run(Sum(100, 4), "auto"), "");
    });
    EXPECT_EQ(job.keys(), 0u);
    EXPECT_EQ(state.communicators, 0);
    EXPECT_EQ(state.finalizes, 4) << "of the communicators that wait for each other";
    EXPECT_EQ(state.aborts, 4) << "of those that cannot";
    EXPECT_EQ(LoadFakeCuda().objects, 0);
    EXPECT_EQ(LoadFakeCuda().contexts_held, 0);
    EXPECT_THAT(state.misuse, IsEmpty());
  });
}

TEST(BackendDeathTest, EveryConnectionIsMadeBeforeTheFirstLaunch) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    JobForTest job;
    RunRanks(2, [&](int r) { EXPECT_EQ(FakeRank(job, "g", r, 2).status(), COTUNE_OK); });
    EXPECT_EQ(CountCalls(state),
              "2 AllGather ring, 2 AllReduce ring, 2 AllReduce tree, 2 Broadcast ring, 4 Recv, "
              "2 ReduceScatter ring, 4 Send");
  });
}

TEST(BackendDeathTest, ARankThatDoesNotComeIsNamed) {
  IN_CHILD({
    FakeRank::LoadLibraries();
    JobForTest job;
    FakeRank rank(job, "g", 0, 3, MonotonicNs() + kSecondNs / 50);
    EXPECT_EQ(rank.status(), COTUNE_PEER_FAILED);
    EXPECT_EQ(rank.error().failed_rank, 1);
    EXPECT_THAT(rank.message(), HasSubstr("job rank 1"));
  });
}

TEST(BackendDeathTest, AGroupOverSeveralHostsIsRefusedAtOnce) {
  IN_CHILD({
    FakeRank::LoadLibraries();
    JobForTest job;
    FakeRank rank(job.host(), 0);
    rank.Join("g", 0, 2, INT64_MAX, {0, 1});
    EXPECT_EQ(rank.status(), COTUNE_UNSUPPORTED);
    EXPECT_THAT(rank.message(), HasSubstr("on 2 hosts"));
  });
}

TEST(BackendDeathTest, AnInitThatHangsEndsInTheDeadlineOnAllRanks) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    state.init_hangs = true;
    JobForTest job;
    RunRanks(2, [&](int r) {
      FakeRank rank(job, "g", r, 2, MonotonicNs() + kSecondNs / 2);
      EXPECT_EQ(rank.status(), COTUNE_DEADLINE_EXCEEDED) << rank.message();
    });
    EXPECT_EQ(state.communicators, 0);
    EXPECT_THAT(state.misuse, IsEmpty());
  });
}

TEST(BackendDeathTest, AFirstCollectiveThatHangsEndsInTheDeadline) {
  for (const bool hangs_in_call : {false, true}) {
    IN_CHILD({
      FakeNcclState& state = FakeRank::LoadLibraries();
      state.collectives_hang = hangs_in_call;
      LoadFakeCuda().is_busy = !hangs_in_call;
      JobForTest job;
      RunRanks(2, [&](int r) {
        FakeRank rank(job, "g", r, 2, MonotonicNs() + kSecondNs / 2);
        EXPECT_EQ(rank.status(), COTUNE_DEADLINE_EXCEEDED) << rank.message();
      });
      EXPECT_EQ(state.communicators, 0);
      EXPECT_THAT(state.misuse, IsEmpty());
    });
  }
}

TEST(BackendDeathTest, RanksWithOtherVersionsAreToldOfEachOther) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    JobForTest job;
    // The version is asked when a backend is created.
    FakeRank first(job, 0);
    state.version = 22703;
    FakeRank second(job, 1);
    RunRanks(2, [&](int r) {
      FakeRank& rank = r == 0 ? first : second;
      rank.Join("g", r, 2, Soon());
      EXPECT_EQ(rank.status(), COTUNE_UNSUPPORTED);
      EXPECT_THAT(rank.message(), HasSubstr("2.28.9"));
      EXPECT_THAT(rank.message(), HasSubstr("job rank 1 (rank 1 of the group) has NCCL 2.27.3"));
    });
  });
}

}  // namespace
}  // namespace cotune::nccl
