// Calls by copy engines when a rank comes late, a host aborts, or ranks make different calls: no
// rank takes wrong data for right, all fail, and what is queued does not wait once for each call.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugins/cuda/cpu_runner/copy_engine_call.h"
#include "plugins/cuda/cpu_runner/fiber_scheduler.h"
#include "plugins/cuda/cpu_runner/kernel_call.h"
#include "plugins/cuda/cpu_runner/sdk_problem.h"

namespace cotune::cuda::cpu {
namespace {

using sdk::Collective;

// On the runner's clock, several times what the calls of a test take when no rank is late.
constexpr uint64_t kTimeoutNs = 1'000'000;
// A deadline that no call waits for unless something is wrong.
constexpr uint64_t kFarNs = 50 * kTimeoutNs;
constexpr size_t kQueued = 3;

// Ranks that have failed have their buffers back while copies of their peers still read them. That
// is how it has to be: those peers fail, too. TSan would report each such copy.
#if defined(__SANITIZE_THREAD__)
constexpr bool kCanRace = false;
#else
constexpr bool kCanRace = true;
#endif

// A call of any class.
struct AnyCall {
  std::function<void(RanksOnCpu& ranks, int rank)> run;
  CallRecord record;
  // Empty for calls that are not made by copy engines.
  std::function<void(BetweenLaunches)> set_between_launches = {};
  std::function<std::string(int rank)> difference_at = {};
  std::function<bool(int rank)> is_untouched_before = {};
  std::function<bool(int rank)> is_untouched_after = {};
};

template <typename T>
AnyCall AnyOf(std::shared_ptr<T> call) {
  return {.run = [call](RanksOnCpu& ranks, int rank) { call->Run(ranks, rank); },
          .record = call->Record(),
          .set_between_launches =
              [call](BetweenLaunches f) { call->set_between_launches(std::move(f)); },
          .difference_at = [call](int rank) { return call->DifferenceAt(rank); },
          .is_untouched_before = [call](int rank) { return call->IsUntouchedBefore(rank); },
          .is_untouched_after = [call](int rank) { return call->IsUntouchedAfter(rank); }};
}

AnyCall Moving(Collective collective, int world_size, uint64_t count, int root, bool in_place,
               unsigned int salt) {
  sdk::Problem problem;
  problem.collective = collective;
  problem.type = sdk::ElementType::kU8;
  problem.count = count;
  problem.world_size = world_size;
  problem.root = root;
  problem.in_place = in_place;
  problem.is_symmetric = true;
  return AnyOf(std::make_shared<MovingCall>(problem, salt));
}

const KernelVariant* AddingKernel(std::string_view type, std::string_view reduction,
                                  int world_size) {
  for (const KernelVariant& v : kCopyEngineVariants) {
    const bool fits = v.type == type && v.reduction == reduction && v.world_size == world_size;
    if (v.collective == "ALL_REDUCE" && fits) return &v;
  }
  ADD_FAILURE() << "no kernel adds up " << type << " by " << reduction;
  std::abort();
}

AnyCall Adding(const KernelVariant& kernel, uint64_t count, unsigned int salt) {
  return AnyOf(std::make_shared<AddingCall>(kernel, count, /*misalignment=*/0, salt));
}

AnyCall Kernel(const KernelVariant& kernel, uint64_t count) {
  auto call = std::make_shared<Call>(kernel, CallShape{.count = count});
  return {.run = [call](RanksOnCpu& ranks, int rank) { call->Launch(ranks, rank); },
          .record = call->Record()};
}

// ---- Ranks that are late ----

// A call with places where a stream may stand still; data differs by salt.
struct Kind {
  std::string name;
  size_t places;  // between launches
  std::function<AnyCall(unsigned int salt)> make;
};

std::vector<Kind> KindsFor(int world) {
  std::vector<Kind> kinds;
  for (const Collective collective :
       {Collective::kAllGather, Collective::kAllToAll, Collective::kBroadcast}) {
    for (const bool in_place : {false, true}) {
      if (in_place && collective == Collective::kAllToAll) continue;
      const bool is_broadcast = collective == Collective::kBroadcast;
      // A broadcast out of place has segments, and with 3 ranks a phase for the others.
      const size_t segments = in_place ? 1 : world == 2 ? 6 : 3;
      const size_t phases = is_broadcast ? segments + (world > 2 ? 1 : 0) : 1;
      const std::string name =
          std::string(WordOf(collective)) + (in_place ? " in place, world " : ", world ");
      kinds.push_back({name + std::to_string(world), phases, [=](unsigned int salt) {
                         return Moving(collective, world, is_broadcast ? 20'001 : 2001, world - 1,
                                       in_place, salt);
                       }});
    }
  }
  const KernelVariant* kernel = AddingKernel("F32", "SUM", world);
  kinds.push_back({NameOf(*kernel), kCopySegments + 1,
                   [=](unsigned int salt) { return Adding(*kernel, 5001, salt); }});
  return kinds;
}

std::vector<AnyCall> CallsOf(const Kind& kind, size_t calls) {
  std::vector<AnyCall> made;
  for (size_t i = 0; i < calls; ++i) made.push_back(kind.make(static_cast<unsigned int>(i) + 1));
  return made;
}

struct Lateness {
  int rank = 0;
  size_t call = 0;              // the call that it comes late to
  std::optional<size_t> place;  // within that call; nullopt: in front of it
  uint64_t delay_ns = 0;
};

// Every rank makes all calls, as a stream or a graph does that nobody looks at in between. Returns
// for each rank how many of them had ended without a failure of that rank.
std::vector<size_t> MakeCalls(RanksOnCpu& ranks, std::vector<AnyCall>& calls, const Lateness& late,
                              uint64_t seed) {
  if (late.place) {
    calls[late.call].set_between_launches([late](int rank, size_t place) {
      if (rank == late.rank && place == *late.place) RanksOnCpu::Delay(late.delay_ns);
    });
  }
  std::vector<size_t> succeeded(static_cast<size_t>(ranks.world_size()), 0);
  const bool ended = ranks.Run(
      [&](int rank) {
        for (size_t i = 0; i < calls.size(); ++i) {
          if (rank == late.rank && i == late.call && !late.place) {
            RanksOnCpu::Delay(late.delay_ns);
            EXPECT_TRUE(calls[i].is_untouched_before(rank)) << "call " << i << " of rank " << rank;
          }
          calls[i].run(ranks, rank);
          if (!ranks.HasFailed(rank)) ++succeeded[static_cast<size_t>(rank)];
        }
      },
      seed);
  EXPECT_TRUE(ended);
  return succeeded;
}

void ExpectRightWhereSucceeded(const std::vector<AnyCall>& calls,
                               const std::vector<size_t>& succeeded) {
  for (size_t r = 0; r < succeeded.size(); ++r) {
    const int rank = static_cast<int>(r);
    for (size_t i = 0; i < calls.size(); ++i) {
      if (i < succeeded[r]) {
        ASSERT_EQ(calls[i].difference_at(rank), "") << "call " << i;
      } else {
        ASSERT_TRUE(calls[i].is_untouched_after(rank)) << "call " << i << " of rank " << rank;
      }
    }
  }
}

// The group has failed because of rank `late`: every call ends at once, and the record stays.
void ExpectMoreCallsFailAtOnce(RanksOnCpu& ranks, const Kind& kind, int late) {
  std::vector<AnyCall> more = CallsOf(kind, kQueued);
  std::vector<uint64_t> took_ns(static_cast<size_t>(ranks.world_size()), 0);
  ASSERT_TRUE(ranks.Run(
      [&](int rank) {
        const uint64_t begin_ns = FiberScheduler::NowNs();
        for (const AnyCall& call : more) call.run(ranks, rank);
        took_ns[static_cast<size_t>(rank)] = FiberScheduler::NowNs() - begin_ns;
      },
      99));
  for (int rank = 0; rank < ranks.world_size(); ++rank) {
    EXPECT_LT(took_ns[static_cast<size_t>(rank)], kTimeoutNs) << "rank " << rank;
    ASSERT_TRUE(ranks.HasFailed(rank));
    const unsigned int poison = ranks.failure(rank).poison;
    EXPECT_EQ(PoisonKind(poison), kTimeout) << "rank " << rank;
    EXPECT_EQ(PoisonPeer(poison), late) << "rank " << rank;
    EXPECT_NE(PoisonReporter(poison), late) << "rank " << rank;
  }
}

TEST(CopyEngineFaultsTest, NoCallSucceedsWithWrongDataWhenARankIsLate) {
  size_t too_late = 0;
  size_t in_time = 0;
  size_t places = 0;
  for (const int world : {2, 3}) {
    for (const Kind& kind : KindsFor(world)) {
      places += kind.places + 1;
      for (uint64_t seed = 0; seed < 9 * (kind.places + 1); ++seed) {
        const uint64_t halves = 1 + 2 * (seed % 3);  // 0.5, 1.5 and 2.5 timeouts
        const bool is_too_late = halves > 2;
        if (is_too_late && !kCanRace) continue;
        const size_t place = seed / 9;
        // Each rank is late by each time.
        const Lateness late{.rank = static_cast<int>(seed + seed / 3 + place) % world,
                            .call = seed / 3 % kQueued,
                            .place = place == 0 ? std::nullopt : std::optional(place - 1),
                            .delay_ns = kTimeoutNs / 2 * halves};
        SCOPED_TRACE(kind.name + " seed " + std::to_string(seed));
        RanksOnCpu ranks(world);
        ranks.set_timeout_ns(kTimeoutNs);
        std::vector<AnyCall> calls = CallsOf(kind, kQueued);
        const std::vector<size_t> succeeded = MakeCalls(ranks, calls, late, seed);
        ASSERT_NO_FATAL_FAILURE(ExpectRightWhereSucceeded(calls, succeeded));
        const size_t right = is_too_late ? late.call : kQueued;
        ASSERT_EQ(succeeded, std::vector<size_t>(succeeded.size(), right));
        ++(is_too_late ? too_late : in_time);
        if (!is_too_late) continue;
        ASSERT_NO_FATAL_FAILURE(ExpectMoreCallsFailAtOnce(ranks, kind, late.rank));
      }
    }
  }
  EXPECT_EQ(in_time, 3 * places);
  EXPECT_EQ(too_late, kCanRace ? 6 * places : 0);
}

TEST(CopyEngineFaultsTest, QueuedCallsEndInOneTimeout) {
  if (!kCanRace) GTEST_SKIP() << "copies race behind a barrier that gave up";
  constexpr size_t kMany = 20;
  for (const Kind& kind : KindsFor(3)) {
    RanksOnCpu ranks(3);
    ranks.set_timeout_ns(kTimeoutNs);
    std::vector<AnyCall> calls = CallsOf(kind, kMany);
    std::vector<uint64_t> took_ns(3, 0);
    ASSERT_TRUE(ranks.Run(
        [&](int rank) {
          const uint64_t begin_ns = FiberScheduler::NowNs();
          for (const AnyCall& call : calls) {
            if (rank != 1) call.run(ranks, rank);
          }
          took_ns[static_cast<size_t>(rank)] = FiberScheduler::NowNs() - begin_ns;
        },
        4));
    EXPECT_LT(std::max(took_ns[0], took_ns[2]), 2 * kTimeoutNs) << kind.name;
    for (const int rank : {0, 2}) {
      EXPECT_EQ(PoisonPeer(ranks.failure(rank).poison), 1) << kind.name << " rank " << rank;
    }
    for (const AnyCall& call : calls) EXPECT_TRUE(call.is_untouched_before(1)) << kind.name;
  }
}

// The host of one rank aborts at any moment of the queued calls.
TEST(CopyEngineFaultsTest, NoCallSucceedsWithWrongDataWhenAHostAborts) {
  if (!kCanRace) GTEST_SKIP() << "copies race behind a barrier that gave up";
  size_t failed = 0;
  size_t succeeded_calls = 0;
  for (const Kind& kind : KindsFor(3)) {
    for (uint64_t seed = 0; seed < 90; ++seed) {
      SCOPED_TRACE(kind.name + " seed " + std::to_string(seed));
      RanksOnCpu ranks(3);
      ranks.set_timeout_ns(kFarNs);
      const int aborted = static_cast<int>(seed) % 3;
      const int late = (aborted + 1) % 3;
      std::vector<AnyCall> calls = CallsOf(kind, kQueued);
      std::vector<size_t> succeeded(3, 0);
      ASSERT_TRUE(ranks.Run(
          [&](int rank) {
            for (size_t i = 0; i < calls.size(); ++i) {
              if (rank == late && i == seed / 3 % kQueued) {
                RanksOnCpu::Delay(kTimeoutNs / 30 * (seed / 9));
                ranks.Abort(aborted);
                RanksOnCpu::Delay(kTimeoutNs / 4000 * (seed / 3));
              }
              calls[i].run(ranks, rank);
              if (!ranks.HasFailed(rank)) ++succeeded[static_cast<size_t>(rank)];
            }
          },
          seed));
      ASSERT_NO_FATAL_FAILURE(ExpectRightWhereSucceeded(calls, succeeded));
      for (int rank = 0; rank < 3; ++rank) {
        succeeded_calls += succeeded[static_cast<size_t>(rank)];
        if (!ranks.HasFailed(rank)) continue;
        ++failed;
        EXPECT_EQ(PoisonKind(ranks.failure(rank).poison), kAborted);
        EXPECT_EQ(PoisonReporter(ranks.failure(rank).poison), aborted);
      }
    }
  }
  EXPECT_GT(failed, 0u);
  EXPECT_GT(succeeded_calls, 0u);
}

// ---- Ranks that make different calls ----

class CopyEngineMismatchTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!kCanRace) GTEST_SKIP() << "copies race behind a barrier that gave up";
  }
};

// After a call that all make, the odd rank makes another one than the others. Nobody waits for the
// deadline. Then all make one more.
void ExpectAllFail(const AnyCall& before, const AnyCall& call, const AnyCall& other, int world,
                   int odd) {
  RanksOnCpu ranks(world);
  ranks.set_timeout_ns(kFarNs);
  ASSERT_TRUE(ranks.Run([&](int rank) { before.run(ranks, rank); }, 1));
  for (int rank = 0; rank < world; ++rank) ASSERT_FALSE(ranks.HasFailed(rank)) << "rank " << rank;
  ASSERT_TRUE(ranks.Run(
      [&](int rank) {
        (rank == odd ? other : call).run(ranks, rank);
        EXPECT_TRUE(ranks.HasFailed(rank)) << "rank " << rank;
        before.run(ranks, rank);
      },
      static_cast<uint64_t>(odd) + 1));
  for (int rank = 0; rank < world; ++rank) {
    const FailureRecord& failure = ranks.failure(rank);
    ASSERT_EQ(PoisonKind(failure.poison), kMismatch) << "rank " << rank;
    const bool is_odd_reporter = PoisonReporter(failure.poison) == odd;
    EXPECT_NE(is_odd_reporter, PoisonPeer(failure.poison) == odd) << "rank " << rank;
    EXPECT_TRUE(IsSameCall(failure.own_call, (rank == odd ? other : call).record)) << rank;
    // A rank that another one has told of it may not have heard of the other call itself.
    const bool is_told = PoisonReporter(failure.poison) != rank;
    if (is_told && IsSameCall(failure.other_call, failure.own_call)) continue;
    EXPECT_TRUE(IsSameCall(failure.other_call, (rank == odd ? call : other).record)) << rank;
    EXPECT_EQ(failure.other == odd, rank != odd) << "rank " << rank;
  }
}

using MakeCall = std::function<AnyCall()>;

// Either of two calls is that of the odd rank, which is the first one or the last one.
void ExpectTheyDiffer(const MakeCall& one, const MakeCall& other, int world,
                      const std::string& what) {
  for (const int odd : {0, world - 1}) {
    SCOPED_TRACE(what + ", odd rank " + std::to_string(odd));
    ASSERT_NO_FATAL_FAILURE(ExpectAllFail(one(), one(), other(), world, odd));
    ASSERT_NO_FATAL_FAILURE(ExpectAllFail(other(), other(), one(), world, odd));
  }
}

MakeCall MovingOf(Collective collective, int world, uint64_t count = 2001, int root = 0) {
  return [=] { return Moving(collective, world, count, root, /*in_place=*/false, 1); };
}

MakeCall AddingOf(std::string_view type, std::string_view reduction, int world,
                  uint64_t count = 5001) {
  const KernelVariant* kernel = AddingKernel(type, reduction, world);
  return [=] { return Adding(*kernel, count, 1); };
}

constexpr Collective kMoves[] = {Collective::kAllGather, Collective::kAllToAll,
                                 Collective::kBroadcast};

TEST_F(CopyEngineMismatchTest, AnotherCountIsFound) {
  for (const int world : {2, 3}) {
    for (const Collective collective : kMoves) {
      ASSERT_NO_FATAL_FAILURE(ExpectTheyDiffer(MovingOf(collective, world),
                                               MovingOf(collective, world, 4002), world,
                                               std::string(WordOf(collective))));
    }
    // With 100 elements copy engines have nothing to do.
    for (const uint64_t count : {100, 10'002}) {
      ASSERT_NO_FATAL_FAILURE(ExpectTheyDiffer(AddingOf("F32", "SUM", world),
                                               AddingOf("F32", "SUM", world, count), world,
                                               "ALL_REDUCE"));
    }
  }
}

TEST_F(CopyEngineMismatchTest, AnotherRootIsFound) {
  for (const int world : {2, 3}) {
    ASSERT_NO_FATAL_FAILURE(
        ExpectTheyDiffer(MovingOf(Collective::kBroadcast, world, 20'001, 0),
                         MovingOf(Collective::kBroadcast, world, 20'001, world - 1), world,
                         "BROADCAST, world " + std::to_string(world)));
  }
}

TEST_F(CopyEngineMismatchTest, AnotherReductionOrTypeIsFound) {
  const MakeCall sum = AddingOf("F32", "SUM", 3);
  ASSERT_NO_FATAL_FAILURE(ExpectTheyDiffer(sum, AddingOf("F32", "MAX", 3), 3, "MAX"));
  ASSERT_NO_FATAL_FAILURE(ExpectTheyDiffer(sum, AddingOf("F64", "SUM", 3), 3, "F64"));
}

// They have other numbers of launches, too.
TEST_F(CopyEngineMismatchTest, AnotherCollectiveIsFound) {
  for (const int world : {2, 3}) {
    std::vector<MakeCall> calls = {AddingOf("F32", "SUM", world)};
    for (const Collective collective : kMoves) calls.push_back(MovingOf(collective, world));
    for (size_t i = 0; i < calls.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        ASSERT_NO_FATAL_FAILURE(
            ExpectTheyDiffer(calls[i], calls[j], world,
                             "collectives " + std::to_string(i) + " and " + std::to_string(j)));
      }
    }
  }
}

// The same collective by kernels alone, of every kind.
TEST_F(CopyEngineMismatchTest, AnotherChoiceIsFound) {
  size_t pairs = 0;
  for (const int world : {2, 3}) {
    for (const Collective collective : kMoves) {
      for (const KernelVariant* v :
           OneOfEachKind({.collective = WordOf(collective), .world_size = world})) {
        ASSERT_NO_FATAL_FAILURE(ExpectTheyDiffer(
            MovingOf(collective, world), [&] { return Kernel(*v, 500); }, world, NameOf(*v)));
        ++pairs;
      }
    }
    for (const KernelVariant* v :
         OneOfEachKind({.collective = "ALL_REDUCE", .world_size = world})) {
      ASSERT_NO_FATAL_FAILURE(ExpectTheyDiffer(
          AddingOf("F32", "SUM", world), [&] { return Kernel(*v, 500); }, world, NameOf(*v)));
      ++pairs;
    }
  }
  EXPECT_GE(pairs, 30u);
}

}  // namespace
}  // namespace cotune::cuda::cpu
