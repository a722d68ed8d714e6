// Ranks that were started differently: every one ends with an error that names field and rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "plugins/host/backend.h"
#include "tests/multi_process/testing/rank_body.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int64_t kPatienceNs = 60 * kSecondNs;
constexpr int kOdd = 1;

// No rank has made a plan.
void ExpectNothingMade(RankProcesses& ranks) {
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(ranks.LinesOf(rank, "stage "),
                AllOf(Contains("choices"), Not(Contains(AnyOf("precompile", "warm", "pre_sync")))))
        << ranks.Transcript();
  }
}

// Three ranks, of which rank 1 is changed, all end with 5 and name `field` and rank 1.
void ExpectAllName(RankProcesses& ranks, const std::string& field) {
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  for (size_t rank = 0; rank < 3; ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    EXPECT_EQ(ranks.ExitOf(rank), 5) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "error "),
                AllOf(SizeIs(1), Each(AllOf(HasSubstr("disagreement ranks=1 "), HasSubstr(field)))))
        << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "outcome "), SizeIs(0)) << "it went on all the same";
  }
}

JobScript ThreeRanks(const PrivateFolder& folder) {
  JobScript script = DefaultScript(folder);
  script.world_size = 3;
  return script;
}

// Rank 2 comes before the difference is found, and hears of it, or after rank 0 has left.
TEST(Disagreement, OnTheWorldSize) {
  const PrivateFolder folder;
  RankProcesses ranks;
  JobScript script = ThreeRanks(folder);
  script.rendezvous_timeout_ns = 5 * kSecondNs;
  StartJob(ranks, script, [](int rank, JobScript& own) {
    if (rank == kOdd) own.world_size = 4;
  });
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks.ExitOf(rank), 5) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "error "), SizeIs(1));
    if (rank == 2) continue;
    EXPECT_THAT(ranks.LinesOf(rank, "error "),
                Each(HasSubstr("rank_lost ranks=1 rank 1 has world size 4, rank 0 has 3")));
  }
}

TEST(Disagreement, OnTheVersion) {
  const PrivateFolder folder;
  RankProcesses ranks;
  StartJob(ranks, ThreeRanks(folder), [](int rank, JobScript& own) {
    if (rank == kOdd) own.cotune_version = "2";
  });
  ExpectAllName(ranks, "cotune version");
}

TEST(Disagreement, OnASetting) {
  const PrivateFolder folder;
  RankProcesses ranks;
  StartJob(ranks, ThreeRanks(folder), [](int rank, JobScript& own) {
    if (rank == kOdd) own.settings.noise_percent = 3.5;
  });
  ExpectAllName(ranks, "noise_percent");
  ExpectNothingMade(ranks);
}

TEST(Disagreement, OnEachRuleOfFusionBeforeAnythingIsMade) {
  struct Rule {
    std::string setting;
    std::function<void(FusionRules&)> change;
    std::string odd_value;
    std::string value;
  };
  const std::vector<Rule> rules = {
      {"collective_fusion_enabled", [](FusionRules& own) { own.enabled = false; }, "false", "true"},
      {"custom_op_fusion_types",
       [](FusionRules& own) { own.types = static_cast<uint8_t>(FusionType::kPrologue); },
       "prologue", "epilogue,prologue,cross_subgraph"},
      {"benchmark_collective_epilogue_fusion",
       [](FusionRules& own) { own.benchmarks_epilogues = false; }, "false", "true"},
      {"enable_recursive_fusion", [](FusionRules& own) { own.is_recursive = false; }, "false",
       "true"},
      {"max_fusion_depth", [](FusionRules& own) { own.max_depth = 1; }, "1", "4"},
      {"fusion_speedup_threshold", [](FusionRules& own) { own.speedup_threshold = 1.5; }, "1.5",
       "1.02"},
  };
  for (const Rule& rule : rules) {
    SCOPED_TRACE(rule.setting);
    const PrivateFolder folder;
    RankProcesses ranks;
    StartJob(ranks, ThreeRanks(folder), [&](int rank, JobScript& own) {
      if (rank == kOdd) rule.change(own.settings.fusion);
    });
    ExpectAllName(ranks, fmt::format("rank 1 disagrees about 'setting {}': rank 1 has '{}', and "
                                     "the other ranks have '{}'",
                                     rule.setting, rule.odd_value, rule.value));
    ExpectNothingMade(ranks);
  }
}

// Rank 1 prepares for so long that it would miss the window of the pre-sync, in which case nothing
// is compared there.
TEST(Disagreement, OnASettingOfARankThatWouldBeLate) {
  const PrivateFolder folder;
  JobScript script = ThreeRanks(folder);
  script.fake_script =
      fmt::format("choice one default prepare_delay_ms=3000 prepare_delay_on={}", kOdd);
  script.settings.collective_pre_sync_timeout_ns = 1'000'000;
  RankProcesses ranks;
  StartJob(ranks, script, [](int rank, JobScript& own) {
    if (rank == kOdd) own.settings.fusion.max_depth = 1;
  });
  ExpectAllName(ranks, "rank 1 has '1', and the other ranks have '4'");
  ExpectNothingMade(ranks);
}

// Ranks with other numerics share no group, so that such a job does not come to a tune.
TEST(Disagreement, OnTheNumericsOfTheJob) {
  const PrivateFolder folder;
  RankProcesses ranks;
  StartJob(ranks, ThreeRanks(folder), [](int rank, JobScript& own) {
    if (rank == kOdd) own.settings.numerics = NumericsRule::kSame;
  });
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks.ExitOf(rank), 3) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "error "),
                AllOf(SizeIs(1), Each(AllOf(HasSubstr("no backend can be used"),
                                            HasSubstr("rank 0 has 'host "), HasSubstr("rank 1 has"),
                                            HasSubstr("numerics=same'")))))
        << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "stage "), Not(Contains("choices"))) << ranks.Transcript();
  }
}

TEST(Disagreement, OnForce) {
  const PrivateFolder folder;
  RankProcesses ranks;
  StartJob(ranks, ThreeRanks(folder), [](int rank, JobScript& own) {
    if (rank == kOdd) own.force = true;
  });
  ExpectAllName(ranks, "'force'");
}

TEST(Disagreement, OnATrace) {
  const PrivateFolder folder;
  RankProcesses ranks;
  StartJob(ranks, ThreeRanks(folder), [](int rank, JobScript& own) {
    if (rank == kOdd) own.is_traced = true;
  });
  ExpectAllName(ranks, "trace");
}

TEST(Disagreement, OnTheProgramsOfEqualNumber) {
  const PrivateFolder folder;
  RankProcesses ranks;
  StartJob(ranks, ThreeRanks(folder), [](int rank, JobScript& own) {
    if (rank == kOdd) own.collectives = {Collective::kAllGather};
  });
  ExpectAllName(ranks, "has 'all_gather/");
}

TEST(Disagreement, OnTheChoiceList) {
  const PrivateFolder folder;
  JobScript script = ThreeRanks(folder);
  script.fake_script = fmt::format("choice one default\nchoice two missing_on={}", kOdd);
  RankProcesses ranks;
  StartJob(ranks, script);
  ExpectAllName(ranks, "ranks 0, 2 list fake/two, rank 1 does not");
}

// Ranks with another version of a backend do not tune with it; with no other backend that is an
// error that says which rank has which.
TEST(Disagreement, OnTheBackendsVersion) {
  const PrivateFolder folder;
  cotune_backend_api_t other = *host::BackendApi();
  other.version = "999.0.0";
  RankProcesses ranks;
  StartJob(ranks, ThreeRanks(folder), [&](int rank, JobScript& own) {
    if (rank == kOdd) own.table = &other;
  });
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks.ExitOf(rank), 3) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "error "),
                AllOf(SizeIs(1), Each(AllOf(HasSubstr("no backend can be used"),
                                            HasSubstr("rank 1 has 'host 999.0.0'")))))
        << ranks.Transcript();
  }
}

}  // namespace
}  // namespace cotune
