#include "integration/testing/fault_injection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>

#include "fmt/format.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FaultTest, ReadsEveryForm) {
  const auto kill = ParseFault("benchmark@2:kill");
  ASSERT_TRUE(kill) << kill.error().ToText();
  EXPECT_EQ(kill->stage, Stage::kBenchmark);
  EXPECT_EQ(kill->rank, 2);
  EXPECT_EQ(kill->action, Fault::Action::kKill);
  EXPECT_EQ(kill->nth, 1);
  const auto delay = ParseFault("pre_sync@0:delay=250:3");
  ASSERT_TRUE(delay) << delay.error().ToText();
  EXPECT_EQ(delay->stage, Stage::kPreSync);
  EXPECT_EQ(delay->action, Fault::Action::kDelay);
  EXPECT_EQ(delay->delay_ns, 250'000'000);
  EXPECT_EQ(delay->nth, 3);
  EXPECT_FALSE(delay->is_at_end);
  const auto end = ParseFault("save.end@1:kill");
  ASSERT_TRUE(end);
  EXPECT_EQ(end->stage, Stage::kSave);
  EXPECT_TRUE(end->is_at_end);
  EXPECT_EQ(ParseFault("dispatch@1:stop")->action, Fault::Action::kStop);
  EXPECT_EQ(ParseFault("vote@1:exit")->action, Fault::Action::kExit);
}

TEST(FaultTest, EveryStageHasAName) {
  for (int i = 0; i <= static_cast<int>(Stage::kDispatch); ++i) {
    const auto stage = static_cast<Stage>(i);
    const auto fault = ParseFault(fmt::format("{}@0:kill", Name(stage)));
    ASSERT_TRUE(fault) << fault.error().ToText();
    EXPECT_EQ(fault->stage, stage);
  }
}

TEST(FaultTest, RefusesEverythingElse) {
  for (const char* text :
       {"", "benchmark", "@1:kill", ".end@1:kill", "save.start@1:kill", "lunch@1:kill",
        "benchmark@:kill", "benchmark@x:kill", "benchmark@1", "benchmark@1:", "benchmark@1:explode",
        "benchmark@1:delay", "benchmark@1:delay=", "benchmark@1:delay=-5",
        "benchmark@1:kill:", "benchmark@1:kill:0", "benchmark@1:kill:1:1", "benchmark@-1:kill"}) {
    const auto fault = ParseFault(text);
    ASSERT_FALSE(fault) << text;
    EXPECT_EQ(fault.error().code, ErrorCode::kUsage);
    EXPECT_THAT(fault.error().ToText(), AllOf(HasSubstr(fmt::format("'{}'", text)),
                                              HasSubstr("COTUNE_FAULT"), HasSubstr("delay=MS")));
  }
}

Fault ExitAt(Stage stage, int rank, int nth) {
  Fault fault;
  fault.stage = stage;
  fault.rank = rank;
  fault.action = Fault::Action::kExit;
  fault.nth = nth;
  return fault;
}

TEST(FaultTest, HappensAtItsStageRankAndTimeOnly) {
  const auto other_rank = MakeFaultListener(ExitAt(Stage::kCheck, 1, 1), 0);
  MarkStage(*other_rank, Stage::kCheck);
  const auto here = MakeFaultListener(ExitAt(Stage::kCheck, 1, 2), 1);
  { const StageSpan once(*here, Stage::kCheck); }
  MarkStage(*here, Stage::kBenchmark);
  EXPECT_EXIT(MarkStage(*here, Stage::kCheck), ::testing::ExitedWithCode(86), "");
}

TEST(FaultTest, HappensAtTheEndOfItsStage) {
  Fault fault = ExitAt(Stage::kSave, 0, 1);
  fault.is_at_end = true;
  const auto listener = MakeFaultListener(fault, 0);
  const auto save = [&] {
    const StageSpan stage(*listener, Stage::kSave);
    std::fputs("the stage runs", stderr);
  };
  EXPECT_EXIT(save(), ::testing::ExitedWithCode(86), "the stage runs");
}

TEST(FaultTest, Kills) {
  Fault fault = ExitAt(Stage::kAgree, 0, 1);
  fault.action = Fault::Action::kKill;
  const auto listener = MakeFaultListener(fault, 0);
  EXPECT_EXIT(MarkStage(*listener, Stage::kAgree), ::testing::KilledBySignal(SIGKILL), "");
}

}  // namespace
}  // namespace cotune
