#include "fusion/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/problem/choice_id.h"
#include "core/recipe/make_recipe.h"
#include "core/recipe/recipe_id.h"
#include "core/testing/parsed.h"
#include "fmt/format.h"
#include "fusion/fusion_recipes.h"
#include "fusion/legality.h"
#include "fusion/rewrite.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The graph of the form as a text.
std::string TextOf(const Result<Form>& form) {
  return form ? form->graph.ToText() : form.error().what;
}

std::string WhyNot(const std::string& text) {
  const Result<Form> form = SplitForm(Graph(text));
  return form ? "it is split: " + form->graph.ToText() : form.error().what;
}

// The steps of the form without regions: "all_gather", or "add, rms_norm".
std::vector<std::string> StepsOf(const Form& form) {
  std::vector<std::string> steps;
  const Recipe recipe = MakeRecipe(form.graph, form.inputs, {}).value();
  for (const RecipeStep& step : recipe.steps) {
    std::string& text = steps.emplace_back();
    for (const size_t node : step.nodes) {
      text += (text.empty() ? "" : ", ") + std::string(Name(form.graph.nodes()[node]));
    }
  }
  return steps;
}

constexpr char kBiasRelu[] =
    "%x = input f32 [R, 8]\n%b = input f32 [1, 8] replicated\n"
    "%s = all_reduce sum %x\n%t = add %s, %b\n%y = relu %t\nreturn %y\n";

constexpr char kNorm[] =
    "%x = input bf16 [R, 64]\n%residual = input bf16 [R, 64] replicated\n"
    "%gamma = input bf16 [1, 64] replicated\n%sum = all_reduce sum %x\n"
    "%stream = add %sum, %residual\n%y = rms_norm %stream, %gamma, eps=1e-6\n"
    "return %y, %stream into %residual\n";

TEST(SplitTest, LocalOperationsRunOnAShareOfTheRows) {
  const Result<Form> form = SplitForm(Graph(kBiasRelu));
  EXPECT_EQ(TextOf(form), Graph("%x = input f32 [R, 8]\n%b = input f32 [1, 8] replicated\n"
                                "%s = reduce_scatter sum %x\n%t = add %s, %b\n%u = relu %t\n"
                                "%y = all_gather %u\nreturn %y\n")
                              .ToText());
  ASSERT_TRUE(form.has_value());
  EXPECT_EQ(form->via, "split");
  EXPECT_THAT(form->positions, SizeIs(2));
  EXPECT_EQ(form->inputs, InputMap::OfProgram(form->graph));
  EXPECT_THAT(StepsOf(*form), ElementsAre("reduce_scatter", "add, relu", "all_gather"));
}

// The graph has the whole residual for the output that overwrites it, and a share that is read.
TEST(SplitTest, AnInputIsReadByShares) {
  const Form form = SplitForm(Graph(kNorm)).value();
  EXPECT_EQ(form.graph.ToText(),
            Graph("%x = input bf16 [R, 64]\n%residual = input bf16 [R, 64] replicated\n"
                  "%gamma = input bf16 [1, 64] replicated\n%share = input bf16 [R/n, 64]\n"
                  "%sum = reduce_scatter sum %x\n%stream = add %sum, %share\n"
                  "%y = rms_norm %stream, %gamma, eps=1e-6\n%b = all_gather %y\n"
                  "%a = all_gather %stream\nreturn %b, %a into %residual\n")
                .ToText());
  EXPECT_THAT(form.inputs.inputs, ElementsAre(InputMap::Input{0, false}, InputMap::Input{1, false},
                                              InputMap::Input{2, false}, InputMap::Input{1, true}));
  const Recipe recipe = MakeRecipe(form.graph, form.inputs, {}).value();
  EXPECT_THAT(StepsOf(form),
              ElementsAre("reduce_scatter", "add, rms_norm", "all_gather", "all_gather"));
  // Inputs have the slots 0 to 2, outputs 3 and 4, the share of the residual has 5.
  EXPECT_EQ(recipe.first_output(), 3);
  EXPECT_EQ(recipe.first_share(), 5);
  EXPECT_EQ(recipe.first_temporary(), 6);
  EXPECT_THAT(recipe.steps[1].inputs, ElementsAre(2, 5, 6));
  EXPECT_THAT(recipe.steps[2].outputs, ElementsAre(3));
  EXPECT_THAT(recipe.steps[3].outputs, ElementsAre(1));
}

TEST(SplitTest, AnInputThatIsReadByRowsAloneIsNoInputOfTheGraph) {
  const Form form = SplitForm(Graph("%r = input f32 [R, 8] replicated\n%x = input f32 [R, 8]\n"
                                    "%s = all_reduce sum %x\n%y = mul %s, %r\nreturn %y\n"))
                        .value();
  EXPECT_THAT(form.inputs.inputs, ElementsAre(InputMap::Input{1, false}, InputMap::Input{0, true}));
  EXPECT_EQ(form.inputs.program_inputs, 2u);
  const Recipe recipe = MakeRecipe(form.graph, form.inputs, {}).value();
  // The collective reads the program's second input, and its output is that of the program.
  EXPECT_THAT(recipe.steps[0].inputs, ElementsAre(1));
  EXPECT_THAT(recipe.steps.back().outputs, ElementsAre(2));
}

TEST(SplitTest, EachRefusalHasAReason) {
  EXPECT_EQ(WhyNot("%x = input f32 [R, 8]\n%s = all_reduce sum %x\nreturn %s\n"),
            "no operation that could run on R/n rows follows an all_reduce");
  EXPECT_EQ(WhyNot("%x = input f32 [R, 8]\n%s = all_reduce sum %x\n%y = add %s, %x\nreturn %y\n"),
            "operand %0 of %2 is not replicated");
  EXPECT_EQ(WhyNot("%x = input f32 [R, 8]\n%b = input f32 [1, 8]\n%s = all_reduce sum %x\n"
                   "%y = add %s, %b\nreturn %y\n"),
            "operand %1 of %3 is not replicated");
  EXPECT_EQ(WhyNot("%x = input f32 [R, 8]\n%s = all_reduce sum %x\n%t = broadcast %x, root=0\n"
                   "%y = add %s, %t\nreturn %y\n"),
            "operand %2 of %3 is neither a replicated input nor computed from one");
  EXPECT_EQ(WhyNot("%x = input f32 [1, 8]\n%s = all_reduce sum %x\n%y = relu %s\nreturn %y\n"),
            "no all_reduce has R rows");
  EXPECT_EQ(WhyNot("%x = input f32 [R/n, 8]\n%s = all_gather %x\n%y = relu %s\nreturn %y\n"),
            "no all_reduce has R rows");
}

// %u reads an input that every rank has for itself, and runs on R rows after the gather.
TEST(SplitTest, AnOperationThatCannotRunOnSharesFollowsTheGather) {
  const Form form = SplitForm(Graph("%x = input f32 [R, 8]\n%s = all_reduce sum %x\n"
                                    "%t = relu %s\n%u = add %t, %x\n%y = neg %u\nreturn %y\n"))
                        .value();
  EXPECT_THAT(StepsOf(form), ElementsAre("reduce_scatter", "relu", "all_gather", "add, neg"));
}

TEST(SplitTest, AValueThatIsReadTwiceIsGatheredOnce) {
  const Form form = SplitForm(Graph("%x = input f32 [R, 8]\n%s = all_reduce sum %x\n%t = relu %s\n"
                                    "%u = add %t, %x\n%v = mul %t, %x\nreturn %u, %v, %t, %s\n"))
                        .value();
  EXPECT_EQ(form.graph.ToText(),
            Graph("%x = input f32 [R, 8]\n%s = reduce_scatter sum %x\n%t = relu %s\n"
                  "%T = all_gather %t\n%u = add %T, %x\n%v = mul %T, %x\n%S = all_gather %s\n"
                  "return %u, %v, %T, %S\n")
                .ToText());
}

// The second operand of an operation on shares may be computed from replicated inputs.
TEST(SplitTest, OperationsOnReplicatedInputsRunWhereTheirReadersDo) {
  const std::string begin =
      "%x = input f32 [R, 8]\n%r = input f32 [R, 8] replicated\n%h = mul %r, 0.5\n"
      "%s = all_reduce sum %x\n%y = add %s, %h\n";
  const Form alone = SplitForm(Graph(begin + "return %y\n")).value();
  EXPECT_THAT(StepsOf(alone), ElementsAre("mul", "reduce_scatter", "add", "all_gather"));
  EXPECT_THAT(alone.inputs.inputs,
              ElementsAre(InputMap::Input{0, false}, InputMap::Input{1, true}));
  // It is an output, too: it is computed on all rows and on a share of them.
  const Form twice = SplitForm(Graph(begin + "return %y, %h\n")).value();
  EXPECT_EQ(twice.graph.ToText(),
            Graph("%x = input f32 [R, 8]\n%r = input f32 [R, 8] replicated\n"
                  "%share = input f32 [R/n, 8]\n%k = mul %share, 0.5\n%h = mul %r, 0.5\n"
                  "%s = reduce_scatter sum %x\n%t = add %s, %k\n%y = all_gather %t\n"
                  "return %y, %h\n")
                .ToText());
}

TEST(SplitTest, AllAllReducesAreSplitThatCanBe) {
  const std::string begin =
      "%x = input f32 [R, 8]\n%z = input f32 [R, 8]\n%s = all_reduce sum %x\n"
      "%t = all_reduce max %z\n";
  const Form both = SplitForm(Graph(begin + "%y = add %s, %t\nreturn %y\n")).value();
  EXPECT_THAT(StepsOf(both), ElementsAre("reduce_scatter", "reduce_scatter", "add", "all_gather"));
  // Nothing reads the value of the second one.
  const Form first = SplitForm(Graph(begin + "%y = relu %s\nreturn %y, %t\n")).value();
  EXPECT_THAT(StepsOf(first), ElementsAre("reduce_scatter", "all_reduce", "relu", "all_gather"));
}

// Three in a row would be six collectives in a row: two of them are split.
TEST(SplitTest, AProgramHasAsManyCollectivesAsOthers) {
  const Form form = SplitForm(Graph("%x = input f32 [R, 8]\n%s = all_reduce sum %x\n%a = relu %s\n"
                                    "%t = all_reduce sum %a\n%b = relu %t\n%u = all_reduce sum %b\n"
                                    "%y = relu %u\nreturn %y\n"))
                        .value();
  EXPECT_THAT(StepsOf(form), ElementsAre("reduce_scatter", "relu", "all_gather", "all_reduce",
                                         "relu", "all_reduce", "relu"));
}

TEST(SplitTest, ASixteenthInputHasNoShare) {
  std::string program;
  for (int i = 0; i < 14; ++i) program += fmt::format("%g{} = input f32 [R, 8] replicated\n", i);
  // Each input is read whole, and by rows.
  program += "%x = input f32 [R, 8]\n%s = all_reduce sum %x\n";
  std::string outputs;
  std::string before = "%s";
  for (int i = 0; i < 14; ++i) {
    program += fmt::format("%w{} = add {}, %g{}\n%h{} = all_to_all %g{}\n", i, before, i, i, i);
    before = fmt::format("%w{}", i);
    outputs += fmt::format(", %h{}", i);
  }
  EXPECT_EQ(WhyNot(program + "return " + before + outputs + "\n"),
            "the form would be no program: there are 29 inputs");
}

// relu rounds nothing, and gelu does: its value may only be gathered if the program rounds it, too.
TEST(SplitTest, NoValueIsRoundedInTheFormAlone) {
  const auto text = [](const std::string& dtype, const std::string& end) {
    return "%x = input " + dtype + " [R, 8]\n%s = all_reduce sum %x\n" + end;
  };
  const std::string gelu = "%t = gelu %s\n%y = add %t, %x\nreturn %y\n";
  EXPECT_EQ(WhyNot(text("bf16", gelu)),
            "%2 would be rounded between two steps, and is not in the program");
  EXPECT_TRUE(SplitForm(Graph(text("f32", gelu))).has_value());
  EXPECT_TRUE(SplitForm(Graph(text("bf16", "%t = gelu %s\n%y = add %t, %x\nreturn %y, %t\n"))));
  const Form shorter =
      SplitForm(Graph(text("bf16", "%r = relu %s\n" + std::string("%t = gelu %r\n"
                                                                  "%y = add %t, %x\nreturn %y\n"))))
          .value();
  EXPECT_THAT(StepsOf(shorter), ElementsAre("reduce_scatter", "relu", "all_gather", "gelu, add"));
}

TEST(SplitTest, NofuseStaysWithAShare) {
  const Form form =
      SplitForm(Graph("%x = input f32 [R, 8]\n%r = input f32 [R, 8] replicated nofuse\n"
                      "%s = all_reduce sum %x\n%y = add %s, %r\n%z = relu %y\nreturn %z\n"))
          .value();
  const Legality legality(form.graph, form.inputs);
  EXPECT_EQ(legality.WhyNotNode(0, 1), "input %1 has the flag nofuse");
}

// A region that gathers over the residual while it reads its share of it.
TEST(SplitTest, NoRegionOverwritesAnInputThatAPeerReadsByRows) {
  const Form form = SplitForm(Graph("%x = input f32 [R, 8]\n%r = input f32 [R, 8] replicated\n"
                                    "%s = all_reduce sum %x\n%y = add %s, %r\nreturn %y into %r\n"))
                        .value();
  ASSERT_THAT(StepsOf(form), ElementsAre("reduce_scatter", "add", "all_gather"));
  const Legality legality(form.graph, form.inputs);
  EXPECT_THAT(legality.WhyNotRegion({{1, 2}}).value_or(""),
              HasSubstr("overwrites an input that a later step, or a peer, still reads"));
  EXPECT_EQ(legality.WhyNotRegion({{0, 1}}), std::nullopt);
}

TEST(SplitTest, NoStepReadsAShareOfAnInputThatWasOverwritten) {
  // The all_gather stands first in this graph; the part reads the share all the same.
  const ProgramGraph graph = Graph(
      "%r = input f32 [R, 8]\n%share = input f32 [R/n, 8]\n%x = input f32 [R/n, 8]\n"
      "%g = all_gather %x\n%y = relu %share\nreturn %g into %r, %y\n");
  const InputMap inputs{{{0, false}, {0, true}, {1, false}}, 2};
  const Recipe recipe = MakeRecipe(graph, inputs, {}).value();
  ASSERT_THAT(recipe.steps, SizeIs(2));
  EXPECT_TRUE(recipe.steps[0].is_part());
  EXPECT_FALSE(recipe.steps[1].is_part());
  // The part needs the gathered value, which would overwrite what it reads.
  const ProgramGraph cyclic = Graph(
      "%r = input f32 [R, 8]\n%share = input f32 [R/n, 8]\n%x = input f32 [R/n, 8]\n"
      "%g = all_gather %x\n%b = reduce_scatter sum %g\n%y = add %b, %share\n"
      "return %g into %r, %y\n");
  const Result<Recipe> refused = MakeRecipe(cyclic, inputs, {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().what, "the steps would wait for each other");
}

TEST(SplitTest, AnIdNamesItsRecipe) {
  const ProgramGraph graph = Graph(kNorm);
  const FusionRecipes recipes;
  const RecipeInWords words =
      InWords(recipes, graph,
              ChoiceId::Parse("host/a?via=split+host/b?via=split+host/b?via=split").value())
          .value();
  EXPECT_EQ(words.via, "split");
  ASSERT_THAT(words.steps, SizeIs(4));
  EXPECT_THAT(words.steps[0].operations, ElementsAre("reduce_scatter"));
  EXPECT_EQ(words.steps[0].choice->text(), "host/a");
  EXPECT_THAT(words.steps[1].operations, ElementsAre("add", "rms_norm"));
  EXPECT_EQ(words.steps[1].choice, std::nullopt);
  EXPECT_EQ(words.steps[3].choice->text(), "host/b");
  // Operations stand after the reduce_scatter, or before an all_gather, in a region.
  const auto fused = [&](const std::string& text) {
    return recipes.RecipeOf(graph, ChoiceId::Parse(text).value());
  };
  EXPECT_TRUE(fused("host/a?fuse=1.2&via=split+host/b?via=split+host/b?via=split").has_value());
  const auto two = fused("host/a?via=split+host/b?via=split");
  ASSERT_FALSE(two.has_value());
  EXPECT_THAT(two.error().what, HasSubstr("has 3 in this form"));
}

TEST(SplitTest, CallsOfSharesAreNoCallsOfRegisteredBuffers) {
  const Program program =
      Program::Bind(Graph(kNorm), {MemoryKind::kHost, 2, 2, BufferClass::kSymmetric}).value();
  const ChoiceId id = ChoiceId::Parse("h/a?fuse=1&via=split+h/b?via=split+h/b?via=split").value();
  const Recipe recipe = FusionRecipes().RecipeOf(program.graph(), id).value();
  const std::vector<BackendCall> calls = BackendCalls(recipe, program, 10, 7).value();
  ASSERT_THAT(calls, SizeIs(3));
  EXPECT_EQ(calls[0].why_plain, "it reads other rows of an input on each rank");
  EXPECT_EQ(calls[0].program.group().buffers, BufferClass::kPlain);
  EXPECT_EQ(calls[1].problem.cls.collective, Collective::kAllGather);
  EXPECT_THAT(calls[1].why_plain, HasSubstr("its operand lies between two steps"));
  const auto uneven = BackendCalls(recipe, program, 11, 7);
  ASSERT_FALSE(uneven.has_value());
  EXPECT_EQ(uneven.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(uneven.error().what, "2 ranks have no equal shares of 11 rows");
}

TEST(SplitTest, SettingsAndSizesLeaveItOutWithAReason) {
  const auto reason = [&](const FusionRules& rules, uint64_t rows, int32_t ranks) -> std::string {
    const Program program =
        Program::Bind(Graph(kBiasRelu), {MemoryKind::kHost, ranks, ranks}).value();
    std::vector<Refusal> refusals;
    const std::vector<Form> forms = Rewrites(program, rows, rules, refusals);
    for (const Refusal& refusal : refusals) {
      if (refusal.choice == "via=split") return refusal.reason;
    }
    EXPECT_THAT(forms, SizeIs(1));
    return "";
  };
  FusionRules off;
  off.enabled = false;
  EXPECT_EQ(reason(off, 10, 2), "collective_fusion_enabled is off");
  FusionRules without;
  without.types = static_cast<uint8_t>(FusionType::kEpilogue);
  EXPECT_EQ(reason(without, 10, 2), "custom_op_fusion_types leaves cross_subgraph out");
  EXPECT_EQ(reason({}, 11, 2), "2 ranks have no equal shares of 11 rows");
  EXPECT_EQ(reason({}, 11, 1), "one rank alone has nothing to share out");
  EXPECT_EQ(reason({}, 10, 2), "");
  EXPECT_EQ(reason({}, 9, 3), "");
}

}  // namespace
}  // namespace cotune
