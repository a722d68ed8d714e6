// Thousands of schedules of whole jobs, with the real machines. A failing seed is printed and
// replays.
#include "sync/simulated/simulated_job.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "sync/wire/limits.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMillisecondNs = 1'000'000;
constexpr int64_t kDeadlineNs = 2'000 * kMillisecondNs;

enum class Table { kNone, kNew, kDefault, kStopped };

// A rank's reaction to the end of an agreement. The right one stops when it was lost; a wrong one
// is tried below.
using Policy = std::function<Table(const Result<FramePtr>&)>;

Table StopWhenLost(const Result<FramePtr>& result) {
  if (!result) return Table::kStopped;
  return (*result)->decision().ruling() == wire::RULING_GO ? Table::kNew : Table::kDefault;
}

Table FallBackWhenLost(const Result<FramePtr>& result) {
  return result ? StopWhenLost(result) : Table::kDefault;
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed * 0x9e3779b97f4a7c15ull + 1) {}
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(bound));
  }
  bool OneIn(int64_t n) { return Below(n) == 0; }

 private:
  std::mt19937_64 random_;
};

SimulatedFault RandomFault(Dice& dice, int world_size, int64_t until_ns) {
  SimulatedFault fault;
  fault.kind = static_cast<SimulatedFault::Kind>(dice.Below(4));
  fault.rank = static_cast<int>(dice.Below(world_size));
  fault.at_ns = dice.Below(until_ns);
  fault.length_ns = dice.Below(3 * kDeadlineNs);
  return fault;
}

// One agreement after the rendezvous, with delays up to beyond the deadline, and up to three faults
// around it.
SimulatedJobOptions AgreementSchedule(uint64_t seed) {
  Dice dice(seed);
  SimulatedJobOptions options;
  options.seed = seed;
  options.world_size = 2 + static_cast<int>(seed % 4);
  options.delay_max_ns = dice.OneIn(4) ? kDeadlineNs : 20 * kMillisecondNs;
  for (int rank = 0; rank < options.world_size; ++rank) {
    options.start_ns.push_back(dice.Below(10 * kMillisecondNs));
    SimulatedCall agree;
    agree.kind = wire::CALL_AGREE;
    agree.deadline_ns = kDeadlineNs;
    agree.think_ns = dice.Below(5 * kMillisecondNs);
    agree.yes = !dice.OneIn(12);
    agree.vote_think_ns = dice.OneIn(10) ? dice.Below(2 * kDeadlineNs) : dice.Below(kMillisecondNs);
    options.calls.push_back({agree});
  }
  const int64_t faults = dice.Below(4);
  for (int64_t i = 0; i < faults; ++i) {
    // Most of an undisturbed agreement happens in the first 60 ms.
    options.faults.push_back(RandomFault(dice, options.world_size, 60 * kMillisecondNs));
  }
  return options;
}

// Runs the job. What is wrong with it; empty when nothing is.
std::string CheckAgreement(SimulatedJob& job, const SimulatedJobOptions& options,
                           const Policy& policy) {
  if (!job.Run()) return "a rank never ended";
  std::set<Table> tables;
  for (int rank = 0; rank < options.world_size; ++rank) {
    for (const SimulatedOutcome& outcome : job.outcomes(rank)) {
      // A proposal that comes at the end of the verdict's time makes the vote a call of its own.
      const int64_t grace_ns =
          outcome.call.vote_think_ns > 0 ? 2 * kVerdictGraceNs : kVerdictGraceNs;
      const int64_t late_ns = outcome.ended_ns - outcome.began_ns - outcome.call.deadline_ns -
                              grace_ns - job.paused_ns(rank) - outcome.call.vote_think_ns;
      if (late_ns > 0) return fmt::format("rank {} heard {} ns too late", rank, late_ns);
      if (!outcome.result && (outcome.result.error().code != ErrorCode::kRankLost ||
                              outcome.result.error().ranks.empty())) {
        return "an error names no rank: " + outcome.result.error().ToText();
      }
      if (outcome.call.kind != wire::CALL_AGREE) continue;
      const Table table = policy(outcome.result);
      if (table != Table::kStopped) tables.insert(table);
      if (table != Table::kNew) continue;
      if (outcome.recorded_ranks != options.world_size) {
        return fmt::format("rank {} uses the table, only {} ranks have it", rank,
                           outcome.recorded_ranks);
      }
      for (const auto& calls : options.calls) {
        if (!calls[0].yes) return "a table is used that a rank voted against";
      }
    }
  }
  return tables.size() > 1 ? "two ranks have different tables" : "";
}

// Without faults and with time enough, what must come out; nullopt when much may.
std::optional<Table> ExpectedTable(const SimulatedJobOptions& options) {
  if (!options.faults.empty() || options.delay_max_ns >= kDeadlineNs / 10) return std::nullopt;
  Table expected = Table::kNew;
  for (const auto& calls : options.calls) {
    if (calls[0].vote_think_ns > kDeadlineNs / 10) return std::nullopt;
    if (!calls[0].yes) expected = Table::kDefault;
  }
  return expected;
}

TEST(SimulatedAgreement, TenThousandSchedulesNeverEndWithDifferentTables) {
  int committed = 0;
  int declined = 0;
  int stopped = 0;
  int undisturbed = 0;
  for (uint64_t seed = 1; seed <= 10'000; ++seed) {
    const SimulatedJobOptions options = AgreementSchedule(seed);
    SimulatedJob job(options);
    ASSERT_EQ(CheckAgreement(job, options, StopWhenLost), "") << "seed " << seed;
    for (int rank = 0; rank < options.world_size; ++rank) {
      if (job.outcomes(rank).size() < 2) continue;
      const Table table = StopWhenLost(job.outcomes(rank)[1].result);
      ASSERT_EQ(ExpectedTable(options).value_or(table), table) << "seed " << seed;
      committed += table == Table::kNew ? 1 : 0;
      declined += table == Table::kDefault ? 1 : 0;
      stopped += table == Table::kStopped ? 1 : 0;
    }
    undisturbed += ExpectedTable(options).has_value() ? 1 : 0;
  }
  // Every ending is reached often, so the schedules are not vacuous.
  EXPECT_GT(committed, 1000);
  EXPECT_GT(declined, 1000);
  EXPECT_GT(stopped, 1000);
  EXPECT_GT(undisturbed, 500);
}

// The number of schedules until the checker objects; nullopt when it never does.
std::optional<uint64_t> FirstCaught(const Policy& policy,
                                    const decltype(SimulatedJobOptions::tamper)& tamper,
                                    std::string* why) {
  for (uint64_t seed = 1; seed <= 10'000; ++seed) {
    SimulatedJobOptions options = AgreementSchedule(seed);
    options.tamper = tamper;
    SimulatedJob job(options);
    *why = CheckAgreement(job, options, policy);
    if (!why->empty()) return seed;
  }
  return std::nullopt;
}

TEST(SimulatedAgreement, CheckerCatchesARankThatFallsBackAfterYes) {
  std::string why;
  const auto seed = FirstCaught(FallBackWhenLost, nullptr, &why);
  ASSERT_TRUE(seed.has_value());
  EXPECT_EQ(why, "two ranks have different tables") << "seed " << *seed;
}

TEST(SimulatedAgreement, CheckerCatchesUseAtCommitInsteadOfGo) {
  std::string why;
  const auto use_at_commit = [](int, bool, const FramePtr& frame) {
    std::vector<FramePtr> frames = {frame};
    if (frame->has_decision() && frame->decision().ruling() == wire::RULING_COMMIT) {
      auto go = std::make_shared<wire::Frame>(*frame);
      go->mutable_decision()->set_ruling(wire::RULING_GO);
      frames.push_back(std::move(go));
    }
    return frames;
  };
  const auto seed = FirstCaught(StopWhenLost, use_at_commit, &why);
  ASSERT_TRUE(seed.has_value());
  EXPECT_THAT(why, HasSubstr("uses the table, only")) << "seed " << *seed;
}

// The second line of defence: a rank that voted NO refuses a COMMIT, so no GO can follow.
TEST(SimulatedAgreement, ANoThatIsTakenForAYesCommitsNothing) {
  std::string why;
  const auto everybody_agrees = [](int, bool, const FramePtr& frame) {
    if (!frame->has_vote()) return std::vector<FramePtr>{frame};
    auto yes = std::make_shared<wire::Frame>(*frame);
    yes->mutable_vote()->set_yes(true);
    return std::vector<FramePtr>{std::move(yes)};
  };
  const auto seed = FirstCaught(StopWhenLost, everybody_agrees, &why);
  EXPECT_FALSE(seed.has_value()) << "seed " << *seed << ": " << why;
}

TEST(SimulatedJob, SameSeedReplaysBitByBitAndAnotherDoesNot) {
  int others = 0;
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SimulatedJobOptions options = AgreementSchedule(seed);
    options.keep_trace = true;
    SimulatedJob first(options);
    SimulatedJob second(options);
    first.Run();
    second.Run();
    ASSERT_GT(first.trace().size(), 4u);
    ASSERT_EQ(first.trace(), second.trace()) << "seed " << seed;
    options.seed = seed + 1;
    SimulatedJob other(options);
    other.Run();
    others += first.trace() != other.trace() ? 1 : 0;
  }
  EXPECT_GT(others, 40);  // some jobs fail before a delay makes a difference
}

// Steps and pre-syncs in one order on all ranks, with think times that now and then miss a window.
SimulatedJobOptions CallsSchedule(uint64_t seed, bool with_faults) {
  Dice dice(seed);
  SimulatedJobOptions options;
  options.seed = seed;
  options.world_size = 2 + static_cast<int>(seed % 4);
  options.delay_max_ns = 20 * kMillisecondNs;
  options.calls.resize(static_cast<size_t>(options.world_size));
  const int64_t calls = 2 + dice.Below(6);
  for (int64_t i = 0; i < calls; ++i) {
    const bool step = dice.OneIn(2);
    for (auto& mine : options.calls) {
      SimulatedCall call;
      call.kind = step ? wire::CALL_STEP : wire::CALL_PRE_SYNC;
      call.name = step ? fmt::format("step {}", i) : "";
      call.deadline_ns = kDeadlineNs;
      call.window_ns = 100 * kMillisecondNs;
      call.think_ns = dice.Below(dice.OneIn(6) ? 300 * kMillisecondNs : 20 * kMillisecondNs);
      mine.push_back(call);
    }
  }
  for (int rank = 0; rank < options.world_size; ++rank) {
    options.start_ns.push_back(dice.Below(10 * kMillisecondNs));
  }
  for (int64_t i = with_faults ? dice.Below(3) : 0; i > 0; --i) {
    options.faults.push_back(RandomFault(dice, options.world_size, 500 * kMillisecondNs));
  }
  return options;
}

TEST(SimulatedCalls, WithoutFaultsEveryRankHearsTheSame) {
  int missed = 0;
  for (uint64_t seed = 1; seed <= 1'000; ++seed) {
    const SimulatedJobOptions options = CallsSchedule(seed, false);
    SimulatedJob job(options);
    ASSERT_TRUE(job.Run()) << "seed " << seed;
    const auto& expected = job.outcomes(0);
    for (int rank = 0; rank < options.world_size; ++rank) {
      const auto& outcomes = job.outcomes(rank);
      ASSERT_EQ(outcomes.size(), options.calls[0].size() + 1) << "seed " << seed;
      for (size_t i = 0; i < outcomes.size(); ++i) {
        ASSERT_TRUE(outcomes[i].result.has_value())
            << "seed " << seed << ": " << outcomes[i].result.error().ToText();
        const wire::Release& release = (*outcomes[i].result)->release();
        const wire::Release& other = (*expected[i].result)->release();
        ASSERT_EQ(release.met(), other.met()) << "seed " << seed;
        ASSERT_TRUE(std::equal(release.late_ranks().begin(), release.late_ranks().end(),
                               other.late_ranks().begin(), other.late_ranks().end()))
            << "seed " << seed;
        ASSERT_EQ(release.met(), release.late_ranks().empty()) << "seed " << seed;
        missed += release.met() ? 0 : 1;
      }
    }
  }
  EXPECT_GT(missed, 100);
}

TEST(SimulatedClocks, RanksWhoseClocksDisagreeKnowTheTimeOfTheJob) {
  int64_t largest_ns = 0;
  for (uint64_t seed = 1; seed <= 1'000; ++seed) {
    const SimulatedJobOptions options = CallsSchedule(seed, false);
    SimulatedJob job(options);
    ASSERT_TRUE(job.Run()) << "seed " << seed;
    for (int rank = 0; rank < options.world_size; ++rank) {
      for (const SimulatedOutcome& outcome : job.outcomes(rank)) {
        ASSERT_LE(std::abs(outcome.elapsed_error_ns), outcome.elapsed_bound_ns) << "seed " << seed;
        // The join waits for the last rank, and calls for those that think; 0.1 ms for clocks that
        // drift meanwhile.
        ASSERT_LE(outcome.elapsed_bound_ns, options.delay_max_ns + kMillisecondNs / 10)
            << "seed " << seed;
        largest_ns = std::max(largest_ns, std::abs(outcome.elapsed_error_ns));
      }
    }
  }
  EXPECT_GT(largest_ns, kMillisecondNs) << "the network has delayed nothing";
}

// The coordinator gives a deadline as much time as the rank that set it has left.
TEST(SimulatedClocks, AMissingRankIsFoundAtTheDeadlineOfWhoWaits) {
  for (uint64_t seed = 1; seed <= 1'000; ++seed) {
    SimulatedJobOptions options = CallsSchedule(seed, false);
    for (auto& calls : options.calls) {
      calls.resize(1);
      calls[0].kind = wire::CALL_STEP;
      calls[0].name = "waits";
      calls[0].think_ns = 0;
    }
    const auto missing = static_cast<size_t>(options.world_size - 1);
    options.calls[missing][0].think_ns = 2 * kDeadlineNs;
    SimulatedJob job(options);
    ASSERT_TRUE(job.Run()) << "seed " << seed;
    for (int rank = 0; rank < options.world_size - 1; ++rank) {
      const SimulatedOutcome& outcome = job.outcomes(rank).back();
      ASSERT_FALSE(outcome.result.has_value()) << "seed " << seed;
      ASSERT_THAT(outcome.result.error().ranks, ElementsAre(options.world_size - 1))
          << "seed " << seed << ": " << outcome.result.error().ToText();
      // Ranks leave the join apart by a delay, and hear of the end after another one.
      ASSERT_GE(outcome.ended_ns - outcome.began_ns, kDeadlineNs - 2 * options.delay_max_ns)
          << "seed " << seed;
    }
  }
}

TEST(SimulatedCalls, StepBehindItsDeadlineNeverBlamesTheCoordinator) {
  int released = 0;
  int missing = 0;
  for (uint64_t seed = 1; seed <= 1'000; ++seed) {
    SimulatedJobOptions options = CallsSchedule(seed, false);
    for (auto& calls : options.calls) {
      calls.resize(1);
      calls[0].kind = wire::CALL_STEP;
      calls[0].name = "late";
      calls[0].deadline_ns = -2 * kVerdictGraceNs;
    }
    SimulatedJob job(options);
    ASSERT_TRUE(job.Run()) << "seed " << seed;
    for (int rank = 0; rank < options.world_size; ++rank) {
      const Result<FramePtr>& result = job.outcomes(rank).back().result;
      released += result ? 1 : 0;
      if (result) continue;
      ++missing;
      ASSERT_THAT(result.error().what, HasSubstr("did not come to step 'late'")) << "seed " << seed;
    }
  }
  EXPECT_GT(released + missing, 1000);
  EXPECT_GT(missing, 100);
}

TEST(SimulatedCalls, WithFaultsEveryRankEndsInTimeAndNoTwoHearDifferentAnswers) {
  int lost = 0;
  for (uint64_t seed = 1; seed <= 2'000; ++seed) {
    const SimulatedJobOptions options = CallsSchedule(seed, true);
    SimulatedJob job(options);
    ASSERT_TRUE(job.Run()) << "seed " << seed;
    for (size_t call = 0; call <= options.calls[0].size(); ++call) {
      std::optional<bool> met;
      for (int rank = 0; rank < options.world_size; ++rank) {
        if (job.outcomes(rank).size() <= call) continue;
        const SimulatedOutcome& outcome = job.outcomes(rank)[call];
        ASSERT_LE(outcome.ended_ns - outcome.began_ns,
                  outcome.call.kind == wire::CALL_JOIN
                      ? options.join_deadline_ns + kVerdictGraceNs + job.paused_ns(rank)
                      : kDeadlineNs + kVerdictGraceNs + job.paused_ns(rank))
            << "seed " << seed;
        if (!outcome.result) {
          ++lost;
          EXPECT_EQ(outcome.result.error().code, ErrorCode::kRankLost) << "seed " << seed;
          EXPECT_FALSE(outcome.result.error().ranks.empty()) << "seed " << seed;
          continue;
        }
        const bool mine = (*outcome.result)->release().met();
        ASSERT_EQ(met.value_or(mine), mine) << "seed " << seed;
        met = mine;
      }
    }
  }
  EXPECT_GT(lost, 500);
}

}  // namespace
}  // namespace cotune::sync
