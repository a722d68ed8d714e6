#include "fusion/legality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "core/testing/parsed.h"
#include "fmt/format.h"

namespace cotune {
namespace {

using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Optional;

// The reason why these nodes are no region.
std::optional<std::string> Why(const std::string& text, const std::vector<size_t>& nodes) {
  return WhyNotRegion(Graph(text), {nodes});
}

TEST(LegalityTest, AChainAroundACollectiveIsARegion) {
  const std::string text =
      "%x = input f32 [R, 8]\n%r = input f32 [R, 8]\n%g = input f32 [1, 8]\n%a = neg %x\n"
      "%s = all_reduce sum %a\n%t = add %s, %r\n%y = rms_norm %t, %g\nreturn %y\n";
  for (const std::vector<size_t>& nodes :
       std::vector<std::vector<size_t>>{{0, 1}, {1, 2}, {1, 2, 3}, {0, 1, 2}, {0, 1, 2, 3}}) {
    EXPECT_EQ(Why(text, nodes), std::nullopt) << nodes.size();
  }
}

TEST(LegalityTest, NoPathLeavesARegionAndReturns) {
  const std::string text =
      "%x = input f32 [R, 8]\n%s = all_reduce sum %x\n%a = mul %s, 2\n%b = add %a, %s\n"
      "%c = all_reduce max %b\n%d = add %c, %s\nreturn %d\n";
  EXPECT_THAT(Why(text, {0, 2}), Optional(Eq("the steps would wait for each other")));
  EXPECT_THAT(Why(text, {0, 4}), Optional(Eq("the steps would wait for each other")));
  EXPECT_EQ(Why(text, {0, 1, 2}), std::nullopt);
}

TEST(LegalityTest, AValueInFrontHasOneReader) {
  const std::string twice =
      "%x = input f32 [R, 8]\n%a = neg %x\n%s = all_reduce sum %a\n%y = add %s, %a\nreturn %y\n";
  EXPECT_THAT(Why(twice, {0, 1}),
              Optional(Eq("value %1 before the collective has further readers")));
  const std::string returned =
      "%x = input f32 [R, 8]\n%a = neg %x\n%s = all_reduce sum %a\nreturn %s, %a\n";
  EXPECT_THAT(Why(returned, {0, 1}),
              Optional(Eq("value %1 before the collective has further readers")));
  // An operation may read it twice.
  const std::string square =
      "%x = input f32 [R, 8]\n%a = neg %x\n%b = mul %a, %a\n%s = all_reduce sum %b\nreturn %s\n";
  EXPECT_EQ(Why(square, {0, 1, 2}), std::nullopt);
}

TEST(LegalityTest, ARegionHasEightOutputs) {
  std::string text = "%x = input f32 [R, 8]\n%s = all_reduce sum %x\n";
  std::string outputs;
  std::vector<size_t> nodes = {0};
  for (size_t i = 1; i <= 9; ++i) {
    text += fmt::format("%v{} = mul %s, {}\n", i, i);
    outputs += fmt::format("{}%v{}", i == 1 ? "" : ", ", i);
    nodes.push_back(i);
  }
  text += "return " + outputs + "\n";
  EXPECT_THAT(Why(text, nodes), Optional(Eq("more than 8 outputs")));
  nodes.pop_back();
  EXPECT_THAT(Why(text, nodes), Optional(Eq("more than 8 outputs")));  // the sum leaves, too
  nodes.pop_back();
  EXPECT_EQ(Why(text, nodes), std::nullopt);
}

TEST(LegalityTest, ARegionEndsWhereTheProgramRounds) {
  const std::string text =
      "%x = input bf16 [R, 8]\n%r = input bf16 [R, 8]\n%s = all_reduce sum %x\n"
      "%t = add %s, %r\n%u = mul %t, 3\n%v = relu %u\nreturn %v\n";
  EXPECT_THAT(Why(text, {0, 1}),
              Optional(Eq("%3 is rounded where the region would end, and not in the program")));
  EXPECT_THAT(Why(text, {0, 1, 2}),
              Optional(Eq("%4 is rounded where the region would end, and not in the program")));
  EXPECT_EQ(Why(text, {0, 1, 2, 3}), std::nullopt);
  const std::string before =
      "%x = input bf16 [R, 8]\n%a = mul %x, 3\n%b = mul %a, 3\n%s = all_reduce sum %b\nreturn %s\n";
  EXPECT_THAT(Why(before, {1, 2}),
              Optional(Eq("%1 is rounded where the region would end, and not in the program")));
  EXPECT_EQ(Why(before, {0, 1, 2}), std::nullopt);
}

// By numerics=same every step rounds every value. The other rules stay.
TEST(LegalityTest, ARegionEndsAnywhereIfEveryValueIsRounded) {
  const ProgramGraph graph = Graph(
      "%x = input bf16 [R, 8]\n%z = input bf16 [R, 8]\n%a = mul %z, 3\n%b = mul %a, 3\n"
      "%s = all_reduce sum %b\n%t = add %s, %x\n%u = mul %t, 3\n%v = add %u, %s\nreturn %v\n");
  const InputMap inputs = InputMap::OfProgram(graph);
  const Legality by_any(graph, inputs, NumericsRule::kAny);
  const Legality by_same(graph, inputs, NumericsRule::kSame);
  for (const Region& region : {Region{{2, 3}}, Region{{2, 3, 4}}, Region{{1, 2}}}) {
    EXPECT_THAT(by_any.WhyNotRegion(region),
                Optional(HasSubstr("is rounded where the region would end")));
    EXPECT_EQ(by_same.WhyNotRegion(region), std::nullopt);
    EXPECT_EQ(by_same.WhyNotRecipe(by_same.RecipeWith(region).value()), std::nullopt);
  }
  EXPECT_THAT(by_same.WhyNotRegion({{2, 3, 5}}),
              Optional(Eq("the steps would wait for each other")));
}

// The first operation after a sum of bf16, which another one follows outside of the region.
std::optional<std::string> WhyNotEndAfter(const std::string& operation, const std::string& next) {
  return Why("%x = input bf16 [R, 8]\n%s = all_reduce sum %x\n%a = " + operation +
                 "\n%b = " + next + "\nreturn %b\n",
             {0, 1});
}

TEST(LegalityTest, ARegionEndsWhereRoundingChangesNothing) {
  for (const char* operation : {"relu %s", "neg %s", "abs %s", "min %s, 0.5", "max %s, %s",
                                "clamp %s, low=-2, high=inf", "round %s", "where %s8, %s, 2"}) {
    std::string text = "%x = input bf16 [R, 8]\n%s = all_reduce sum %x\n";
    const bool selects = std::string(operation).starts_with("where");
    if (selects) text += "%s8 = less %s, 1\n";
    text += fmt::format("%a = {}\n%b = mul %a, 3\nreturn %b\n", operation);
    const std::vector<size_t> nodes =
        selects ? std::vector<size_t>{0, 1, 2} : std::vector<size_t>{0, 1};
    EXPECT_EQ(Why(text, nodes), std::nullopt) << operation;
  }
  EXPECT_EQ(WhyNotEndAfter("cast %s, to=f32", "mul %a, 3"), std::nullopt);
  EXPECT_EQ(WhyNotEndAfter("cast %s, to=f8_e4m3", "cast %a, to=f32"), std::nullopt);
  EXPECT_EQ(WhyNotEndAfter("less %s, 2", "cast %a, to=f32"), std::nullopt);
  EXPECT_EQ(WhyNotEndAfter("row_sum %s", "mul %a, 3"), std::nullopt);
  const auto is_rounded =
      Optional(Eq("%2 is rounded where the region would end, and not in the program"));
  for (const char* operation :
       {"mul %s, 3", "max %s, 0.1", "clamp %s, low=-0.1, high=1", "cast %s, to=f16", "exp %s"}) {
    EXPECT_THAT(WhyNotEndAfter(operation, "neg %a"), is_rounded) << operation;
  }
}

// A step keeps the value of a cast to bf16 in f32 for its own operations, so that a cast rounds
// nothing unless its value lies in memory.
TEST(LegalityTest, ACastToANarrowFloatIsNotRoundedByItself) {
  const std::string text =
      "%x = input f32 [R, 8]\n%s = all_reduce sum %x\n%a = cast %s, to=bf16\n"
      "%b = cast %a, to=f32\nreturn %b";
  EXPECT_THAT(Why(text + "\n", {0, 1}),
              Optional(Eq("%2 is rounded where the region would end, and not in the program")));
  EXPECT_EQ(Why(text + ", %a\n", {0, 1}), std::nullopt);
  // An 8-bit integer has few enough bits.
  EXPECT_EQ(Why("%x = input u8 [R, 8]\n%s = all_reduce max %x\n%a = cast %s, to=bf16\n"
                "%b = mul %a, 3\nreturn %b\n",
                {0, 1}),
            std::nullopt);
}

// %t leaves the part before the second collective, and is rounded. Inside of a region with the
// operation that reads it, it would not be.
TEST(LegalityTest, ARegionRoundsAllThatTheProgramRounds) {
  const std::string text =
      "%x = input bf16 [R, 8]\n%z = input bf16 [R, 8]\n%s = all_reduce sum %x\n%t = mul %s, 3\n"
      "%u = all_reduce sum %z\n%n = neg %u\n%m = all_reduce max %n\n%y = add %t, %m\nreturn %y\n";
  EXPECT_EQ(Why(text, {0, 1}), std::nullopt);
  EXPECT_THAT(Why(text, {0, 1, 5}),
              Optional(Eq("%3 is rounded in the program, and would not be in these steps")));
}

constexpr char kReadLater[] = "overwrites an input that a later step, or a peer, still reads";

TEST(LegalityTest, AnOutputOverwritesAnInputThatNoOneReadsLater) {
  // %p waits for the region, which would overwrite %r before.
  const std::string later =
      "%x = input f32 [R, 8]\n%r = input f32 [R, 8]\n%s = all_reduce sum %x\n%p = add %s, %r\n"
      "%y = mul %s, 2\nreturn %p, %y into %r\n";
  EXPECT_THAT(Why(later, {0, 2}),
              Optional(Eq("output %4 overwrites an input that a later step, or a peer, still "
                          "reads")));
  EXPECT_EQ(Why(later, {0, 1, 2}), std::nullopt);
  const std::string residual =
      "%x = input f32 [R, 8]\n%r = input f32 [R, 8]\n%s = all_reduce sum %x\n%t = add %s, %r\n"
      "return %t into %r\n";
  EXPECT_EQ(Why(residual, {0, 1}), std::nullopt);
  // The step that reads the operand once more waits for the region.
  const std::string operand =
      "%x = input f32 [R, 8]\n%s = all_reduce sum %x\n%z = add %s, %x\n%y = neg %s\n"
      "return %y into %x, %z\n";
  EXPECT_THAT(Why(operand, {0, 2}), Optional(HasSubstr(kReadLater)));
  EXPECT_EQ(Why(operand, {0, 1, 2}), std::nullopt);
}

// A rank has an element of a sum after all ranks have given theirs.
TEST(LegalityTest, AnOutputOverwritesTheOperandOfAnAllReduceAlone) {
  EXPECT_EQ(Why("%x = input f32 [R, 8]\n%s = all_reduce sum %x\n%y = neg %s\nreturn %y into %x\n",
                {0, 1}),
            std::nullopt);
  // So does one that overwrites what the operand is computed from.
  EXPECT_EQ(Why("%x = input f32 [R, 8]\n%r = input f32 [R, 8]\n%z = mul %x, %r\n"
                "%s = all_reduce sum %z\n%y = neg %s\nreturn %y into %r\n",
                {0, 1, 2}),
            std::nullopt);
  EXPECT_THAT(Why("%x = input f32 [R, 8]\n%s = broadcast %x, root=0\n%y = neg %s\n"
                  "return %y into %x\n",
                  {0, 1}),
              Optional(HasSubstr(kReadLater)));
  // A block of the value overwrites another block, which a peer may not have taken yet.
  EXPECT_THAT(
      Why("%x = input f32 [R, 8]\n%s = all_to_all %x\n%y = neg %s\nreturn %y into %x\n", {0, 1}),
      Optional(HasSubstr(kReadLater)));
  EXPECT_EQ(Why("%x = input f32 [R, 8]\n%z = input f32 [R, 8]\n%s = all_reduce sum %x\n"
                "%a = neg %s\n%t = all_reduce sum %z\n%b = neg %t\n"
                "return %a into %x, %b into %z\n",
                {0, 1, 2, 3}),
            std::nullopt);
}

TEST(LegalityTest, OperationsBeforeABroadcastStayOut) {
  EXPECT_THAT(
      Why("%x = input f32 [R, 8]\n%a = neg %x\n%s = broadcast %a, root=0\nreturn %s\n", {0, 1}),
      Optional(Eq("the root alone has operations before a broadcast")));
}

TEST(LegalityTest, ABucketIsOneStepWithTheOperationsOfItsCollectives) {
  const std::string inputs = "%x = input f32 [R, 8]\n%z = input f32 [R, 8]\n";
  const std::string alike =
      "%s = all_reduce sum %x\n%a = neg %s\n%t = all_reduce sum %z\n%b = neg %t\n";
  EXPECT_EQ(Why(inputs + alike + "return %a, %b\n", {0, 1, 2, 3}), std::nullopt);
  EXPECT_THAT(Why(inputs + "%s = all_reduce sum %x\n%a = neg %s\n%t = all_reduce max %z\n"
                           "%b = neg %t\nreturn %a, %b\n",
                  {0, 1, 2, 3}),
              Optional(Eq("the collectives of a bucket have one kind, reduction, root and dtype")));
  // One piece may be written before the other one is read.
  const std::string crossed = inputs +
                              "%s = all_reduce sum %x\n%a = add %s, %z\n"
                              "%t = all_reduce sum %x\n%b = neg %t\n";
  EXPECT_THAT(Why(crossed + "return %a, %b into %z\n", {0, 1, 2, 3}),
              Optional(HasSubstr("output %5 overwrites an input")));
}

TEST(LegalityTest, ARegionHasOneCollective) {
  const std::string text =
      "%x = input f32 [R, 8]\n%z = input f32 [R, 8]\n%s = all_reduce sum %x\n%a = neg %s\n"
      "%t = all_reduce sum %a\n%u = all_reduce sum %z\n%y = add %t, %u\nreturn %y\n";
  EXPECT_THAT(Why(text, {0, 1, 2}), Optional(Eq("two collectives on one path")));
  EXPECT_THAT(Why(text, {2, 3, 4}),
              Optional(Eq("%6 belongs to no collective of the bucket alone")));
  EXPECT_THAT(Why(text, {1}), Optional(Eq("a region has a collective")));
  EXPECT_THAT(Why(text, {1, 3}), Optional(Eq("no path leads from or to the collective")));
}

TEST(LegalityTest, RowsAreReducedOverTheColumnsOfTheCollective) {
  const std::string text =
      "%x = input f32 [R, 1]\n%w = input f32 [R, 8]\n%s = all_reduce sum %x\n%a = mul %s, %w\n"
      "%b = row_sum %a\nreturn %b\n";
  EXPECT_EQ(Why(text, {0, 1}), std::nullopt);
  EXPECT_THAT(Why(text, {0, 1, 2}),
              Optional(Eq("it reduces over other columns than the collective's")));
}

TEST(LegalityTest, ASideHasTheRowsOfItsOperand) {
  const std::string text =
      "%x = input f32 [1, 8]\n%w = input f32 [R, 8]\n%s = all_reduce sum %x\n%a = add %s, %w\n"
      "%t = all_reduce sum %a\nreturn %t\n";
  EXPECT_THAT(Why(text, {0, 1}), Optional(Eq("its value has other rows than the collective's")));
  EXPECT_EQ(Why(text, {1, 2}), std::nullopt);
  // A gather has its share before it, and all rows after it.
  EXPECT_EQ(Why("%x = input f32 [R/n, 8]\n%a = neg %x\n%s = all_gather %a\n%b = relu %s\n"
                "return %b\n",
                {0, 1, 2}),
            std::nullopt);
}

// %p and %q are one part. The region of %t waits for the third collective, and %q waits for it.
TEST(LegalityTest, ARegionDoesNotCutAPartInTwo) {
  EXPECT_THAT(Why("%x = input bf16 [R, 8]\n%z = input bf16 [R, 8]\n%s = all_reduce sum %x\n"
                  "%t = all_reduce sum %z\n%n = neg %s\n%v = all_reduce max %n\n"
                  "%e = add %t, %v\n%p = mul %s, 3\n%q = add %p, %t\nreturn %q, %e\n",
                  {1, 4}),
              Optional(Eq("%7 would be rounded between two steps, and is not in the "
                          "program")));
}

TEST(LegalityTest, AnOperationThatReadsAnInputWithNofuseStaysOut) {
  const auto text = [](const std::string& flag) {
    return "%x = input f32 [R, 8] nofuse\n%r = input f32 [R, 8]" + flag +
           "\n%s = all_reduce sum %x\n%t = add %s, %r\n%y = relu %t\n%z = neg %s\n"
           "return %y, %z\n";
  };
  EXPECT_EQ(Why(text(""), {0, 1, 2}), std::nullopt) << "a collective itself may read it";
  EXPECT_EQ(Why(text(" nofuse"), {0, 3}), std::nullopt);
  EXPECT_THAT(Why(text(" nofuse"), {0, 1, 2}), Optional(Eq("input %1 has the flag nofuse")));
}

TEST(LegalityTest, SettingsLeaveRegionsOut) {
  FusionRules off;
  off.enabled = false;
  FusionRules epilogues;
  epilogues.types = static_cast<uint8_t>(FusionType::kEpilogue);
  FusionRules prologues;
  prologues.types = static_cast<uint8_t>(FusionType::kPrologue);
  FusionRules untimed;
  untimed.benchmarks_epilogues = false;
  FusionRules once;
  once.is_recursive = false;
  EXPECT_EQ(WhyLeftOut({4, 4}, {}), std::nullopt);
  EXPECT_THAT(WhyLeftOut({5, 0}, {}), Optional(Eq("deeper than max_fusion_depth (4)")));
  EXPECT_THAT(WhyLeftOut({0, 5}, {}), Optional(Eq("deeper than max_fusion_depth (4)")));
  EXPECT_THAT(WhyLeftOut({0, 1}, off), Optional(Eq("collective_fusion_enabled is off")));
  EXPECT_THAT(WhyLeftOut({1, 1}, epilogues),
              Optional(Eq("custom_op_fusion_types leaves prologues out")));
  EXPECT_EQ(WhyLeftOut({0, 1}, epilogues), std::nullopt);
  EXPECT_THAT(WhyLeftOut({1, 1}, prologues),
              Optional(Eq("custom_op_fusion_types leaves epilogues out")));
  EXPECT_THAT(WhyLeftOut({1, 1}, untimed),
              Optional(Eq("benchmark_collective_epilogue_fusion is off")));
  EXPECT_EQ(WhyLeftOut({1, 0}, untimed), std::nullopt);
  EXPECT_THAT(WhyLeftOut({2, 0}, once), Optional(Eq("enable_recursive_fusion is off")));
  EXPECT_EQ(WhyLeftOut({1, 1}, once), std::nullopt);
}

TEST(LegalityTest, ARegionAbsorbsANode) {
  const ProgramGraph graph = Graph(
      "%x = input bf16 [R, 8]\n%a = neg %x\n%s = all_reduce sum %a\n%b = mul %s, 3\n"
      "%c = mul %b, 3\n%t = all_reduce sum %c\nreturn %t\n");
  // The region that ends at %b is illegal, and may grow further.
  EXPECT_EQ(WhyNotAbsorb(graph, {{1}}, 2, {}), std::nullopt);
  EXPECT_NE(WhyNotRegion(graph, {{1, 2}}), std::nullopt);
  EXPECT_EQ(WhyNotAbsorb(graph, {{1, 2}}, 3, {}), std::nullopt);
  EXPECT_EQ(WhyNotRegion(graph, {{1, 2, 3}}), std::nullopt);
  EXPECT_THAT(WhyNotAbsorb(graph, {{1, 2, 3}}, 4, {}), Optional(Eq("two collectives on one path")));
  FusionRules shallow;
  shallow.max_depth = 1;
  EXPECT_THAT(WhyNotAbsorb(graph, {{1, 2}}, 3, shallow),
              Optional(Eq("deeper than max_fusion_depth (1)")));
  EXPECT_EQ(WhyNotAbsorb(graph, {{1, 2}}, 0, shallow), std::nullopt);
}

}  // namespace
}  // namespace cotune
