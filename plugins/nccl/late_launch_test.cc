// Calls whose peers do not come: nobody asks for the group's health, and the stream ends all the
// same. Each case has a process of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "plugins/nccl/testing/nccl_ranks.h"

namespace cotune::nccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kPatience = std::chrono::seconds(60);

cotune_problem_t Sum(uint64_t count) {
  return AbiProblem(COTUNE_ALL_REDUCE, kAbiF32, COTUNE_SUM, count, 1);
}

int64_t Shortly() { return MonotonicNs() + kSecondNs / 50; }

// A rank whose kernels wait for a peer until they are aborted.
struct WaitingRank {
  WaitingRank() : state(FakeRank::LoadLibraries()), cuda(LoadFakeCuda()), rank(job, "g", 0, 1) {
    plan = rank.Prepare(Sum(100), "auto");
    state.kernels = &cuda.is_busy;
    cuda.is_busy = true;
  }
  ~WaitingRank() { rank.api().plan_destroy(plan); }
  WaitingRank(const WaitingRank&) = delete;
  WaitingRank& operator=(const WaitingRank&) = delete;

  // Whether all communicators were aborted in time.
  bool AwaitAborts() {
    std::unique_lock lock(state.mutex);
    return state.changed.wait_for(lock, kPatience, [&] { return state.communicators == 0; });
  }
  // As cudaStreamSynchronize, which tells nobody that it waits.
  void Synchronize() { cuda.is_busy.wait(true); }

  FakeNcclState& state;
  FakeCudaState& cuda;
  JobForTest job;
  FakeRank rank;
  cotune_plan_t* plan = nullptr;
};

TEST(LateLaunchDeathTest, TheStreamEndsAndTheErrorNamesTheCall) {
  IN_CHILD({
    WaitingRank waiting;
    FakeRank& rank = waiting.rank;
    EXPECT_EQ(rank.Launch(waiting.plan, Shortly()), COTUNE_OK);
    waiting.Synchronize();
    ASSERT_TRUE(waiting.AwaitAborts());
    EXPECT_EQ(rank.Health(), COTUNE_DEADLINE_EXCEEDED);
    EXPECT_THAT(rank.message(), AllOf(HasSubstr("all_reduce of 400 bytes, call 1 of group 'g'"),
                                      HasSubstr("communicators are aborted")));
    const size_t calls = waiting.state.calls.size();
    EXPECT_EQ(rank.Launch(waiting.plan), COTUNE_DEADLINE_EXCEEDED);
    EXPECT_EQ(waiting.state.calls.size(), calls) << "nothing goes into what was aborted";
    EXPECT_EQ(waiting.state.aborts, 2);
    EXPECT_THAT(waiting.state.misuse, IsEmpty());
  });
}

TEST(LateLaunchDeathTest, AGroupThatWasEndedGoesOnce) {
  IN_CHILD({
    FakeNcclState* state = nullptr;
    FakeCudaState* cuda = nullptr;
    {
      WaitingRank waiting;
      state = &waiting.state;
      cuda = &waiting.cuda;
      EXPECT_EQ(waiting.rank.Launch(waiting.plan, Shortly()), COTUNE_OK);
      ASSERT_TRUE(waiting.AwaitAborts());
      waiting.rank.api().group_abort(waiting.rank.group());
      EXPECT_EQ(waiting.rank.Health(), COTUNE_ABORTED) << "the last word";
    }
    EXPECT_EQ(state->aborts, 2);
    EXPECT_EQ(state->finalizes, 0);
    EXPECT_EQ(cuda->objects, 0);
    EXPECT_THAT(state->misuse, IsEmpty());
  });
}

// The deadline that counts is the earliest of the calls that are on their method.
TEST(LateLaunchDeathTest, AnEarlierCallIsNotForgottenForALaterOne) {
  IN_CHILD({
    WaitingRank waiting;
    EXPECT_EQ(waiting.rank.Launch(waiting.plan, Soon()), COTUNE_OK);
    EXPECT_EQ(waiting.rank.Launch(waiting.plan, Shortly()), COTUNE_OK);
    for (int i = 0; i < 1000; ++i) {
      if (waiting.rank.Launch(waiting.plan, Soon()) != COTUNE_OK) break;
    }
    ASSERT_TRUE(waiting.AwaitAborts());
    EXPECT_EQ(waiting.rank.Health(), COTUNE_DEADLINE_EXCEEDED);
    EXPECT_THAT(waiting.rank.message(), HasSubstr("call 2 of group"));
  });
}

// That time has passed is seen by another group, whose call is not complete.
TEST(LateLaunchDeathTest, CallsThatAreCompleteEndNothing) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    FakeCudaState& cuda = LoadFakeCuda();
    JobForTest job;
    FakeRank complete(job, "complete", 0, 1);
    FakeRank late(job, "late", 0, 1);
    cotune_plan_t* complete_plan = complete.Prepare(Sum(100), "auto");
    cotune_plan_t* late_plan = late.Prepare(Sum(100), "auto");
    cuda.records_complete = cuda.events_recorded + 1;
    EXPECT_EQ(complete.Launch(complete_plan, Shortly()), COTUNE_OK);
    EXPECT_EQ(late.Launch(late_plan, Shortly()), COTUNE_OK);
    {
      std::unique_lock lock(state.mutex);
      EXPECT_TRUE(state.changed.wait_for(lock, kPatience, [&] { return state.aborts == 2; }));
    }
    EXPECT_EQ(late.Health(), COTUNE_DEADLINE_EXCEEDED);
    EXPECT_EQ(complete.Health(), COTUNE_OK);
    EXPECT_EQ(complete.Launch(complete_plan, Soon()), COTUNE_OK);
    EXPECT_EQ(state.communicators, 2);
    EXPECT_EQ(cuda.unsafe_queries, 0) << "another thread may be capturing";
    complete.api().plan_destroy(complete_plan);
    late.api().plan_destroy(late_plan);
  });
}

TEST(LateLaunchDeathTest, AnyNumberOfCallsTakesNoMoreEvents) {
  IN_CHILD({
    WaitingRank waiting;
    const int objects = waiting.cuda.objects;
    for (int i = 0; i < 1000; ++i) {
      ASSERT_EQ(waiting.rank.Launch(waiting.plan, Soon()), COTUNE_OK);
    }
    waiting.cuda.is_busy = false;
    const int queries = waiting.cuda.event_queries;
    for (int i = 0; i < 1000; ++i) {
      ASSERT_EQ(waiting.rank.Launch(waiting.plan, Soon()), COTUNE_OK);
    }
    // One call in 32 asks once the watch has looked at the 64 slots; when it does is up to the
    // machine.
    EXPECT_LE(waiting.cuda.event_queries - queries, 1000 + 65);
    EXPECT_EQ(waiting.cuda.objects, objects);
    EXPECT_EQ(waiting.cuda.events_recorded, 2000);
    EXPECT_EQ(waiting.cuda.unsafe_queries, 0);
  });
}

// The last of many calls shares its event with others.
TEST(LateLaunchDeathTest, OneOfManyCallsThatIsNotCompleteKeepsTheGroupBusy) {
  IN_CHILD({
    FakeNcclState* state = nullptr;
    {
      WaitingRank waiting;
      state = &waiting.state;
      for (int i = 0; i < 1000; ++i) {
        ASSERT_EQ(waiting.rank.Launch(waiting.plan, Soon()), COTUNE_OK);
      }
      waiting.cuda.records_complete = 999;
      waiting.cuda.is_busy = false;
      EXPECT_EQ(waiting.rank.Health(), COTUNE_OK);
    }
    EXPECT_EQ(state->finalizes, 0) << "it was not taken for idle";
    EXPECT_EQ(state->aborts, 2);
  });
}

// A thread that is inside NCCL comes back before its communicator is freed.
TEST(LateLaunchDeathTest, ACallThatIsInNcclIsLetOutFirst) {
  IN_CHILD({
    WaitingRank waiting;
    EXPECT_EQ(waiting.rank.Launch(waiting.plan, MonotonicNs() + 2 * kSecondNs), COTUNE_OK);
    {
      const std::lock_guard lock(waiting.state.mutex);
      waiting.state.collectives_hang = true;
    }
    EXPECT_EQ(waiting.rank.Launch(waiting.plan, Soon()), COTUNE_DEADLINE_EXCEEDED);
    ASSERT_TRUE(waiting.AwaitAborts());
    EXPECT_GT(waiting.state.revokes, 0);
    EXPECT_THAT(waiting.state.misuse, IsEmpty());
  });
}

TEST(LateLaunchDeathTest, AnAbortEndsAStreamThatIsWaitedFor) {
  IN_CHILD({
    WaitingRank waiting;
    EXPECT_EQ(waiting.rank.Launch(waiting.plan, Soon()), COTUNE_OK);
    std::thread user([&] { waiting.Synchronize(); });
    waiting.rank.api().group_abort(waiting.rank.group());
    user.join();
    EXPECT_EQ(waiting.rank.Health(), COTUNE_ABORTED);
    EXPECT_EQ(waiting.state.communicators, 0);
    EXPECT_THAT(waiting.state.misuse, IsEmpty());
  });
}

// Replays of a graph have no deadline, and an abort ends them.
TEST(LateLaunchDeathTest, AnAbortEndsWhatWasCaptured) {
  IN_CHILD({
    WaitingRank waiting;
    waiting.cuda.is_capturing = true;
    EXPECT_EQ(waiting.rank.Launch(waiting.plan, MonotonicNs() - 1), COTUNE_OK);
    waiting.cuda.is_capturing = false;
    EXPECT_EQ(waiting.cuda.events_recorded, 0);
    EXPECT_EQ(waiting.rank.Health(), COTUNE_OK);
    std::thread user([&] { waiting.Synchronize(); });
    waiting.rank.api().group_abort(waiting.rank.group());
    user.join();
    EXPECT_EQ(waiting.state.communicators, 0);
  });
}

// Aborts while another thread launches, again and again: what NCCL forbids is written down.
TEST(LateLaunchDeathTest, AnAbortMeetsLaunchesAtAnyMoment) {
  IN_CHILD({
    FakeNcclState& state = FakeRank::LoadLibraries();
    JobForTest job;
    for (int round = 0; round < 50; ++round) {
      FakeRank rank(job, "g" + std::to_string(round), 0, 1);
      cotune_plan_t* plan = rank.Prepare(Sum(100), "auto");
      std::atomic<int> launched{0};
      std::thread caller([&] {
        while (rank.Launch(plan) == COTUNE_OK) {
          ++launched;
          launched.notify_one();
        }
      });
      launched.wait(0);
      rank.api().group_abort(rank.group());
      caller.join();
      EXPECT_EQ(rank.status(), COTUNE_ABORTED);
      rank.api().plan_destroy(plan);
    }
    EXPECT_EQ(state.communicators, 0);
    EXPECT_THAT(state.misuse, IsEmpty());
  });
}

}  // namespace
}  // namespace cotune::nccl
