// One rank, or every rank, is killed, stopped or late in each step of a program's call, through the
// C API in real processes. The place of a fault is an event of the step: it begins, it reads the
// middle of its operand, it has ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "fmt/format.h"
#include "integration/capi/cotune.h"
#include "tests/multi_process/testing/c_api_ranks.h"
#include "tests/multi_process/testing/checked_program.h"
#include "tests/multi_process/testing/planned_fault.h"
#include "tests/multi_process/testing/rank_processes.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr int kRanks = 3;
// A multiple of 2 and 3, and so many that the middle of every operand has a page of its own.
constexpr uint64_t kRows = 768;
constexpr int kCallsBefore = 2;  // the fault is in the third of a queue of calls
constexpr int kCalls = 6;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Calls without a fault take longer, and the plain run has every moment of every step.
constexpr int64_t kShortCallNs = 10 * kSecondNs;
constexpr bool kHasOneMomentAStep = true;
#else
constexpr int64_t kShortCallNs = 2 * kSecondNs;
constexpr bool kHasOneMomentAStep = false;
#endif

struct Subject {
  const char* name;
  const char* text;
  int steps;
};

// The collectives depend on each other in the first program, which overwrites an input in its
// middle, and do not in the second.
constexpr Subject kSubjects[] = {
    {"sequence",
     "%x = input bf16 [R, 64]\n"
     "%gamma = input bf16 [1, 64] replicated\n"
     "%residual = input bf16 [R/n, 64]\n"
     "%half = mul %x, 0.5\n"
     "%share = reduce_scatter sum %half\n"
     "%stream = add %share, %residual\n"
     "%norm = rms_norm %stream, %gamma, eps=1e-6\n"
     "%all = all_gather %norm\n"
     "%y = relu %all\n"
     "return %y, %stream into %residual\n",
     5},
    {"pair",
     "%x = input f32 [R, 64]\n"
     "%w = input f32 [R, 64]\n"
     "%a = mul %x, 2\n"
     "%b = neg %w\n"
     "%sum = all_reduce sum %a\n"
     "%moved = all_to_all %b\n"
     "%y = add %sum, %moved\n"
     "return %y\n",
     4},
};

struct Place {
  const Subject* subject;
  int step;  // from 0
  Moment moment;
};

std::vector<Place> Places() {
  constexpr Moment kMoments[] = {Moment::kBefore, Moment::kWithin, Moment::kAfter};
  std::vector<Place> places;
  for (const Subject& subject : kSubjects) {
    for (int step = 0; step < subject.steps; ++step) {
      for (int moment = 0; moment < 3; ++moment) {
        if (kHasOneMomentAStep && moment != step % 3) continue;
        places.push_back({&subject, step, kMoments[moment]});
      }
    }
  }
  return places;
}

std::string NameOf(const Place& place) {
  static constexpr const char* kMoments[] = {"before", "within", "after"};
  return fmt::format("{}_{}_step_{}", place.subject->name, kMoments[static_cast<int>(place.moment)],
                     place.step + 1);
}

PlannedFault FaultAt(const Place& place, Action action) {
  return {kCallsBefore * place.subject->steps + place.step + 1, place.moment, action};
}

std::vector<size_t> Others(size_t victim) {
  std::vector<size_t> others;
  for (size_t rank = 0; rank < kRanks; ++rank) {
    if (rank != victim) others.push_back(rank);
  }
  return others;
}

class CApiProgramFaults : public CApiRanks {
 protected:
  CApiProgramFaults() { CopyPlugin("observed_host", observed_, "tests/multi_process"); }

  // Every rank of a new group calls until a call fails, and once more. A rank reports "right CALL",
  // "lost CODE ERROR", "later CODE ERROR", and "wrong ..." where a value or the number of steps is.
  void CallUntilLost(cotune_group* group, const Subject& subject, TestLink& link,
                     const PlannedFault* fault) const {
    const int rank = cotune_group_rank(group);
    CheckedProgram program(subject.text, kRows, rank, kRanks, 1);
    if (fault != nullptr) PlanFault(*fault, link);
    for (int call = 1; call <= kCalls; ++call) {
      const CheckedProgram::Outcome outcome = program.Call(group);
      if (!outcome.wrong.empty()) link.Report(fmt::format("wrong: {}", outcome.wrong));
      if (call == 1 && LaunchedSteps() != subject.steps) {
        link.Report(fmt::format("wrong: the program has {} steps", LaunchedSteps()));
      }
      if (outcome.result == COTUNE_SUCCESS) {
        link.Report(fmt::format("right {}", call));
        continue;
      }
      link.Report(fmt::format("lost {} {}", outcome.result, outcome.error));
      const CheckedProgram::Outcome later = program.Call(group);
      link.Report(fmt::format("later {} {}", later.result, later.error));
      return;
    }
  }

  // A new group of `world_size` ranks runs the program right: reports "anew right".
  void CallAnew(const Subject& subject, int rank, int world_size, TestLink& link) {
    socket_ += "2";
    call_timeout_ns_ = kLongCallNs;
    cotune_group* const group = Create(rank, world_size, link, observed_);
    if (group == nullptr) return;
    CheckedProgram program(subject.text, kRows, rank, world_size, 2);
    const std::string wrong = program.Run(group);
    link.Report("anew " + (wrong.empty() ? "right" : wrong));
    cotune_group_destroy(group);
  }

  // The ranks of one job; `faulty` has the fault. Those in `again` make a group anew.
  void StartJob(RankProcesses& ranks, const Place& place, Action action,
                const std::vector<size_t>& faulty, const std::vector<size_t>& again) {
    for (size_t rank = 0; rank < kRanks; ++rank) {
      const bool has_fault = std::find(faulty.begin(), faulty.end(), rank) != faulty.end();
      const auto new_rank = std::find(again.begin(), again.end(), rank) - again.begin();
      ranks.Start([this, &place, &again, action, rank, has_fault, new_rank](TestLink& link) {
        cotune_group* const group = Create(static_cast<int>(rank), kRanks, link, observed_);
        if (group == nullptr) return 1;
        const PlannedFault fault = FaultAt(place, action);
        if (reports_launches_ && !has_fault) ReportLaunches(link);
        CallUntilLost(group, *place.subject, link, has_fault ? &fault : nullptr);
        cotune_group_destroy(group);
        if (new_rank < std::ssize(again)) {
          CallAnew(*place.subject, static_cast<int>(new_rank), static_cast<int>(again.size()),
                   link);
        }
        return 0;
      });
    }
  }

  // Each of these ranks had right calls only, got an error that names `victim`, got it again, and
  // has run the program right in a group anew.
  static void ExpectLost(const RankProcesses& ranks, const std::vector<size_t>& survivors,
                         size_t victim) {
    for (const size_t rank : survivors) {
      SCOPED_TRACE(fmt::format("rank {}\n{}", rank, ranks.Transcript()));
      EXPECT_EQ(ranks.ExitOf(rank), 0);
      EXPECT_THAT(ranks.LinesOf(rank, "wrong"), IsEmpty());
      const std::string names_victim = fmt::format("rank {}", victim);
      ASSERT_THAT(ranks.LinesOf(rank, "lost "),
                  ElementsAre(AllOf(StartsWith("5 "), HasSubstr(names_victim))));
      EXPECT_THAT(ranks.LinesOf(rank, "later "), ranks.LinesOf(rank, "lost "));
      // Not before the call that had the fault, and soon behind it.
      const size_t right = ranks.LinesOf(rank, "right ").size();
      EXPECT_GE(right, size_t{kCallsBefore});
      EXPECT_LE(right, size_t{kCallsBefore} + 1);
      EXPECT_THAT(ranks.LinesOf(rank, "anew "), ElementsAre("right"));
    }
  }

  const std::string observed_ = folder_.path() + "/observed";
  bool reports_launches_ = false;
};

class AtEachPlace : public CApiProgramFaults, public ::testing::WithParamInterface<Place> {};

std::string PlaceName(const ::testing::TestParamInfo<Place>& info) { return NameOf(info.param); }

class OneRank : public CApiProgramFaults,
                public ::testing::WithParamInterface<std::tuple<Place, size_t>> {};

// Only what the ranks see of a death ends these calls: their own deadline is far away.
TEST_P(OneRank, IsKilled) {
  const auto [place, victim] = GetParam();
  RankProcesses ranks;
  const std::vector<size_t> survivors = Others(victim);
  StartJob(ranks, place, Action::kKill, {victim}, survivors);
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  EXPECT_EQ(ranks.ExitOf(victim), -SIGKILL) << ranks.Transcript();
  ExpectLost(ranks, survivors, victim);
}

TEST_P(OneRank, IsStopped) {
  const auto [place, victim] = GetParam();
  call_timeout_ns_ = kShortCallNs;
  RankProcesses ranks;
  const std::vector<size_t> survivors = Others(victim);
  StartJob(ranks, place, Action::kStop, {victim}, survivors);
  ASSERT_TRUE(ranks.WaitForStop(victim)) << ranks.Transcript();
  ASSERT_TRUE(ranks.WaitForEnd(survivors, kPatienceNs)) << ranks.Transcript();
  ExpectLost(ranks, survivors, victim);
}

INSTANTIATE_TEST_SUITE_P(AtEachPlace, OneRank,
                         ::testing::Combine(::testing::ValuesIn(Places()),
                                            ::testing::Values<size_t>(0, 1)),
                         [](const auto& info) {
                           return fmt::format("{}_of_rank_{}", NameOf(std::get<0>(info.param)),
                                              std::get<1>(info.param));
                         });

// The rank goes on when its peers have given up: it gets an error too, and all make a group anew.
void ExpectLateRankEnds(const RankProcesses& ranks, size_t victim) {
  SCOPED_TRACE(ranks.Transcript());
  EXPECT_EQ(ranks.ExitOf(victim), 0);
  EXPECT_THAT(ranks.LinesOf(victim, "wrong"), IsEmpty());
  ASSERT_THAT(ranks.LinesOf(victim, "lost "), SizeIs(1));
  EXPECT_THAT(ranks.LinesOf(victim, "later "), ranks.LinesOf(victim, "lost "));
  EXPECT_THAT(ranks.LinesOf(victim, "anew "), ElementsAre("right"));
}

TEST_P(AtEachPlace, ARankThatIsTooLateEndsLikeItsPeers) {
  constexpr size_t kVictim = 1;
  call_timeout_ns_ = kShortCallNs;
  RankProcesses ranks;
  const std::vector<size_t> all = {0, 1, 2};
  StartJob(ranks, GetParam(), Action::kAwaitWord, {kVictim}, all);
  for (const size_t rank : Others(kVictim)) {
    ASSERT_TRUE(ranks.WaitForLine(rank, "later ", kPatienceNs)) << ranks.Transcript();
  }
  ASSERT_TRUE(ranks.Release({kVictim}, "away", kPatienceNs)) << ranks.Transcript();
  ASSERT_TRUE(ranks.WaitForEnd(all, kPatienceNs)) << ranks.Transcript();
  ExpectLost(ranks, Others(kVictim), kVictim);
  ExpectLateRankEnds(ranks, kVictim);
}

TEST_P(AtEachPlace, ARankThatIsContinuedTooLateEndsLikeItsPeers) {
  constexpr size_t kVictim = 1;
  call_timeout_ns_ = kShortCallNs;
  RankProcesses ranks;
  const std::vector<size_t> all = {0, 1, 2};
  StartJob(ranks, GetParam(), Action::kStop, {kVictim}, all);
  ASSERT_TRUE(ranks.WaitForStop(kVictim)) << ranks.Transcript();
  for (const size_t rank : Others(kVictim)) {
    ASSERT_TRUE(ranks.WaitForLine(rank, "later ", kPatienceNs)) << ranks.Transcript();
  }
  ranks.Signal(kVictim, SIGCONT);
  ASSERT_TRUE(ranks.WaitForEnd(all, kPatienceNs)) << ranks.Transcript();
  ExpectLost(ranks, Others(kVictim), kVictim);
  ExpectLateRankEnds(ranks, kVictim);
}

// Late and then there again before any deadline: every call of every rank is right.
TEST_P(AtEachPlace, ARankThatIsContinuedInTimeCostsNothing) {
  constexpr size_t kVictim = 1;
  reports_launches_ = true;
  const Place& place = GetParam();
  RankProcesses ranks;
  StartJob(ranks, place, Action::kStop, {kVictim}, {});
  ASSERT_TRUE(ranks.WaitForStop(kVictim)) << ranks.Transcript();
  const std::string launched = fmt::format("launched {}", FaultAt(place, Action::kStop).step);
  for (const size_t rank : Others(kVictim)) {
    ASSERT_TRUE(ranks.WaitForLine(rank, launched, kPatienceNs)) << ranks.Transcript();
  }
  ranks.Signal(kVictim, SIGCONT);
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  for (size_t rank = 0; rank < kRanks; ++rank) {
    SCOPED_TRACE(ranks.Transcript());
    EXPECT_EQ(ranks.ExitOf(rank), 0);
    EXPECT_THAT(ranks.LinesOf(rank, "wrong"), IsEmpty());
    EXPECT_THAT(ranks.LinesOf(rank, "right "), SizeIs(kCalls));
  }
}

// A rank that waits for one that has died first may get an error before it comes to its own end.
TEST_P(AtEachPlace, AllRanksThatAreKilledLeaveNothingBehind) {
  const std::vector<size_t> all = {0, 1, 2};
  RankProcesses ranks;
  StartJob(ranks, GetParam(), Action::kKill, all, {});
  ASSERT_TRUE(ranks.WaitForEnd(all, kPatienceNs)) << ranks.Transcript();
  size_t killed = 0;
  for (const size_t rank : all) {
    EXPECT_THAT(ranks.LinesOf(rank, "wrong"), IsEmpty()) << ranks.Transcript();
    if (ranks.ExitOf(rank) == -SIGKILL) {
      ++killed;
    } else {
      EXPECT_THAT(ranks.LinesOf(rank, "lost "), ElementsAre(StartsWith("5 ")))
          << ranks.Transcript();
    }
  }
  EXPECT_GE(killed, 1u) << ranks.Transcript();
  RankProcesses next;
  for (const size_t rank : all) {
    next.Start([this, rank](TestLink& link) {
      CallAnew(*GetParam().subject, static_cast<int>(rank), kRanks, link);
      return 0;
    });
  }
  ASSERT_TRUE(next.WaitForEnd(all, kPatienceNs)) << next.Transcript();
  for (const size_t rank : all) {
    EXPECT_THAT(next.LinesOf(rank, "anew "), ElementsAre("right")) << next.Transcript();
  }
}

// Nobody is in time, and nobody is to blame: what succeeds is right, and the group ends on all
// ranks or on none.
TEST_P(AtEachPlace, AllRanksThatAreTooLateEndAlike) {
  call_timeout_ns_ = kShortCallNs / 2;
  const std::vector<size_t> all = {0, 1, 2};
  RankProcesses ranks;
  StartJob(ranks, GetParam(), Action::kAwaitDeadline, all, all);
  ASSERT_TRUE(ranks.WaitForEnd(all, kPatienceNs)) << ranks.Transcript();
  SCOPED_TRACE(ranks.Transcript());
  const bool is_lost = !ranks.LinesOf(0, "lost ").empty();
  for (const size_t rank : all) {
    EXPECT_EQ(ranks.ExitOf(rank), 0);
    EXPECT_THAT(ranks.LinesOf(rank, "wrong"), IsEmpty());
    EXPECT_EQ(!ranks.LinesOf(rank, "lost ").empty(), is_lost);
    EXPECT_THAT(ranks.LinesOf(rank, "later "), ranks.LinesOf(rank, "lost "));
    EXPECT_THAT(ranks.LinesOf(rank, "anew "), ElementsAre("right"));
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, AtEachPlace, ::testing::ValuesIn(Places()), PlaceName);

}  // namespace
}  // namespace cotune
