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

TEST(JudgedChoicesTest, SortsTheChoicesThatHaveRun) {
  const auto explained = nlohmann::json::parse(R"({"measured": [{"choices": [
      {"choice": "cuda/one_shot_rows?cluster=1&fuse=1.2", "outcome": "timed", "time_us": 3.5},
      {"choice": "cuda/two_shot_rows?cluster=1&fuse=1.2", "outcome": "wrong_result",
       "time_us": null},
      {"choice": "cuda/two_shot_rows?cluster=2&fuse=1.2", "outcome": "precompile_failed",
       "time_us": null},
      {"choice": "cuda/one_shot_leaves?threads=512&fuse=1", "outcome": "wrong_result"},
      {"choice": "cuda/one_shot?threads=512", "outcome": "wrong_result"},
      {"choice": "cuda/two_shot?threads=512", "outcome": "timed", "time_us": 4}]}]})");
  const JudgedChoices judged = JudgedOf(explained);
  EXPECT_EQ(judged.right, std::vector<std::string>{"cuda/one_shot_rows?cluster=1&fuse=1.2"});
  EXPECT_EQ(judged.wrong, std::vector<std::string>{"cuda/two_shot_rows?cluster=1&fuse=1.2"});
  EXPECT_EQ(judged.leaves_wrong,
            std::vector<std::string>{"cuda/one_shot_leaves?threads=512&fuse=1"});
  EXPECT_EQ(judged.unfused_wrong, std::vector<std::string>{"cuda/one_shot?threads=512"});
}

TEST(JudgedChoicesTest, RightKernelsHaveToBeFoundRight) {
  EXPECT_EQ(MisjudgmentOf({.right = {kOneShot}}, KernelFault{}), "");
  EXPECT_EQ(MisjudgmentOf({}, KernelFault{}), "no choice with rows has run");
  EXPECT_NE(MisjudgmentOf({.right = {kOneShot}, .wrong = {kSplit}}, KernelFault{}), "");
  EXPECT_NE(MisjudgmentOf({.right = {kOneShot}, .leaves_wrong = {"x"}}, KernelFault{}), "");
  EXPECT_NE(MisjudgmentOf({.right = {kOneShot}, .unfused_wrong = {"x"}}, KernelFault{}), "");
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

TEST(JudgedChoicesTest, AFaultOfClustersLeavesOtherShapesRight) {
  const KernelFault fault = {"clusters", kOneShotKernel};
  EXPECT_EQ(MisjudgmentOf({.right = {kOneShot, kSplit}, .wrong = {kOneShotCluster}}, fault), "");
  EXPECT_NE(MisjudgmentOf({.wrong = {kOneShotCluster, kOneShot}}, fault), "");
  EXPECT_NE(MisjudgmentOf({.right = {kOneShotCluster}, .wrong = {kOneShotCluster}}, fault), "");
}

TEST(JudgedChoicesTest, AFaultOfSomeShapesHasToBeFoundOnce) {
  const KernelFault fault = {"some", kOneShotKernel};
  EXPECT_EQ(MisjudgmentOf({.right = {kOneShot}, .wrong = {kOneShotCluster}}, fault), "");
  EXPECT_NE(MisjudgmentOf({.right = {kOneShot}}, fault), "");
  EXPECT_NE(MisjudgmentOf({.wrong = {kSplit}}, fault), "");
}

}  // namespace
}  // namespace cotune::gputest
