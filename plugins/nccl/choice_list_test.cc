#include "plugins/nccl/choice_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace cotune::nccl {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Collective kCollectives[] = {Collective::kAllReduce, Collective::kAllGather,
                                       Collective::kReduceScatter, Collective::kAllToAll,
                                       Collective::kBroadcast};

Problem Floats(Collective collective, uint64_t bytes, int world_size = 4) {
  Problem problem{.collective = collective, .world_size = world_size};
  problem.count = 1;
  problem.count = bytes / sdk::ProblemBytes(problem);
  return problem;
}

std::vector<std::string> Runnable(const Problem& problem, const MissingFeatures& missing = {}) {
  std::vector<std::string> names;
  for (const Choice& choice : ListChoices(problem, missing)) {
    if (choice.reason.empty()) names.push_back(choice.name);
  }
  return names;
}

std::string RefusalOf(const Problem& problem, const std::string& name,
                      const MissingFeatures& missing = {}) {
  for (const Choice& choice : ListChoices(problem, missing)) {
    if (choice.name == name) return choice.reason.empty() ? "runs" : choice.reason;
  }
  return "not listed";
}

TEST(ChoiceListTest, NamesOfALargeAllReduce) {
  std::vector<std::string> wanted = {"auto"};
  for (const char* algorithm : {"ring", "tree"}) {
    for (const char* protocol : {"ll128", "simple"}) {
      const std::string name = std::string(algorithm) + "?proto=" + protocol;
      wanted.push_back(name);
      for (const char* channels : {"4", "8", "16", "24", "32"}) {
        wanted.push_back(name + "&channels=" + channels);
      }
    }
  }
  EXPECT_EQ(Runnable(Floats(Collective::kAllReduce, 64 << 20)), wanted);
}

TEST(ChoiceListTest, EachWayToForceNcclIsANumericsClassOfItsOwn) {
  Problem problem = Floats(Collective::kAllReduce, 64 << 20);
  std::set<std::string> classes;
  size_t runnable = 0;
  for (const Choice& choice : ListChoices(problem, {})) {
    if (!choice.reason.empty()) continue;
    ++runnable;
    classes.insert(choice.numerics);
    EXPECT_TRUE(choice.numerics.starts_with("nccl")) << choice.name;
    EXPECT_LT(choice.numerics.size(), sizeof(cotune_choice_t::numerics));
  }
  EXPECT_EQ(classes.size(), runnable);
  EXPECT_TRUE(classes.contains("nccl"));
  EXPECT_TRUE(classes.contains("nccl_ring.ll128.16")) << "algorithm, protocol, channels";
  problem.type = ElementType::kI32;
  for (const Choice& choice : ListChoices(problem, {})) {
    EXPECT_EQ(choice.numerics, choice.reason.empty() ? "exact" : "") << choice.name;
  }
}

TEST(ChoiceListTest, SmallProblemsFillFewChannels) {
  EXPECT_THAT(
      Runnable(Floats(Collective::kAllReduce, 1024)),
      ElementsAre("auto", "ring?proto=ll", "ring?proto=ll&channels=4", "ring?proto=ll128",
                  "ring?proto=ll128&channels=4", "tree?proto=ll", "tree?proto=ll&channels=4",
                  "tree?proto=ll128", "tree?proto=ll128&channels=4"));
  EXPECT_THAT(Runnable(Floats(Collective::kAllReduce, 64 << 10)),
              Contains("ring?proto=ll&channels=8"));
  EXPECT_THAT(Runnable(Floats(Collective::kAllReduce, 64 << 10)),
              Not(Contains("ring?proto=ll&channels=16")));
}

TEST(ChoiceListTest, OtherCollectivesHaveTheRingAlone) {
  for (const Collective collective :
       {Collective::kAllGather, Collective::kReduceScatter, Collective::kBroadcast}) {
    const auto names = Runnable(Floats(collective, 1 << 20));
    EXPECT_THAT(names, Contains("ring?proto=simple&channels=32"));
    EXPECT_THAT(names, Each(Not(HasSubstr("tree"))));
  }
  EXPECT_THAT(Runnable(Floats(Collective::kAllToAll, 1 << 20)), ElementsAre("auto"));
}

TEST(ChoiceListTest, WhatCannotWinIsRefusedWithTheReason) {
  EXPECT_THAT(RefusalOf(Floats(Collective::kAllReduce, 8 << 20), "ring?proto=ll"),
              HasSubstr("4194304"));
  EXPECT_THAT(RefusalOf(Floats(Collective::kAllReduce, 4096), "tree?proto=simple"),
              HasSubstr("65536"));
}

TEST(ChoiceListTest, WithoutTunerNothingIsForced) {
  const Problem problem = Floats(Collective::kAllReduce, 1 << 20);
  EXPECT_THAT(Runnable(problem, {.tuner = "why"}), ElementsAre("auto"));
  EXPECT_EQ(RefusalOf(problem, "ring", {.tuner = "why"}), "why");
  EXPECT_EQ(RefusalOf(problem, "tree", {.tuner = "why"}), "why");
}

TEST(ChoiceListTest, OneRankRunsAutoAlone) {
  for (const Collective collective : kCollectives) {
    EXPECT_THAT(Runnable(Floats(collective, 4096, 1)), ElementsAre("auto"));
  }
}

TEST(ChoiceListTest, SymmetricKernelsNeedTheirBuffersAndProblem) {
  Problem problem = Floats(Collective::kAllReduce, 1 << 20);
  EXPECT_EQ(RefusalOf(problem, "symmetric"), "not listed");
  problem.is_symmetric = true;
  EXPECT_EQ(RefusalOf(problem, "symmetric"), "runs");
  EXPECT_EQ(RefusalOf(problem, "symmetric", {.windows = "old"}), "old");
  problem.reduction = Reduction::kMax;
  EXPECT_THAT(RefusalOf(problem, "symmetric"), HasSubstr("sum"));
  problem.reduction = Reduction::kSum;
  problem.type = ElementType::kI32;
  EXPECT_THAT(RefusalOf(problem, "symmetric"), HasSubstr("bf16"));
  problem.collective = Collective::kAllGather;
  EXPECT_EQ(RefusalOf(problem, "symmetric"), "runs");
  problem.collective = Collective::kBroadcast;
  EXPECT_THAT(RefusalOf(problem, "symmetric"), HasSubstr("only"));
}

TEST(ChoiceListTest, NothingThatNeedsMulticastOrANetworkIsListed) {
  for (const Collective collective : kCollectives) {
    for (uint64_t bytes = 1024; bytes <= uint64_t{512} << 20; bytes *= 2) {
      for (const bool is_symmetric : {false, true}) {
        Problem problem = Floats(collective, bytes);
        problem.is_symmetric = is_symmetric;
        for (const Choice& choice : ListChoices(problem, {})) {
          const std::string algorithm = choice.name.substr(0, choice.name.find('?'));
          EXPECT_THAT((std::set<std::string>{"auto", "ring", "tree", "symmetric"}),
                      Contains(algorithm));
        }
      }
    }
  }
}

TEST(ChoiceListTest, NamesAreUniqueFitTheAbiAndOneIsTheDefault) {
  for (const Collective collective : kCollectives) {
    for (uint64_t bytes = 0; bytes <= uint64_t{512} << 20; bytes = bytes == 0 ? 64 : 4 * bytes) {
      for (const int world_size : {1, 2, 3, 8}) {
        std::set<std::string> names;
        int defaults = 0;
        const auto choices = ListChoices(Floats(collective, bytes, world_size), {});
        for (const Choice& choice : choices) {
          names.insert(choice.name);
          defaults += choice.is_default ? 1 : 0;
          EXPECT_LT(choice.name.size(), 96u);
          EXPECT_LT(choice.reason.size(), 144u) << choice.reason;
          EXPECT_EQ(choice.reason.empty(), choice.cost_us > 0) << choice.name;
        }
        EXPECT_EQ(names.size(), choices.size());
        EXPECT_EQ(defaults, 1);
      }
    }
  }
}

TEST(WayOfTest, ReadsTheNameBack) {
  const Problem problem = Floats(Collective::kAllReduce, 1 << 20);
  EXPECT_EQ(*MethodOf(problem, {}, "auto"), CallMethod{});
  EXPECT_EQ(*MethodOf(problem, {}, "ring?proto=ll128&channels=16"),
            (CallMethod{.decision = ForcedDecision{Algorithm::kRing, Protocol::kLl128, 16}}));
  EXPECT_EQ(*MethodOf(problem, {}, "tree?proto=simple"),
            (CallMethod{.decision = ForcedDecision{Algorithm::kTree, Protocol::kSimple, 0}}));
}

TEST(WayOfTest, SaysWhyNot) {
  const Problem problem = Floats(Collective::kAllReduce, 64 << 20);
  const auto unknown = MethodOf(problem, {}, "nvls");
  EXPECT_EQ(unknown.error().status, COTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(unknown.error().message, HasSubstr("'nvls'"));
  const auto refused = MethodOf(problem, {}, "ring?proto=ll");
  EXPECT_EQ(refused.error().status, COTUNE_UNSUPPORTED);
  EXPECT_THAT(refused.error().message, HasSubstr("twice the bytes"));
}

}  // namespace
}  // namespace cotune::nccl
