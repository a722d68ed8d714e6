#include "tests/gpu/data_sets.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace cotune::gputest {
namespace {

Problem ProblemOf(Collective collective, uint64_t count) {
  Problem problem;
  problem.cls.collective = collective;
  problem.cls.dtype = Dtype::kBf16;
  problem.cls.reduction = Reduces(collective) ? Reduction::kSum : Reduction::kNone;
  problem.cls.world_size = problem.cls.ranks_per_node = 2;
  problem.count = count;
  return problem;
}

// Two patterns take turns, as in a case that calls each choice with both.
TEST(DataSetsTest, NoCallHasTheDataOfOneOfTheCallsBefore) {
  for (const Collective collective : AllCollectives()) {
    const Problem problem = ProblemOf(collective, 127);
    const Pattern first = Reduces(collective) ? Pattern::kExact : Pattern::kBits;
    DataSets sets(problem, 1, 100);
    std::vector<CallData> seen;
    for (uint32_t call = 0; call < DataSets::CountFor(problem); ++call) {
      const CallData& data = sets.Next(call % 2 == 0 ? first : Pattern::kRandom, true);
      EXPECT_FALSE(data.right.empty());
      for (const CallData& before : seen) {
        EXPECT_NE(data.right, before.right) << Name(collective) << ", call " << call;
        EXPECT_TRUE(data.sent.empty() || data.sent != before.sent) << Name(collective);
      }
      seen.push_back(data);
    }
  }
}

TEST(DataSetsTest, DataIsThatOfItsSaltAndRepeatsAfterAllSets) {
  const Problem problem = ProblemOf(Collective::kAllReduce, 40);
  DataSets sets(problem, 0, 5);
  const uint32_t count = DataSets::CountFor(problem);
  for (uint32_t call = 0; call < 2 * count; ++call) {
    const CallData& data = sets.Next(Pattern::kExact, true);
    const uint32_t salt = 5 + call % count;
    EXPECT_EQ(data.sent, SendData(problem, 0, Pattern::kExact, salt)) << call;
    EXPECT_EQ(data.right, RightAnswer(problem, 0, Pattern::kExact, salt)) << call;
  }
}

TEST(DataSetsTest, NoNumberOfStepsThatKernelsKeepDividesTheNumberOfSets) {
  for (const uint64_t count : {uint64_t{1}, uint64_t{4'000'000}, uint64_t{40'000'000}}) {
    const uint32_t sets = DataSets::CountFor(ProblemOf(Collective::kAllReduce, count));
    for (uint32_t steps = 2; steps < 5; ++steps) EXPECT_NE(sets % steps, 0u) << sets;
  }
}

}  // namespace
}  // namespace cotune::gputest
