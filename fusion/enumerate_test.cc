#include "fusion/enumerate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/recipe/recipe_id.h"
#include "core/testing/parsed.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr ProgramSize kSize{64, 4};

ProgramGraph Example(const std::string& name) {
  std::ifstream file("examples/programs/" + name + ".cotune");
  std::stringstream text;
  text << file.rdbuf();
  return Graph(text.str());
}

// The keys of the regions of a collective, and the refusals.
struct Found {
  std::vector<std::string> keys;
  std::vector<Refusal> refusals;
};
Found Find(const ProgramGraph& graph, const FusionRules& rules = {}, size_t place = 0) {
  Found found;
  const size_t collective = graph.collectives()[place];
  for (const Region& region : EnumerateRegions(graph, collective, kSize, rules, found.refusals)) {
    found.keys.push_back(FuseText(graph, region));
  }
  return found;
}

auto Refused(const std::string& choice, const std::string& reason) {
  return AllOf(Field(&Refusal::choice, choice), Field(&Refusal::reason, reason));
}

TEST(EnumerateTest, TheExamples) {
  // The stream is an output, and so is rounded; the region may end there.
  EXPECT_THAT(Find(Example("add_residual_norm")).keys, ElementsAre("1.2", "1"));
  // The norm is not, and the quantized values are rounded by themselves.
  EXPECT_THAT(Find(Example("norm_quantize_fp8")).keys, ElementsAre("1.2.3.4", "1"));
  EXPECT_THAT(Find(Example("tp_linear")).keys, ElementsAre("1.2"));
  EXPECT_THAT(Find(Example("moe_dispatch")).keys, ElementsAre("-1"));
  EXPECT_THAT(Find(Example("sequence_norm")).keys, ElementsAre("1"));
  EXPECT_THAT(Find(Example("sequence_norm"), {}, 1).keys, ElementsAre("-1"));
  for (size_t place = 0; place < 16; ++place) {
    EXPECT_THAT(Find(Example("gradient_bucket"), {}, place).keys, ElementsAre("16")) << place;
  }
}

TEST(EnumerateTest, TheExamplesNameTheReasons) {
  EXPECT_THAT(Find(Example("norm_quantize_fp8")).refusals,
              ElementsAre(Refused(
                  "fuse=1.2", "%5 is rounded where the region would end, and not in the program")));
  EXPECT_THAT(Find(Example("sequence_norm")).refusals,
              ElementsAre(Refused("fuse=1.2", "two collectives on one path")));
  EXPECT_THAT(Find(Example("sequence_norm"), {}, 1).refusals,
              ElementsAre(Refused("fuse=-2.-1", "two collectives on one path")));
}

std::string Chain(const std::string& dtype, int before, int after) {
  std::string text = "%x = input " + dtype + " [R, 8]\n";
  std::string last = "%x";
  const auto add = [&](const std::string& name, const std::string& operation) {
    text += name + " = " + operation + " " + last;
    last = name;
  };
  for (int i = 0; i < before; ++i) {
    add("%b" + std::to_string(i), "mul");
    text += ", 3\n";
  }
  add("%s", "all_reduce sum");
  text += "\n";
  for (int i = 0; i < after; ++i) {
    add("%a" + std::to_string(i), "mul");
    text += ", 3\n";
  }
  return text + "return " + last + "\n";
}

TEST(EnumerateTest, EveryLegalPrefixIsARegion) {
  EXPECT_THAT(Find(Graph(Chain("f32", 0, 3))).keys, ElementsAre("1.2.3", "1", "1.2"));
  EXPECT_THAT(Find(Graph(Chain("f32", 3, 0))).keys, ElementsAre("-3.-2.-1", "-1", "-2.-1"));
  EXPECT_THAT(Find(Graph(Chain("f32", 2, 1))).keys,
              ElementsAre("-2.-1.1", "1", "-1.1", "-2.-1", "-1"));
}

// A prefix that ends at an unrounded value is no region, and growth goes on past it.
TEST(EnumerateTest, GrowthGoesPastIllegalPrefixes) {
  const Found found = Find(Graph(Chain("bf16", 3, 4)));
  EXPECT_THAT(found.keys, ElementsAre("-3.-2.-1.1.2.3.4", "1.2.3.4", "-3.-2.-1"));
  EXPECT_THAT(found.refusals, SizeIs(5));  // once each unrounded value
  EXPECT_THAT(Find(Graph(Chain("bf16", 0, 5))).keys, IsEmpty());
}

TEST(EnumerateTest, ACollectiveHasTwelveRegions) {
  const Found found = Find(Graph(Chain("f32", 4, 4)));
  ASSERT_THAT(found.keys, SizeIs(12));
  EXPECT_EQ(found.keys[0], "-4.-3.-2.-1.1.2.3.4");
  EXPECT_THAT(found.refusals,
              Contains(Field(&Refusal::reason, "beyond 12 regions of a collective")));
}

// An operation joins when all operations between it and the collective have joined; the nearer ones
// come first.
TEST(EnumerateTest, GrowthIsBreadthFirst) {
  const Found found =
      Find(Graph("%x = input f32 [R, 8]\n%s = all_reduce sum %x\n%a = mul %s, 2\n%b = mul %a, 2\n"
                 "%c = mul %s, 3\n%d = add %b, %s\n%e = add %d, %c\nreturn %a, %b, %c, %d, %e\n"));
  EXPECT_THAT(found.keys, UnorderedElementsAre("1", "1.3", "1.2.3", "1.2.3.4"));
  const Found before = Find(Graph(
      "%x = input f32 [R, 8]\n%a = mul %x, 2\n%b = mul %a, 2\n%c = mul %x, 3\n%d = add %b, %c\n"
      "%s = all_reduce sum %d\nreturn %s\n"));
  EXPECT_THAT(before.keys, ElementsAre("-4.-3.-2.-1", "-3.-2.-1"));
  // The shorter ones leave two operations out, whose values are more than the operand.
  EXPECT_THAT(before.refusals, ElementsAre(Refused("fuse=-1",
                                                   "more memory between the steps than without the "
                                                   "region")));
}

TEST(EnumerateTest, RulesLeaveRegionsOutAndNameTheSetting) {
  const ProgramGraph graph = Graph(Chain("f32", 2, 2));
  const Found all = Find(graph);
  EXPECT_THAT(all.keys, SizeIs(8));
  EXPECT_THAT(all.refusals, IsEmpty());

  FusionRules rules;
  rules.enabled = false;
  Found found = Find(graph, rules);
  EXPECT_THAT(found.keys, IsEmpty());
  EXPECT_THAT(found.refusals,
              ElementsAre(Refused("fuse=-2.-1.1.2", "collective_fusion_enabled is off")));

  rules = {};
  rules.types = static_cast<uint8_t>(FusionType::kEpilogue);
  found = Find(graph, rules);
  EXPECT_THAT(found.keys, ElementsAre("1.2", "1"));
  EXPECT_THAT(found.refusals, ElementsAre(Refused("fuse=-2.-1.1.2",
                                                  "custom_op_fusion_types leaves prologues out")));

  rules.types = static_cast<uint8_t>(FusionType::kPrologue);
  found = Find(graph, rules);
  EXPECT_THAT(found.keys, ElementsAre("-2.-1", "-1"));
  EXPECT_THAT(found.refusals, ElementsAre(Refused("fuse=-2.-1.1.2",
                                                  "custom_op_fusion_types leaves epilogues out")));

  rules = {};
  rules.benchmarks_epilogues = false;
  found = Find(graph, rules);
  EXPECT_THAT(found.keys, ElementsAre("-2.-1", "-1"));
  EXPECT_THAT(found.refusals, ElementsAre(Refused("fuse=-2.-1.1.2",
                                                  "benchmark_collective_epilogue_fusion is off")));

  rules = {};
  rules.is_recursive = false;
  found = Find(graph, rules);
  EXPECT_THAT(found.keys, UnorderedElementsAre("-1.1", "-1", "1"));
  EXPECT_THAT(found.refusals,
              ElementsAre(Refused("fuse=-2.-1.1.2", "enable_recursive_fusion is off")));
}

TEST(EnumerateTest, DepthIsCountedOnEachSide) {
  const Found found = Find(Graph(Chain("f32", 0, 6)));
  EXPECT_THAT(found.keys, UnorderedElementsAre("1", "1.2", "1.2.3", "1.2.3.4"));
  EXPECT_THAT(found.refusals,
              ElementsAre(Refused("fuse=1.2.3.4.5", "deeper than max_fusion_depth (4)")));
  FusionRules deep;
  deep.max_depth = 6;
  EXPECT_THAT(Find(Graph(Chain("f32", 0, 6)), deep).keys, SizeIs(6));
  deep.max_depth = 1'000'000;
  const Found deepest = Find(Graph(Chain("f32", 30, 30)), deep);
  EXPECT_THAT(deepest.keys, SizeIs(12));
  EXPECT_THAT(deepest.refusals, SizeIs(1));
  FusionRules none;
  none.max_depth = 0;
  EXPECT_THAT(Find(Graph(Chain("f32", 1, 1)), none).keys, IsEmpty());
}

TEST(EnumerateTest, RegionsNeedNoMoreMemoryBetweenSteps) {
  const Found found =
      Find(Graph("%x = input f32 [R, 8]\n%s = all_reduce sum %x\n%m = row_max %s\n%y = sub %s, %m\n"
                 "%z = exp %y\nreturn %z\n"));
  EXPECT_THAT(found.keys, ElementsAre("1.2.3", "1.2"));
  EXPECT_THAT(found.refusals, ElementsAre(Refused("fuse=1",
                                                  "more memory between the steps than without the "
                                                  "region")));
}

TEST(EnumerateTest, RegionsOfEqualSurroundingsHaveOneOrder) {
  std::string text;
  std::string layers;
  for (const char* lane : {"a", "b", "c"}) {
    const std::string n = lane;
    text += "%x" + n + " = input f32 [R, 8]\n";
    layers += "%p" + n + " = neg %x" + n + "\n%s" + n + " = all_reduce sum %p" + n + "\n%q" + n +
              " = relu %s" + n + "\n%r" + n + " = exp %q" + n + "\n";
  }
  const ProgramGraph graph = Graph(text + layers + "return %ra, %rb, %rc\n");
  const Found first = Find(graph, {}, 0);
  EXPECT_THAT(first.keys, SizeIs(5));
  EXPECT_EQ(Find(graph, {}, 1).keys, first.keys);
  EXPECT_EQ(Find(graph, {}, 2).keys, first.keys);
}

TEST(EnumerateTest, RefusalsNameTheFormOnce) {
  Form form = FormWithoutRegions("split", Graph(Chain("f32", 0, 6)));
  std::vector<Refusal> refusals;
  AddRegions(form, kSize, {}, NumericsRule::kAny, refusals);
  AddRegions(form, kSize, {}, NumericsRule::kAny, refusals);
  EXPECT_THAT(form.positions[0].regions, SizeIs(4));
  EXPECT_THAT(refusals,
              ElementsAre(Refused("fuse=1.2.3.4.5&via=split", "deeper than max_fusion_depth (4)")));
}

}  // namespace
}  // namespace cotune
