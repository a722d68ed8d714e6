#include "sync/exchange/local_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.h"

namespace cotune::sync {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kSecondNs = 1'000'000'000;

// Runs `body` on one thread a rank, each with its exchange, and joins them.
void RunRanks(int world_size, const std::function<void(RankExchange&)>& body) {
  const MonotonicClock clock;
  auto exchanges = MakeLocalExchanges(world_size, clock);
  std::vector<std::thread> threads;
  for (auto& exchange : exchanges) {
    threads.emplace_back([&body, mine = std::move(exchange)] { body(*mine); });
  }
  for (std::thread& thread : threads) thread.join();
}

int64_t In(int64_t delay_ns) { return MonotonicClock().now_ns() + delay_ns; }

TEST(LocalExchange, StepGathersRecordsInRankOrderAndTheLargestDelay) {
  RunRanks(4, [](RankExchange& exchange) {
    const int rank = exchange.rank();
    for (int round = 0; round < 50; ++round) {
      const auto result = exchange.Step("round " + std::to_string(round),
                                        "r" + std::to_string(rank) + "." + std::to_string(round),
                                        rank == 2 ? 7000 : rank, In(20 * kSecondNs));
      ASSERT_TRUE(result.has_value()) << result.error().ToText();
      const std::string tail = "." + std::to_string(round);
      EXPECT_THAT(result->records, ElementsAre("r0" + tail, "r1" + tail, "r2" + tail, "r3" + tail));
      EXPECT_EQ(result->start_elapsed_ns - result->elapsed_ns, 7000);
    }
    const auto plain = exchange.Step("plain", "", 0, In(20 * kSecondNs));
    ASSERT_TRUE(plain.has_value());
    EXPECT_EQ(plain->start_elapsed_ns, 0);
  });
}

TEST(LocalExchange, OneRankAlone) {
  RunRanks(1, [](RankExchange& exchange) {
    EXPECT_THAT(exchange.Step("s", "x", 0, In(kSecondNs))->records, ElementsAre("x"));
    EXPECT_TRUE(exchange.PreSync({{"a", "b"}}, 0, In(kSecondNs))->met);
    EXPECT_EQ(*exchange.Broadcast("bytes", In(kSecondNs)), "bytes");
    EXPECT_EQ(*exchange.Agree(
                  "p", [](std::string_view p) { return p == "p"; }, In(kSecondNs)),
              AgreementOutcome::kCommitted);
  });
}

TEST(LocalExchange, AgreementCommitsOnAllYesAndDeclinesOnOneNo) {
  RunRanks(3, [](RankExchange& exchange) {
    const std::string proposal = exchange.rank() == 0 ? std::string(1'000'000, 't') : "";
    std::string seen;
    const auto all_yes = exchange.Agree(
        proposal,
        [&](std::string_view p) {
          seen = p;
          return true;
        },
        In(20 * kSecondNs));
    ASSERT_TRUE(all_yes.has_value()) << all_yes.error().ToText();
    EXPECT_EQ(*all_yes, AgreementOutcome::kCommitted);
    EXPECT_EQ(seen, std::string(1'000'000, 't'));
    const auto one_no = exchange.Agree(
        proposal, [&](std::string_view) { return exchange.rank() != 1; }, In(20 * kSecondNs));
    ASSERT_TRUE(one_no.has_value()) << one_no.error().ToText();
    EXPECT_EQ(*one_no, AgreementOutcome::kDeclined);
    EXPECT_TRUE(exchange.Step("after", "", 0, In(20 * kSecondNs)).has_value());
  });
}

TEST(LocalExchange, RanksAtDifferentStepsAreToldWhoIsWhere) {
  RunRanks(4, [](RankExchange& exchange) {
    const bool odd = exchange.rank() == 2;
    const auto result = exchange.Step(odd ? "benchmark 7" : "warm", "", 0, In(20 * kSecondNs));
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::kRankLost);
    EXPECT_THAT(result.error().ranks, ElementsAre(2));
    EXPECT_THAT(result.error().what, AllOf(HasSubstr("rank 2 is at step 'benchmark 7'"),
                                           HasSubstr("ranks 0, 1, 3 are at step 'warm'")));
    const auto again = exchange.Step("next", "", 0, In(20 * kSecondNs));
    ASSERT_FALSE(again.has_value());
    EXPECT_EQ(again.error().what, result.error().what);
  });
}

TEST(LocalExchange, PreSyncNamesTheFieldTheOddRankAndBothValues) {
  RunRanks(4, [](RankExchange& exchange) {
    const AgreedFields fields = {{"world", "4"}, {"seed", exchange.rank() == 3 ? "8" : "7"}};
    const auto result = exchange.PreSync(fields, 20 * kSecondNs, In(20 * kSecondNs));
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::kDisagreement);
    EXPECT_THAT(result.error().ranks, ElementsAre(3));
    EXPECT_THAT(result.error().what, AllOf(HasSubstr("'seed'"), HasSubstr("rank 3 has '8'"),
                                           HasSubstr("ranks 0, 1, 2 have '7'")));
    // All ranks have answered: they go on together.
    const auto after = exchange.Step("after", "", 0, In(20 * kSecondNs));
    EXPECT_TRUE(after.has_value()) << after.error().ToText();
  });
}

TEST(LocalExchange, MissedWindowIsToldToAllAndTheLateRankHearsItAtOnce) {
  RunRanks(3, [](RankExchange& exchange) {
    // Rank 2 comes when rank 0 has put the key, which it does after the window.
    if (exchange.rank() == 2) {
      ASSERT_TRUE(exchange.StoreGet("closed", In(20 * kSecondNs)).has_value());
    }
    const auto result = exchange.PreSync({}, 50'000'000, In(20 * kSecondNs));
    ASSERT_TRUE(result.has_value()) << result.error().ToText();
    EXPECT_FALSE(result->met);
    EXPECT_THAT(result->late_ranks, ElementsAre(2));
    if (exchange.rank() == 0) {
      ASSERT_TRUE(exchange.StorePut("closed", "").has_value());
    }
    const auto after = exchange.Step("default table", "", 0, In(20 * kSecondNs));
    EXPECT_TRUE(after.has_value()) << after.error().ToText();
  });
}

TEST(LocalExchange, DeadlineNamesTheMissingRank) {
  RunRanks(3, [](RankExchange& exchange) {
    if (exchange.rank() == 1) {
      const auto end = exchange.StoreGet("never", In(20 * kSecondNs));
      ASSERT_FALSE(end.has_value());
      EXPECT_THAT(end.error().ranks, ElementsAre(1));
      return;
    }
    const auto result = exchange.Step("s", "", 0, In(100'000'000));
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::kRankLost);
    EXPECT_THAT(result.error().ranks, ElementsAre(1));
    EXPECT_THAT(result.error().ToText(),
                StartsWith("rank 1 did not come to step 's' within the deadline of "));
    EXPECT_THAT(result.error().ToText(), Not(HasSubstr("(step 's')")));
  });
}

TEST(LocalExchange, SubgroupsRunSideBySideAndNest) {
  RunRanks(4, [](RankExchange& exchange) {
    const int rank = exchange.rank();
    const std::vector<int> ranks = rank % 2 == 0 ? std::vector<int>{2, 0} : std::vector<int>{1, 3};
    auto group = exchange.Subgroup(rank % 2 == 0 ? "even" : "odd", ranks, In(20 * kSecondNs));
    ASSERT_TRUE(group.has_value()) << group.error().ToText();
    EXPECT_EQ((*group)->world_size(), 2);
    EXPECT_EQ(exchange.job_rank(3), 3);
    EXPECT_EQ((*group)->job_rank(0), ranks[0]);
    EXPECT_EQ((*group)->job_rank(1), ranks[1]);
    const auto result = (*group)->Step("s", std::to_string(rank), 0, In(20 * kSecondNs));
    ASSERT_TRUE(result.has_value()) << result.error().ToText();
    EXPECT_THAT(result->records, ElementsAre(std::to_string(ranks[0]), std::to_string(ranks[1])));
    const std::vector<int> self = {(*group)->rank()};
    auto alone = (*group)->Subgroup("self " + std::to_string(rank), self, In(20 * kSecondNs));
    ASSERT_TRUE(alone.has_value()) << alone.error().ToText();
    EXPECT_EQ((*alone)->job_rank(0), rank);
    EXPECT_EQ(*(*alone)->Broadcast("b" + std::to_string(rank), In(20 * kSecondNs)),
              "b" + std::to_string(rank));
    EXPECT_TRUE(exchange.Step("all", "", 0, In(20 * kSecondNs)).has_value());
  });
}

TEST(LocalExchange, LeavingWhileOthersWaitNamesTheLeaver) {
  RunRanks(3, [](RankExchange& exchange) {
    if (exchange.rank() == 1) return;
    const auto result = exchange.Step("s", "", 0, In(20 * kSecondNs));
    ASSERT_FALSE(result.has_value());
    EXPECT_THAT(result.error().ranks, ElementsAre(1));
    EXPECT_THAT(result.error().ToText(),
                MatchesRegex("rank 1 has left while .* at step 's': it.*"));
  });
}

TEST(LocalExchange, BoundsAreCheckedBeforeAnythingIsSent) {
  RunRanks(1, [](RankExchange& exchange) {
    const std::string record(RankExchange::kRecordBytesMax, 'x');
    EXPECT_TRUE(exchange.Step("s", record, 0, In(kSecondNs)).has_value());
    EXPECT_EQ(exchange.Step("s", record + "x", 0, In(kSecondNs)).error().code, ErrorCode::kUsage);
    EXPECT_EQ(exchange.Step("s", "", -1, In(kSecondNs)).error().code, ErrorCode::kUsage);
    EXPECT_EQ(exchange.Step(std::string(256, 'n'), "", 0, In(kSecondNs)).error().code,
              ErrorCode::kUsage);
    EXPECT_EQ(exchange.StorePut("", "").error().code, ErrorCode::kUsage);
    EXPECT_EQ(exchange.StorePut("k", record + "x").error().code, ErrorCode::kUsage);
    const std::vector<int> stranger = {0, 1};
    EXPECT_EQ(exchange.Subgroup("g", stranger, In(kSecondNs)).error().code, ErrorCode::kUsage);
    EXPECT_TRUE(exchange.Step("s", "", 0, In(kSecondNs)).has_value());
  });
}

}  // namespace
}  // namespace cotune::sync
