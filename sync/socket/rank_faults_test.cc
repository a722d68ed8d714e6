// Four real processes; one of them is killed, stopped or late at one of seven points.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <tuple>
#include <vector>

#include "core/base/clock.h"
#include "sync/socket/socket_exchange.h"
#include "sync/testing/rank_processes.h"
#include "sync/testing/scripted_rank.h"
#include "sync/wire/limits.h"

namespace cotune::sync {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kRanks = 4;
constexpr int64_t kDeadlineNs = 3'000'000'000;
constexpr int64_t kWindowNs = 400'000'000;

// A healthy rank: the same calls as ScriptedRank. `accept` may wait.
void RunHealthy(const SocketExchangeOptions& options, Reporter& report,
                const RankExchange::Accept& accept) {
  const MonotonicClock clock;
  auto exchange = ConnectSocketExchange(options, clock);
  if (!exchange) return report.ErrorLine(exchange.error());
  report.Line("joined");
  const auto first = (*exchange)->Step("first", "", 0, NowNs() + kDeadlineNs);
  if (!first) return report.ErrorLine(first.error());
  report.Line("first");
  const auto met = (*exchange)->PreSync({}, kWindowNs, NowNs() + kDeadlineNs);
  if (!met) return report.ErrorLine(met.error());
  report.Line(met->met ? "met" : fmt::format("missed {}", fmt::join(met->late_ranks, ",")));
  const auto agreed =
      (*exchange)->Agree(options.rank == 0 ? "table" : "", accept, NowNs() + kDeadlineNs);
  if (!agreed) return report.ErrorLine(agreed.error());
  report.Line(*agreed == AgreementOutcome::kCommitted ? "committed" : "declined");
  const auto last = (*exchange)->Step("last", "", 0, NowNs() + kDeadlineNs);
  if (!last) return report.ErrorLine(last.error());
  report.Line("last");
}

bool AlwaysYes(std::string_view) { return true; }

TEST(RankProcesses, AllHealthy) {
  const PrivateDirectory directory;
  Processes processes;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto options = OptionsForTest(directory, rank, kRanks, kDeadlineNs);
    processes.Start([&](Reporter& report) { RunHealthy(options, report, AlwaysYes); });
  }
  ASSERT_TRUE(processes.WaitForEnd({0, 1, 2, 3}, 2 * kDeadlineNs));
  for (size_t rank = 0; rank < kRanks; ++rank) {
    EXPECT_THAT(processes.lines(rank), ElementsAre("joined", "first", "met", "committed", "last"));
  }
}

class OneRankFails : public ::testing::TestWithParam<std::tuple<FaultPoint, FaultKind>> {};

TEST_P(OneRankFails, EveryOtherProcessEndsInTimeAndNamesIt) {
  const auto [point, kind] = GetParam();
  constexpr int kVictim = 2;
  const PrivateDirectory directory;
  Processes processes;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto options = OptionsForTest(directory, rank, kRanks, kDeadlineNs);
    processes.Start([&, point = point, kind = kind](Reporter& report) {
      if (rank == kVictim) {
        ScriptedRank(options, point, kind, kDeadlineNs, kWindowNs, report).Run();
      } else {
        RunHealthy(options, report, AlwaysYes);
      }
    });
  }
  ASSERT_TRUE(processes.WaitForEnd({0, 1, 3}, 2 * kDeadlineNs));
  for (const size_t rank : {0, 1, 3}) {
    EXPECT_THAT(processes.last_line(rank), StartsWith("error rank_lost ranks=2 ")) << rank;
    EXPECT_THAT(processes.last_line(rank), HasSubstr("rank 2")) << rank;
    EXPECT_THAT(processes.lines(rank), Not(Contains(AnyOf("committed", "declined")))) << rank;
  }
  if (point == FaultPoint::kBeforePreSync && kind != FaultKind::kKill) {
    for (const size_t rank : {0, 1, 3}) {
      EXPECT_THAT(processes.lines(rank), Contains("missed 2")) << rank;
    }
  }
  if (kind != FaultKind::kLate || point == FaultPoint::kBeforeHello) return;
  processes.Speak(kVictim);
  ASSERT_TRUE(processes.WaitForEnd({kVictim}, 2 * kDeadlineNs));
  EXPECT_THAT(processes.last_line(kVictim), StartsWith("error rank_lost ranks=2 "));
}

std::string FaultName(const ::testing::TestParamInfo<std::tuple<FaultPoint, FaultKind>>& info) {
  const char* points[] = {"BeforeHello", "AfterHello", "BeforeStep",       "BeforePreSync",
                          "BeforeVote",  "AfterVote",  "BeforeAcknowledge"};
  const char* kinds[] = {"Killed", "Stopped", "Late"};
  return std::string(kinds[static_cast<int>(std::get<1>(info.param))]) +
         points[static_cast<int>(std::get<0>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(
    EveryPoint, OneRankFails,
    ::testing::Combine(::testing::Values(FaultPoint::kBeforeHello, FaultPoint::kAfterHello,
                                         FaultPoint::kBeforeStep, FaultPoint::kBeforePreSync,
                                         FaultPoint::kBeforeVote, FaultPoint::kAfterVote,
                                         FaultPoint::kBeforeAcknowledge),
                       ::testing::Values(FaultKind::kKill, FaultKind::kStop, FaultKind::kLate)),
    FaultName);

// Rank 0 carries the coordinator. Rank 1 holds its vote back, so the others have voted YES and are
// in doubt.
class RankZeroFails : public ::testing::TestWithParam<int> {};

TEST_P(RankZeroFails, RanksInDoubtStopAndNameRankZero) {
  const PrivateDirectory directory;
  Processes processes;
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto options = OptionsForTest(directory, rank, kRanks, kDeadlineNs);
    processes.Start([&](Reporter& report) {
      RunHealthy(options, report, [&](std::string_view) {
        report.Line("votes");
        if (rank == 1) report.HeardWord();
        return true;
      });
    });
  }
  ASSERT_TRUE(processes.WaitForLine({0, 1, 2, 3}, "votes", kDeadlineNs));
  processes.Signal(0, GetParam());
  processes.Speak(1);
  ASSERT_TRUE(processes.WaitForEnd({1, 2, 3}, 2 * kDeadlineNs));
  for (const size_t rank : {1, 2, 3}) {
    EXPECT_THAT(processes.last_line(rank), StartsWith("error rank_lost ranks=0 ")) << rank;
    EXPECT_THAT(processes.lines(rank), Not(Contains(AnyOf("committed", "declined")))) << rank;
  }
  if (GetParam() != SIGSTOP) return;
  for (const size_t rank : {1, 2, 3}) {
    EXPECT_THAT(processes.last_line(rank), HasSubstr(" is stopped (state T)")) << rank;
  }
  // It wakes up and learns that the others have given it up.
  processes.Signal(0, SIGCONT);
  ASSERT_TRUE(processes.WaitForEnd({0}, 2 * kDeadlineNs));
  EXPECT_THAT(processes.last_line(0), StartsWith("error rank_lost ranks=0 "));
}

INSTANTIATE_TEST_SUITE_P(EverySignal, RankZeroFails, ::testing::Values(SIGKILL, SIGSTOP),
                         [](const auto& info) {
                           return std::string(info.param == SIGKILL ? "Killed" : "Stopped");
                         });

TEST(RankProcesses, RankZeroNeverComes) {
  const PrivateDirectory directory;
  Processes processes;
  const auto options = OptionsForTest(directory, 1, 2, 200'000'000);
  processes.Start([&](Reporter& report) { RunHealthy(options, report, AlwaysYes); });
  ASSERT_TRUE(processes.WaitForEnd({0}, 2 * kDeadlineNs));
  EXPECT_THAT(processes.last_line(0), StartsWith("error rank_lost ranks=0 "));
  EXPECT_THAT(processes.last_line(0), HasSubstr(directory.socket_path()));
}

TEST(RankProcesses, StoppedWhileOthersComputeIsNamedBeforeAnyDeadline) {
  const PrivateDirectory directory;
  Processes processes;
  constexpr int64_t kFarNs = 100 * kDeadlineNs;
  for (int rank = 0; rank < 3; ++rank) {
    const auto options = OptionsForTest(directory, rank, 3, kDeadlineNs);
    processes.Start([&](Reporter& report) {
      const MonotonicClock clock;
      auto exchange = ConnectSocketExchange(options, clock);
      if (!exchange) return report.ErrorLine(exchange.error());
      if (rank == 1) {
        report.Line("fault");
        raise(SIGSTOP);
      }
      const auto step = (*exchange)->Step("far", "", 0, NowNs() + kFarNs);
      if (!step) return report.ErrorLine(step.error());
    });
  }
  ASSERT_TRUE(processes.WaitForEnd({0, 2}, 2 * kDeadlineNs));
  for (const size_t rank : {0, 2}) {
    EXPECT_THAT(processes.last_line(rank), StartsWith("error rank_lost ranks=1 ")) << rank;
    EXPECT_THAT(processes.last_line(rank), HasSubstr("nothing was heard from rank 1")) << rank;
    EXPECT_THAT(processes.last_line(rank), HasSubstr(" is stopped (state T)")) << rank;
  }
}

TEST(RankProcesses, RankZeroThatLeavesEarlyIsNamedAsLeft) {
  const PrivateDirectory directory;
  Processes processes;
  for (int rank = 0; rank < 2; ++rank) {
    const auto options = OptionsForTest(directory, rank, 2, kDeadlineNs);
    processes.Start([&](Reporter& report) {
      const MonotonicClock clock;
      auto exchange = ConnectSocketExchange(options, clock);
      if (!exchange) return report.ErrorLine(exchange.error());
      if (rank == 0) return;
      report.HeardWord();
      const auto step = (*exchange)->Step("s", "", 0, NowNs() + 100 * kDeadlineNs);
      if (!step) return report.ErrorLine(step.error());
    });
  }
  ASSERT_TRUE(processes.WaitForEnd({0}, 2 * kDeadlineNs));
  processes.Speak(1);
  ASSERT_TRUE(processes.WaitForEnd({1}, 2 * kDeadlineNs));
  EXPECT_THAT(processes.last_line(1), StartsWith("error rank_lost ranks=0 rank 0 has left"));
}

TEST(RankProcesses, WholeJobThatIsStoppedAndContinuedGoesOn) {
  const PrivateDirectory directory;
  Processes processes;
  constexpr int64_t kFarNs = 100 * kDeadlineNs;
  auto options = OptionsForTest(directory, 0, 3, kDeadlineNs);
  for (options.rank = 0; options.rank < 3; ++options.rank) {
    processes.Start([&](Reporter& report) {
      const MonotonicClock clock;
      auto exchange = ConnectSocketExchange(options, clock);
      if (!exchange) return report.ErrorLine(exchange.error());
      report.Line("joined");
      while (true) {
        const bool last = options.rank == 0 && report.HeardWord(0);
        const auto step = (*exchange)->Step("s", last ? "last" : "", 0, NowNs() + kFarNs);
        if (!step) return report.ErrorLine(step.error());
        if (step->records[0] == "last") return report.Line("done");
      }
    });
  }
  ASSERT_TRUE(processes.WaitForLine({0, 1, 2}, "joined", kDeadlineNs));
  for (const size_t rank : {0, 1, 2}) processes.Signal(rank, SIGSTOP);
  EXPECT_FALSE(processes.WaitForEnd({0, 1, 2}, 2 * options.heartbeat_timeout_ns));
  for (const size_t rank : {2, 1, 0}) processes.Signal(rank, SIGCONT);
  processes.Speak(0);
  ASSERT_TRUE(processes.WaitForEnd({0, 1, 2}, 2 * kDeadlineNs));
  for (const size_t rank : {0, 1, 2}) EXPECT_EQ(processes.last_line(rank), "done");
}

// A read of the store whose deadline has passed is a look that waits for nothing. It says nothing
// about rank 0.
TEST(RankProcesses, LookIntoTheStoreOutlastsAStopOfRankZero) {
  const PrivateDirectory directory;
  Processes processes;
  for (int rank = 0; rank < 2; ++rank) {
    auto options = OptionsForTest(directory, rank, 2, kDeadlineNs);
    options.heartbeat_timeout_ns = 100 * kDeadlineNs;
    processes.Start([&](Reporter& report) {
      const MonotonicClock clock;
      auto exchange = ConnectSocketExchange(options, clock);
      if (!exchange) return report.ErrorLine(exchange.error());
      report.Line("joined");
      while (rank == 1 && !report.HeardWord(0)) {
        const auto value = (*exchange)->StoreGet("never put", NowNs() - 2 * kVerdictGraceNs);
        if (value || value.error().code != ErrorCode::kDeadline) {
          return report.ErrorLine(value.error());
        }
      }
      const auto step = (*exchange)->Step("after", "", 0, NowNs() + 100 * kDeadlineNs);
      if (!step) return report.ErrorLine(step.error());
      report.Line("done");
    });
  }
  ASSERT_TRUE(processes.WaitForLine({0, 1}, "joined", kDeadlineNs));
  processes.Signal(0, SIGSTOP);
  EXPECT_FALSE(processes.WaitForEnd({1}, 3 * kVerdictGraceNs)) << processes.last_line(1);
  processes.Signal(0, SIGCONT);
  processes.Speak(1);
  ASSERT_TRUE(processes.WaitForEnd({0, 1}, 2 * kDeadlineNs));
  EXPECT_EQ(processes.last_line(0), "done");
  EXPECT_EQ(processes.last_line(1), "done");
}

TEST(RankProcesses, SlowIsNotDead) {
  const PrivateDirectory directory;
  Processes processes;
  for (int rank = 0; rank < 2; ++rank) {
    auto options = OptionsForTest(directory, rank, 2, kDeadlineNs);
    options.heartbeat_interval_ns = 20'000'000;
    options.heartbeat_timeout_ns = 400'000'000;
    processes.Start([&](Reporter& report) {
      const MonotonicClock clock;
      auto exchange = ConnectSocketExchange(options, clock);
      if (!exchange) return report.ErrorLine(exchange.error());
      // Rank 1 computes for three heartbeat timeouts and never looks at its exchange.
      const int64_t until_ns = NowNs() + 3 * options.heartbeat_timeout_ns;
      while (rank == 1 && NowNs() < until_ns) {
      }
      const auto step = (*exchange)->Step("late", "", 0, NowNs() + 20 * kDeadlineNs);
      if (!step) return report.ErrorLine(step.error());
      report.Line("done");
    });
  }
  ASSERT_TRUE(processes.WaitForEnd({0, 1}, 2 * kDeadlineNs));
  EXPECT_EQ(processes.last_line(0), "done");
  EXPECT_EQ(processes.last_line(1), "done");
}

}  // namespace
}  // namespace cotune::sync
