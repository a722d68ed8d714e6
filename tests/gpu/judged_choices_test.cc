#include "tests/gpu/judged_choices.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace cotune::gputest {
namespace {

constexpr const char* kOneShot = "cuda/one_shot_rows?cluster=1&pdl=1&row=256&fuse=1.2";
constexpr const char* kOneShotCluster = "cuda/one_shot_rows?cluster=4&pdl=1&row=128&fuse=1.2";
constexpr const char* kSplit = "cuda/two_shot_split_rows?cluster=1&pdl=1&row=256&fuse=1.2";
const std::set<std::string> kOneShotKernel = {"all_reduce_one_shot_rows.cu"};

constexpr const char* kLeaves =
    "cuda/one_shot_leaves?blocks=8&threads=512&transport=lamport&fuse=1";
constexpr const char* kFlagged = "cuda/two_shot_leaves?threads=512&transport=flagged&fuse=1";

TEST(JudgedChoicesTest, SortsTheChoicesThatHaveRunAndThoseThatHaveNot) {
  const auto explained = nlohmann::json::parse(R"({"measured": [{"choices": [
      {"choice": "cuda/one_shot_rows?cluster=1&fuse=1.2", "outcome": "timed", "time_us": 3.5},
      {"choice": "cuda/two_shot_rows?cluster=1&fuse=1.2", "outcome": "wrong_result",
       "time_us": null},
      {"choice": "cuda/two_shot_rows?cluster=2&fuse=1.2", "outcome": "precompile_failed",
       "time_us": null},
      {"choice": "cuda/two_shot_leaves?threads=256&fuse=1", "outcome": "outpaced", "time_us": 5},
      {"choice": "cuda/two_shot_leaves?threads=512&fuse=1", "outcome": "deadline",
       "time_us": null},
      {"choice": "cuda/one_shot_leaves?threads=512&fuse=1", "outcome": "wrong_result"},
      {"choice": "cuda/one_shot?threads=512", "outcome": "wrong_result"},
      {"choice": "cuda/two_shot?threads=512", "outcome": "timed", "time_us": 4}]}]})");
  const JudgedChoices judged = JudgedOf(explained);
  EXPECT_EQ(judged.right, std::vector<std::string>{"cuda/one_shot_rows?cluster=1&fuse=1.2"});
  EXPECT_EQ(judged.wrong, std::vector<std::string>{"cuda/two_shot_rows?cluster=1&fuse=1.2"});
  EXPECT_EQ(judged.leaves_right,
            std::vector<std::string>{"cuda/two_shot_leaves?threads=256&fuse=1"});
  EXPECT_EQ(judged.leaves_wrong,
            std::vector<std::string>{"cuda/one_shot_leaves?threads=512&fuse=1"});
  ASSERT_EQ(judged.not_run.size(), 2u);
  EXPECT_EQ(judged.not_run[0].choice, "cuda/two_shot_rows?cluster=2&fuse=1.2");
  EXPECT_EQ(judged.not_run[0].outcome, "precompile_failed");
  EXPECT_EQ(judged.not_run[1].choice, "cuda/two_shot_leaves?threads=512&fuse=1");
  EXPECT_EQ(judged.not_run[1].outcome, "deadline");
  EXPECT_EQ(judged.unfused_wrong, std::vector<std::string>{"cuda/one_shot?threads=512"});
}

TEST(JudgedChoicesTest, RightKernelsHaveToBeFoundRight) {
  EXPECT_EQ(MisjudgmentOf({.right = {kOneShot}, .leaves_right = {kLeaves}}, KernelFault{}), "");
  EXPECT_EQ(MisjudgmentOf({}, KernelFault{}), "no choice with rows has run");
  EXPECT_EQ(MisjudgmentOf({.right = {kOneShot}, .wrong = {kSplit}}, KernelFault{}),
            std::string("found wrong: ") + kSplit);
  EXPECT_EQ(MisjudgmentOf({.right = {kOneShot}, .leaves_wrong = {kLeaves}}, KernelFault{}),
            std::string("found wrong: ") + kLeaves);
  EXPECT_EQ(MisjudgmentOf({.right = {kOneShot}, .unfused_wrong = {"x"}}, KernelFault{}),
            "an unfused choice is found wrong: x");
  EXPECT_EQ(
      MisjudgmentOf({.right = {kOneShot}, .not_run = {{kSplit, "launch_failed"}}}, KernelFault{}),
      std::string("not judged, because it has not run (launch_failed): ") + kSplit);
}

TEST(JudgedChoicesTest, EveryKernelWithTheFaultHasToBeFoundWrongAndNoOther) {
  const KernelFault fault = {"all", kOneShotKernel};
  EXPECT_EQ(MisjudgmentOf({.right = {kSplit}, .wrong = {kOneShot, kOneShotCluster}}, fault), "");
  EXPECT_EQ(MisjudgmentOf({.right = {kOneShotCluster}, .wrong = {kOneShot}}, fault),
            std::string("found right, and its kernel has the fault: ") + kOneShotCluster);
  EXPECT_EQ(MisjudgmentOf({.wrong = {kOneShot, kSplit}}, fault),
            std::string("found wrong, and the fault is not in it: ") + kSplit);
  EXPECT_EQ(MisjudgmentOf({.right = {kSplit}}, fault), "no choice is found wrong");
}

TEST(JudgedChoicesTest, LeavesAreJudgedByTheFaultAsRowsAre) {
  const KernelFault in_rows = {"all", kOneShotKernel};
  EXPECT_EQ(MisjudgmentOf({.wrong = {kOneShot}, .leaves_right = {kLeaves}}, in_rows), "");
  EXPECT_EQ(MisjudgmentOf({.wrong = {kOneShot}, .leaves_wrong = {kLeaves}}, in_rows),
            std::string("found wrong, and the fault is not in it: ") + kLeaves);
  const KernelFault in_flagged = {
      "all", {"all_reduce_one_shot_rows.cu", "all_reduce_two_shot_flagged_leaves.cu"}};
  EXPECT_EQ(MisjudgmentOf({.wrong = {kOneShot}, .leaves_wrong = {kFlagged}}, in_flagged), "");
  EXPECT_EQ(MisjudgmentOf({.wrong = {kOneShot}, .leaves_right = {kFlagged}}, in_flagged),
            std::string("found right, and its kernel has the fault: ") + kFlagged);
  EXPECT_EQ(MisjudgmentOf({.wrong = {kOneShot}, .leaves_wrong = {kLeaves}}, in_flagged),
            std::string("found wrong, and the fault is not in it: ") + kLeaves);
}

TEST(JudgedChoicesTest, AChoiceThatHasNotRunIsNotJudged) {
  for (const char* const wrong : {"all", "clusters"}) {
    const KernelFault fault = {wrong, kOneShotKernel};
    for (const char* const choice : {kOneShot, kOneShotCluster, kSplit, kLeaves}) {
      EXPECT_EQ(
          MisjudgmentOf({.wrong = {kOneShotCluster}, .not_run = {{choice, "deadline"}}}, fault),
          std::string("not judged, because it has not run (deadline): ") + choice)
          << wrong;
    }
  }
  const KernelFault some = {"some", kOneShotKernel};
  EXPECT_EQ(MisjudgmentOf({.wrong = {kOneShotCluster}, .not_run = {{kOneShot, "deadline"}}}, some),
            "");
  EXPECT_EQ(MisjudgmentOf({.wrong = {kOneShotCluster}, .not_run = {{kSplit, "deadline"}}}, some),
            std::string("not judged, because it has not run (deadline): ") + kSplit);
}

TEST(JudgedChoicesTest, AFaultOfClustersLeavesOtherShapesRight) {
  const KernelFault fault = {"clusters", kOneShotKernel};
  EXPECT_EQ(MisjudgmentOf({.right = {kOneShot, kSplit}, .wrong = {kOneShotCluster}}, fault), "");
  EXPECT_EQ(MisjudgmentOf({.wrong = {kOneShotCluster, kOneShot}}, fault),
            std::string("found wrong, and the fault is not in it: ") + kOneShot);
  EXPECT_EQ(MisjudgmentOf({.right = {kOneShotCluster}, .wrong = {kOneShotCluster}}, fault),
            std::string("found right, and its kernel has the fault: ") + kOneShotCluster);
}

TEST(JudgedChoicesTest, AFaultOfSomeShapesHasToBeFoundOnce) {
  const KernelFault fault = {"some", kOneShotKernel};
  EXPECT_EQ(MisjudgmentOf({.right = {kOneShot}, .wrong = {kOneShotCluster}}, fault), "");
  EXPECT_EQ(MisjudgmentOf({.right = {kOneShot}}, fault), "no choice is found wrong");
  EXPECT_EQ(MisjudgmentOf({.wrong = {kSplit}}, fault),
            std::string("found wrong, and the fault is not in it: ") + kSplit);
}

}  // namespace
}  // namespace cotune::gputest
