// Launching, failing and aborting through the built plugin. Each case has a process of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "plugins/nccl/testing/nccl_ranks.h"

namespace cotune::nccl {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

cotune_problem_t Sum(uint64_t count, int world_size) {
  return AbiProblem(COTUNE_ALL_REDUCE, kAbiF32, COTUNE_SUM, count, world_size);
}

TEST(LaunchDeathTest, CallsOnTheStreamWithTheBuffers) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    JobForTest job;
    FakeRank rank(job, "g", 0, 1);
    EXPECT_EQ(rank.Run(Sum(123, 1), "auto"), "");
    const FakeCall& call = state.calls.back();
    EXPECT_EQ(call.count, 123u);
    EXPECT_EQ(call.send, FakeRank::Send());
    EXPECT_EQ(call.receive, FakeRank::Receive());
    EXPECT_EQ(call.stream, FakeRank::Stream());
  });
}

TEST(LaunchDeathTest, AnEmptyProblemCallsNothing) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    JobForTest job;
    RunRanks(2, [&](int r) {
      FakeRank rank(job, "g", r, 2);
      EXPECT_EQ(rank.Run(Sum(0, 2), "ring?proto=ll"), "");
    });
    for (const FakeCall& call : state.calls) EXPECT_NE(call.count, 0u);
  });
}

TEST(LaunchDeathTest, WrongStreamsAndBuffersAreRefused) {
  IN_CHILD({
    FakeRank::LoadLibraries();
    JobForTest job;
    FakeRank rank(job, "g", 0, 1);
    cotune_plan_t* plan = rank.Prepare(Sum(100, 1), "auto");
    cotune_launch_t good = rank.LaunchArguments();
    const auto status_of = [&](cotune_launch_t launch) {
      return rank.api().launch(plan, &launch, nullptr);
    };
    EXPECT_EQ(status_of(good), COTUNE_OK);
    cotune_launch_t wrong = good;
    wrong.stream.kind = COTUNE_STREAM_HOST;
    EXPECT_EQ(status_of(wrong), COTUNE_INVALID_ARGUMENT);
    wrong = good;
    wrong.stream.device = 3;
    EXPECT_EQ(status_of(wrong), COTUNE_INVALID_ARGUMENT);
    wrong = good;
    wrong.recv = nullptr;
    EXPECT_EQ(status_of(wrong), COTUNE_INVALID_ARGUMENT);
    wrong = good;
    wrong.recv = static_cast<char*>(const_cast<void*>(good.send)) + 40;
    EXPECT_EQ(status_of(wrong), COTUNE_INVALID_ARGUMENT) << "overlap";
    rank.api().plan_destroy(plan);
  });
}

TEST(LaunchDeathTest, AllToAllInPlaceIsRefused) {
  IN_CHILD({
    FakeRank::LoadLibraries();
    JobForTest job;
    FakeRank rank(job, 0);
    cotune_problem_t problem =
        AbiProblem(COTUNE_ALL_TO_ALL, kAbiF32, COTUNE_REDUCTION_NONE, 100, 2);
    EXPECT_THAT(rank.Runnable(problem), ::testing::ElementsAre("auto"));
    problem.flags = COTUNE_PROBLEM_IN_PLACE;
    EXPECT_THAT(rank.Runnable(problem), IsEmpty());
  });
}

TEST(LaunchDeathTest, AnErrorOfNcclEndsTheGroup) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    JobForTest job;
    FakeRank rank(job, "g", 0, 1);
    state.collective_result = kNcclUnhandledCudaError;
    EXPECT_THAT(rank.Run(Sum(100, 1), "auto"), HasSubstr("a collective of NCCL 2.28.9 failed"));
    state.collective_result = kNcclSuccess;
    EXPECT_EQ(rank.Health(), COTUNE_INTERNAL);
    EXPECT_EQ(rank.error().native_code, kNcclUnhandledCudaError);
    EXPECT_THAT(rank.Run(Sum(100, 1), "auto"), HasSubstr("prepare: a collective"));
  });
}

TEST(LaunchDeathTest, HealthTellsWhatNcclNoticed) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    JobForTest job;
    FakeRank rank(job, "g", 0, 1);
    EXPECT_EQ(rank.Health(), COTUNE_OK);
    state.async_error = kNcclRemoteError;
    EXPECT_EQ(rank.Health(), COTUNE_PEER_FAILED);
    state.async_error = kNcclSuccess;
    EXPECT_EQ(rank.Health(), COTUNE_PEER_FAILED) << "a failed group stays failed";
  });
}

TEST(LaunchDeathTest, HealthTellsThatAnOperationIsLate) {
  IN_CHILD({
    FakeRank::LoadLibraries();
    JobForTest job;
    FakeRank rank(job, "g", 0, 1);
    cotune_plan_t* plan = rank.Prepare(Sum(100, 1), "auto");
    LoadFakeCuda().is_busy = true;
    EXPECT_EQ(rank.Launch(plan, Soon()), COTUNE_OK);
    EXPECT_EQ(rank.Health(), COTUNE_OK);
    LoadFakeCuda().is_busy = false;
    EXPECT_EQ(rank.Health(), COTUNE_OK);
    EXPECT_EQ(rank.Launch(plan, MonotonicNs() - 1), COTUNE_OK);
    EXPECT_EQ(rank.Health(), COTUNE_OK) << "late, but complete";
    LoadFakeCuda().is_busy = true;
    EXPECT_EQ(rank.Launch(plan, MonotonicNs() - 1), COTUNE_OK);
    EXPECT_EQ(rank.Health(), COTUNE_DEADLINE_EXCEEDED);
    EXPECT_EQ(rank.Launch(plan), COTUNE_DEADLINE_EXCEEDED);
    rank.api().plan_destroy(plan);
  });
}

TEST(LaunchDeathTest, ACaptureRecordsNoEventAndHasNoDeadline) {
  IN_CHILD({
    FakeRank::LoadLibraries();
    JobForTest job;
    FakeRank rank(job, "g", 0, 1);
    cotune_plan_t* plan = rank.Prepare(Sum(100, 1), "auto");
    LoadFakeCuda().is_capturing = true;
    LoadFakeCuda().is_busy = true;
    EXPECT_EQ(rank.Launch(plan, MonotonicNs() - 1), COTUNE_OK);
    EXPECT_EQ(LoadFakeCuda().events_recorded, 0);
    EXPECT_EQ(rank.Health(), COTUNE_OK);
    LoadFakeCuda().is_capturing = false;
    EXPECT_EQ(rank.Launch(plan, Soon()), COTUNE_OK);
    EXPECT_EQ(LoadFakeCuda().events_recorded, 1);
    rank.api().plan_destroy(plan);
  });
}

TEST(LaunchDeathTest, AbortIsIdempotentAndTheLastWord) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    JobForTest job;
    FakeRank rank(job, "g", 0, 1);
    cotune_plan_t* plan = rank.Prepare(Sum(100, 1), "auto");
    state.async_error = kNcclRemoteError;
    EXPECT_EQ(rank.Health(), COTUNE_PEER_FAILED);
    rank.api().group_abort(rank.group());
    rank.api().group_abort(rank.group());
    EXPECT_EQ(rank.Health(), COTUNE_ABORTED);
    EXPECT_THAT(rank.message(), HasSubstr("job rank 0 (rank 0 of the group) aborted"));
    EXPECT_EQ(rank.Launch(plan), COTUNE_ABORTED);
    rank.api().plan_destroy(plan);
    EXPECT_EQ(rank.Prepare(Sum(100, 1), "auto"), nullptr);
    EXPECT_EQ(rank.status(), COTUNE_ABORTED);
    EXPECT_EQ(state.communicators, 0) << "all were ended";
    EXPECT_EQ(state.aborts, 2);
    EXPECT_THAT(state.misuse, IsEmpty());
  });
}

TEST(LaunchDeathTest, AbortFreesACallThatIsInNccl) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    JobForTest job;
    FakeRank rank(job, "g", 0, 1);
    cotune_plan_t* plan = rank.Prepare(Sum(100, 1), "auto");
    {
      const std::lock_guard lock(state.mutex);
      state.collectives_hang = true;
    }
    std::thread caller([&] { EXPECT_EQ(rank.Launch(plan), COTUNE_ABORTED); });
    {
      std::unique_lock lock(state.mutex);
      state.changed.wait(lock, [&] { return state.calls_inside == 1; });
    }
    EXPECT_EQ(rank.api().group_health(rank.group(), nullptr), COTUNE_OK) << "does not wait";
    rank.api().group_abort(rank.group());
    caller.join();
    EXPECT_GT(state.revokes, 0) << "the call was let out before the communicator was freed";
    EXPECT_EQ(state.communicators, 0);
    EXPECT_THAT(state.misuse, IsEmpty());
    rank.api().plan_destroy(plan);
  });
}

TEST(LaunchDeathTest, AGroupThatIsBusyIsAbortedWhenItGoes) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    JobForTest job;
    {
      FakeRank rank(job, "g", 0, 1);
      cotune_plan_t* plan = rank.Prepare(Sum(100, 1), "auto");
      EXPECT_EQ(rank.Launch(plan), COTUNE_OK);
      rank.api().plan_destroy(plan);
      LoadFakeCuda().is_busy = true;
    }
    EXPECT_EQ(state.communicators, 0);
    EXPECT_GT(state.aborts, 0);
    EXPECT_EQ(LoadFakeCuda().objects, 0);
    EXPECT_THAT(state.misuse, IsEmpty());
  });
}

}  // namespace
}  // namespace cotune::nccl
