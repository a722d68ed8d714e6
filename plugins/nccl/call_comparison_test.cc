// Calls that do not fit together, with check_calls on and off, through the built plugin: NCCL's
// stand-in takes them all, as NCCL takes those of the same size. Each case has a process of its
// own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <vector>

#include "plugins/nccl/testing/nccl_ranks.h"

namespace cotune::nccl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kPatience = std::chrono::seconds(60);

struct Call {
  cotune_problem_t problem;
  std::string choice = "auto";
  std::string text;
  bool is_captured = false;
};

Call Sum(int ranks) {
  return {AbiProblem(COTUNE_ALL_REDUCE, kAbiF32, COTUNE_SUM, 1000, ranks), "auto",
          "all_reduce of 1000 f32 (sum) by auto"};
}

struct Difference {
  const char* name;
  Call usual;
  Call other;
};

std::vector<Difference> Differences(int ranks) {
  const auto call = [&](uint32_t collective, uint32_t reduction, uint64_t count,
                        const std::string& text) {
    return Call{AbiProblem(collective, kAbiF32, reduction, count, ranks), "auto", text};
  };
  const Call sum = Sum(ranks);
  Call of_i32 = sum;
  of_i32.problem.dtype = {COTUNE_DTYPE_INT, 32, 1};
  of_i32.text = "all_reduce of 1000 i32 (sum) by auto";
  Call by_ring = sum;
  by_ring.choice = "ring?proto=ll";
  by_ring.text = "all_reduce of 1000 f32 (sum) by ring?proto=ll";
  Call captured = sum;
  captured.is_captured = true;
  captured.text = "all_reduce of 1000 f32 (sum) by auto into a CUDA graph";
  Call in_program = sum;
  in_program.problem.program_digest = 0x0123456789ABCDEF;
  in_program.text = "all_reduce of 1000 f32 (sum) in program 01234567... by auto";
  Call in_other = in_program;
  in_other.problem.program_digest = 0x7123456789ABCDEF;
  in_other.text = "all_reduce of 1000 f32 (sum) in program 71234567... by auto";
  const Call from_0 =
      call(COTUNE_BROADCAST, COTUNE_REDUCTION_NONE, 1000, "broadcast of 1000 f32 from rank 0 by");
  Call from_1 = from_0;
  from_1.problem.root = 1;
  from_1.text = "broadcast of 1000 f32 from rank 1 by auto";
  return {
      {"collective", sum,
       call(COTUNE_ALL_GATHER, COTUNE_REDUCTION_NONE, 1000, "all_gather of 1000 f32 by auto")},
      {"type", sum, of_i32},
      {"count", sum,
       call(COTUNE_ALL_REDUCE, COTUNE_SUM, 2000, "all_reduce of 2000 f32 (sum) by auto")},
      {"reduction", sum,
       call(COTUNE_ALL_REDUCE, COTUNE_MAX, 1000, "all_reduce of 1000 f32 (max) by auto")},
      {"root", from_0, from_1},
      {"choice", sum, by_ring},
      {"capture", sum, captured},
      {"step of a program", sum, in_program},
      {"program", in_program, in_other},
  };
}

cotune_status_t LaunchOnce(FakeRank& rank, const Call& call, int64_t deadline_ns = Soon()) {
  // The stand-in has one answer for all streams of all ranks.
  static std::mutex capture_mutex;
  cotune_plan_t* plan = rank.Prepare(call.problem, call.choice);
  if (plan == nullptr) return rank.status();
  cotune_status_t launched = COTUNE_OK;
  {
    const std::lock_guard lock(capture_mutex);
    LoadFakeCuda().is_capturing = call.is_captured;
    launched = rank.Launch(plan, deadline_ns);
    LoadFakeCuda().is_capturing = false;
  }
  rank.api().plan_destroy(plan);
  return launched;
}

// A job whose ranks compare their calls, or do not.
struct Job {
  explicit Job(bool compares) : state(FakeRank::LoadLibraries()) {
    if (compares) job.Set("check_calls", "on");
  }
  FakeNcclState& state;
  JobForTest job;
};

// Rank `odd` makes the other call as the third.
void ExpectNamedByAll(int ranks, int odd, const Difference& difference) {
  Job job(true);
  RunRanks(ranks, [&](int r) {
    FakeRank rank(job.job, "g", r, ranks);
    ASSERT_EQ(rank.status(), COTUNE_OK) << rank.message();
    EXPECT_EQ(LaunchOnce(rank, Sum(ranks)), COTUNE_OK);
    EXPECT_EQ(LaunchOnce(rank, Sum(ranks)), COTUNE_OK);
    EXPECT_EQ(rank.Health(), COTUNE_OK) << rank.message();
    const bool is_odd = r == odd;
    const cotune_status_t launched = LaunchOnce(rank, is_odd ? difference.other : difference.usual);
    EXPECT_THAT(launched, testing::AnyOf(COTUNE_OK, COTUNE_PEER_FAILED));
    EXPECT_EQ(rank.Health(), COTUNE_PEER_FAILED) << difference.name << ", rank " << r;
    const int peer = is_odd ? (odd == 0 ? 1 : 0) : odd;
    const Call& peers = is_odd ? difference.usual : difference.other;
    const Call& own = is_odd ? difference.other : difference.usual;
    EXPECT_THAT(rank.message(),
                AllOf(HasSubstr("group rank " + std::to_string(peer) + " called " + peers.text),
                      HasSubstr("where group rank " + std::to_string(r) + " (this rank) called " +
                                own.text),
                      HasSubstr("(launch 3 of the group)")));
    EXPECT_EQ(rank.error().failed_rank, peer);
    EXPECT_EQ(LaunchOnce(rank, Sum(ranks)), COTUNE_PEER_FAILED) << "a failed group stays failed";
  });
  EXPECT_EQ(job.state.communicators, 0);
  EXPECT_THAT(job.state.misuse, IsEmpty());
}

TEST(CallComparisonDeathTest, EveryDifferenceIsNamedByAllOfTwoRanks) {
  for (const Difference& difference : Differences(2)) {
    IN_CHILD(ExpectNamedByAll(2, 1, difference));
  }
}

TEST(CallComparisonDeathTest, EveryDifferenceIsNamedByAllOfThreeRanks) {
  for (const Difference& difference : Differences(3)) {
    IN_CHILD(ExpectNamedByAll(3, 0, difference));
    IN_CHILD(ExpectNamedByAll(3, 2, difference));
  }
}

// The same calls, two of them in another order.
TEST(CallComparisonDeathTest, ThePlaceInTheSequenceCounts) {
  IN_CHILD({
    Job job(true);
    RunRanks(2, [&](int r) {
      FakeRank rank(job.job, "g", r, 2);
      const Call sum = Sum(2);
      const Call max = Differences(2)[3].other;
      (void)LaunchOnce(rank, r == 0 ? sum : max);
      (void)LaunchOnce(rank, r == 0 ? max : sum);
      EXPECT_EQ(rank.Health(), COTUNE_PEER_FAILED);
      EXPECT_THAT(rank.message(), HasSubstr("(launch 1 of the group)"));
    });
  });
}

TEST(CallComparisonDeathTest, WithoutTheSettingNothingIsWrittenAndNothingCompared) {
  IN_CHILD({
    Job job(false);
    size_t puts = 0;
    std::barrier joined(2, [&]() noexcept { puts = job.job.puts(); });
    std::barrier ended(2);
    RunRanks(2, [&](int r) {
      FakeRank rank(job.job, "g", r, 2);
      joined.arrive_and_wait();
      const Difference reduction = Differences(2)[3];
      EXPECT_EQ(LaunchOnce(rank, r == 0 ? reduction.usual : reduction.other), COTUNE_OK);
      EXPECT_EQ(rank.Health(), COTUNE_OK) << "NCCL takes sum and max for the same call";
      ended.arrive_and_wait();
      EXPECT_EQ(job.job.puts(), puts);
    });
  });
}

TEST(CallComparisonDeathTest, CallsThatFitPassAndLeaveNothingInTheStore) {
  IN_CHILD({
    Job job(true);
    for (const int ranks : {2, 3}) {
      RunRanks(ranks, [&](int r) {
        FakeRank rank(job.job, "g" + std::to_string(ranks), r, ranks);
        for (int i = 0; i < 300; ++i) {
          const Call call = Differences(ranks)[static_cast<size_t>(i) % 7].other;
          ASSERT_EQ(LaunchOnce(rank, call), COTUNE_OK);
        }
        EXPECT_EQ(rank.Health(), COTUNE_OK) << rank.message();
      });
    }
    EXPECT_EQ(job.job.keys(), 0u);
    EXPECT_EQ(job.state.communicators, 0);
    EXPECT_THAT(job.state.misuse, IsEmpty());
  });
}

// A rank that is far ahead waits for nobody, in no call.
TEST(CallComparisonDeathTest, EnqueuingWaitsForNoPeer) {
  IN_CHILD({
    Job job(true);
    std::promise<void> enqueued;
    // From here on what is enqueued is not complete.
    std::barrier joined(2, []() noexcept { LoadFakeCuda().is_busy = true; });
    RunRanks(2, [&](int r) {
      FakeRank rank(job.job, "g", r, 2);
      joined.arrive_and_wait();
      if (r == 1) enqueued.get_future().wait();
      for (int i = 0; i < 500; ++i) ASSERT_EQ(LaunchOnce(rank, Sum(2)), COTUNE_OK);
      if (r == 0) {
        EXPECT_EQ(rank.Health(), COTUNE_OK) << "calls that are on their way are not waited for";
        LoadFakeCuda().is_busy = false;
        enqueued.set_value();
      }
      EXPECT_EQ(LaunchOnce(rank, Sum(2)), COTUNE_OK);
      EXPECT_EQ(rank.Health(), COTUNE_OK) << rank.message();
    });
  });
}

// Two groups whose calls the ranks enqueue in another order.
TEST(CallComparisonDeathTest, GroupsDoNotWaitForEachOther) {
  IN_CHILD({
    Job job(true);
    RunRanks(2, [&](int r) {
      FakeRank first(job.job, "first", r, 2);
      FakeRank second(job.job, "second", r, 2);
      EXPECT_EQ(LaunchOnce(r == 0 ? first : second, Sum(2)), COTUNE_OK);
      EXPECT_EQ(LaunchOnce(r == 0 ? second : first, Sum(2)), COTUNE_OK);
      EXPECT_EQ(first.Health(), COTUNE_OK) << first.message();
      EXPECT_EQ(second.Health(), COTUNE_OK) << second.message();
    });
  });
}

// The stream of a rank whose peer makes no call ends at the deadline, and the error names the peer.
TEST(CallComparisonDeathTest, ARankThatMakesNoCallIsNamedAtTheDeadline) {
  IN_CHILD({
    Job job(true);
    std::promise<void> knows;
    RunRanks(2, [&](int r) {
      FakeRank rank(job.job, "g", r, 2);
      if (r == 1) return knows.get_future().wait();
      LoadFakeCuda().is_busy = true;
      EXPECT_EQ(LaunchOnce(rank, Sum(2), MonotonicNs() + kSecondNs / 50), COTUNE_OK);
      {
        std::unique_lock lock(job.state.mutex);
        EXPECT_TRUE(
            job.state.changed.wait_for(lock, kPatience, [&] { return job.state.aborts == 2; }));
      }
      EXPECT_EQ(rank.Health(), COTUNE_PEER_FAILED);
      EXPECT_EQ(rank.error().failed_rank, 1);
      EXPECT_THAT(rank.message(),
                  HasSubstr("group rank 1 had not made all_reduce of 1000 f32 (sum) by auto "
                            "(launch 1 of the group)"));
      LoadFakeCuda().is_busy = false;
      knows.set_value();
    });
  });
}

// A rank may go when its calls are complete; peers that come later still find all its calls, also
// those that it had not handed over yet.
TEST(CallComparisonDeathTest, ARankThatHasGoneLeavesItsCalls) {
  IN_CHILD({
    Job job(true);
    std::promise<void> gone;
    RunRanks(2, [&](int r) {
      if (r == 0) {
        {
          FakeRank rank(job.job, "g", r, 2);
          for (int i = 0; i < 200; ++i) EXPECT_EQ(LaunchOnce(rank, Sum(2)), COTUNE_OK);
        }
        return gone.set_value();
      }
      FakeRank rank(job.job, "g", r, 2);
      gone.get_future().wait();
      for (int i = 0; i < 199; ++i) EXPECT_EQ(LaunchOnce(rank, Sum(2)), COTUNE_OK);
      EXPECT_EQ(rank.Health(), COTUNE_OK) << rank.message();
      (void)LaunchOnce(rank, Differences(2)[3].other);
      EXPECT_EQ(rank.Health(), COTUNE_PEER_FAILED);
      EXPECT_THAT(rank.message(), HasSubstr("(launch 200 of the group)"));
    });
  });
}

// The lost rank is none of this group, which goes on without the job's store: ranks whose calls
// differ from then on must not be told that all is well.
TEST(CallComparisonDeathTest, ALostRankOfTheJobIsAnErrorBecauseCallsAreNotComparedAnyMore) {
  IN_CHILD({
    Job job(true);
    std::promise<void> ended;
    RunRanks(2, [&](int r) {
      FakeRank rank(job.job, "g", r, 2);
      if (r == 1) return ended.get_future().wait();
      EXPECT_EQ(LaunchOnce(rank, Sum(2)), COTUNE_OK);
      job.job.LoseARank();
      EXPECT_EQ(rank.Health(), COTUNE_PEER_FAILED);
      EXPECT_EQ(rank.error().failed_rank, -1);
      EXPECT_THAT(rank.message(), HasSubstr("the calls of group 'g' are not compared any more"));
      EXPECT_EQ(LaunchOnce(rank, Sum(2)), COTUNE_PEER_FAILED);
      ended.set_value();
    });
  });
}

TEST(CallComparisonDeathTest, AnAbortEndsEveryWait) {
  IN_CHILD({
    Job job(true);
    std::promise<void> aborted;
    RunRanks(2, [&](int r) {
      FakeRank rank(job.job, "g", r, 2);
      if (r == 1) return aborted.get_future().wait();
      EXPECT_EQ(LaunchOnce(rank, Sum(2)), COTUNE_OK);
      rank.api().group_abort(rank.group());
      EXPECT_EQ(rank.Health(), COTUNE_ABORTED);
      aborted.set_value();
    });
  });
}

TEST(CallComparisonDeathTest, RanksThatDoNotAgreeWhetherToCompareMakeNoGroup) {
  IN_CHILD({
    FakeRank::LoadLibraries();
    JobForTest with;
    with.Set("check_calls", "1");
    RunRanks(2, [&](int r) {
      // Both have the store of one job, and a setting of their own.
      cotune_host_t host = with.host();
      if (r == 1) host.setting = [](void*, const char*) -> const char* { return nullptr; };
      FakeRank rank(host, "g", r, 2);
      EXPECT_EQ(rank.status(), COTUNE_INVALID_ARGUMENT);
      EXPECT_THAT(rank.message(), HasSubstr("check_calls is on for job rank 0 (rank 0 of the "
                                            "group) and off for job rank 1"));
    });
  });
}

TEST(CallComparisonDeathTest, AnotherValueOfTheSettingIsRefused) {
  IN_CHILD({
    FakeRank::LoadLibraries();
    JobForTest job;
    job.Set("check_calls", "sometimes");
    const FakeRank rank(job, 0);
    EXPECT_EQ(rank.status(), COTUNE_INVALID_ARGUMENT);
    EXPECT_THAT(rank.message(), HasSubstr("check_calls is 'sometimes'"));
  });
}

}  // namespace
}  // namespace cotune::nccl
