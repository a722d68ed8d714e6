#include "fusion/bucket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/problem/evaluated_value.h"
#include "core/problem/program_data.h"
#include "core/problem/program_evaluator.h"
#include "core/recipe/make_recipe.h"
#include "core/recipe/recipe_id.h"
#include "core/testing/parsed.h"
#include "core/testing/random_program.h"
#include "fmt/format.h"
#include "fusion/fusion_recipes.h"
#include "fusion/rewrite.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> Operations(const RecipeStep& step, const ProgramGraph& graph) {
  std::vector<std::string> names;
  for (const size_t node : step.nodes) names.emplace_back(Name(graph.nodes()[node]));
  return names;
}

// Three sizes; one operand is an input, one a temporary, and one value is an output.
constexpr char kMixed[] =
    "%a = input f32 [R, 8]\n%b = input f32 [1, 3]\n%c = input f32 [R, 100]\n"
    "%na = neg %a\n"
    "%s = all_reduce sum %na\n%t = all_reduce sum %b\n%u = all_reduce sum %c\n"
    "%y = mul %s, 2\n%z = relu %t\nreturn %y, %z, %u\n";

TEST(BucketTest, CopiesStandWhereTheCallersMemoryIs) {
  const Form form = BucketForm(Graph(kMixed)).value();
  ASSERT_THAT(form.positions, SizeIs(1));
  EXPECT_THAT(form.positions[0].collectives, SizeIs(3));
  const Recipe recipe = MakeRecipe(form.graph, form.Buckets()).value();
  ASSERT_THAT(recipe.backend_steps(), SizeIs(1));
  std::vector<std::string> before;
  std::vector<std::string> after;
  bool is_after = false;
  for (const RecipeStep& step : recipe.steps) {
    if (!step.is_part()) {
      is_after = true;
      EXPECT_THAT(Operations(step, form.graph),
                  ElementsAre("all_reduce", "all_reduce", "all_reduce"));
      continue;
    }
    for (std::string& name : Operations(step, form.graph)) {
      (is_after ? after : before).push_back(std::move(name));
    }
  }
  // %b and %c are copied, and so is %u; %na is computed in its place.
  EXPECT_THAT(before, ::testing::UnorderedElementsAre("neg", "cast", "cast"));
  EXPECT_THAT(after, ::testing::UnorderedElementsAre("mul", "relu", "cast"));
}

TEST(BucketTest, PiecesLieOneAfterAnotherInTheSameOrderBeforeAndAfter) {
  const Form form = BucketForm(Graph(kMixed)).value();
  const Recipe recipe = MakeRecipe(form.graph, form.Buckets()).value();
  ASSERT_THAT(recipe.packs, SizeIs(2));
  const TemporaryLayout layout = LayOut(recipe, 2, 10);
  std::map<ValueIndex, uint64_t> offset_of;
  for (size_t i = 0; i < recipe.temporaries.size(); ++i) {
    offset_of[recipe.temporaries[i].value] = layout.offsets[i];
  }
  const RecipeStep& step = recipe.steps[recipe.backend_steps()[0]];
  for (const std::vector<ValueIndex>& pack : recipe.packs) {
    uint64_t offset = offset_of.at(pack[0]);
    for (size_t i = 0; i < pack.size(); ++i) {
      EXPECT_EQ(offset_of.at(pack[i]), offset);
      EXPECT_EQ(offset % 256, 0u);
      const ValueType& type = form.graph.type(pack[i]);
      EXPECT_EQ(type, form.graph.type(recipe.packs[0][i]));
      const uint64_t bytes = (type.rows == Rows::kOne ? 1 : 10) * type.columns * 4;
      offset += (bytes + 255) / 256 * 256;
    }
    EXPECT_EQ(offset - offset_of.at(pack[0]), PackedBytes(form.graph, pack, 2, 10));
  }
  // The step begins at the first pieces.
  const auto first_temporary =
      static_cast<SlotIndex>(form.graph.inputs().size() + form.graph.outputs().size());
  const auto value_at = [&](SlotIndex slot) {
    return recipe.temporaries[static_cast<size_t>(slot - first_temporary)].value;
  };
  EXPECT_EQ(value_at(step.inputs.front()), recipe.packs[0].front());
  EXPECT_EQ(value_at(step.outputs.front()), recipe.packs[1].front());
}

TEST(BucketTest, ItsCallIsOneCollectiveOfThePackedValue) {
  const Program program =
      Program::Bind(Graph(kMixed), {MemoryKind::kHost, 2, 2, BufferClass::kSymmetric}).value();
  const Form form = BucketForm(program.graph()).value();
  const Recipe recipe = MakeRecipe(form.graph, form.Buckets()).value();
  const std::vector<BackendCall> calls = BackendCalls(recipe, program, 10, 7).value();
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_TRUE(calls[0].program.is_single_collective());
  EXPECT_EQ(calls[0].problem.cls.collective, Collective::kAllReduce);
  EXPECT_EQ(calls[0].problem.cls.buffer_class, BufferClass::kPlain);
  EXPECT_EQ(calls[0].problem.cls.program_digest, 0u);
  // 320, 12 and 4000 bytes, each rounded up to 256.
  EXPECT_EQ(calls[0].problem.count, (512u + 256u + 4096u) / 4);
  const auto large = BackendCalls(recipe, program, uint64_t{1} << 28, 7);
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(large.error().what, HasSubstr("of which 1073741824 are the most"));
}

TEST(BucketTest, OnlyCollectivesOfOneKindThatDoNotDependAreOne) {
  const std::string alike = "%a = input f32 [R, 8]\n%b = input f32 [R, 8]\n";
  EXPECT_FALSE(BucketForm(Graph(alike + "%s = all_reduce sum %a\n%t = all_reduce max %b\n"
                                        "return %s, %t\n")));
  EXPECT_FALSE(BucketForm(Graph(alike + "%s = all_reduce sum %a\n%x = add %s, %b\n"
                                        "%t = all_reduce sum %x\nreturn %t\n")));
  EXPECT_FALSE(BucketForm(Graph(alike + "%s = broadcast %a, root=0\n%t = broadcast %b, root=1\n"
                                        "return %s, %t\n")));
  EXPECT_FALSE(
      BucketForm(Graph("%a = input f32 [R/n, 8]\n%b = input f32 [R/n, 8]\n"
                       "%s = all_gather %a\n%t = all_gather %b\nreturn %s, %t\n")));
  EXPECT_TRUE(BucketForm(Graph(alike + "%s = broadcast %a, root=1\n%t = broadcast %b, root=1\n"
                                       "return %s, %t\n")));
}

TEST(BucketTest, OneOperandOfTwoCollectivesHasTwoPlaces) {
  const Form form = BucketForm(Graph("%a = input f32 [R, 8]\n%n = neg %a\n%s = all_reduce sum %n\n"
                                     "%t = all_reduce sum %n\n%y = add %s, %t\nreturn %y\n"))
                        .value();
  const Recipe recipe = MakeRecipe(form.graph, form.Buckets()).value();
  EXPECT_NE(recipe.packs[0][0], recipe.packs[0][1]);
}

// The value of the first bucket is an operand of the second one.
TEST(BucketTest, BucketsFollowOneAnother) {
  const Form form =
      BucketForm(Graph("%a = input f32 [R, 8]\n%b = input f32 [R, 8]\n%s = all_reduce sum %a\n"
                       "%t = all_reduce sum %b\n%u = all_reduce sum %s\n%v = all_reduce sum %t\n"
                       "return %u, %v\n"))
          .value();
  ASSERT_THAT(form.positions, SizeIs(2));
  const Recipe recipe = MakeRecipe(form.graph, form.Buckets()).value();
  EXPECT_THAT(recipe.backend_steps(), SizeIs(2));
  EXPECT_THAT(recipe.packs, SizeIs(4));
}

// The bucket of %u and %v runs after the part that follows %w, and %u alone before it: the part of
// %a and %b would be cut in two between them.
TEST(BucketTest, NoValueIsRoundedInTheFormAlone) {
  const std::string text =
      "%x = input bf16 [R, 8]\n%y = input bf16 [R, 8]\n"
      "%s = all_reduce max %x\n%u = all_reduce sum %s\n"
      "%w = all_reduce min %y\n%n = neg %w\n%v = all_reduce sum %n\n"
      "%a = mul %w, 3\n%b = add %a, %u\nreturn %b, %v\n";
  const auto form = BucketForm(Graph(text));
  ASSERT_FALSE(form.has_value());
  EXPECT_THAT(form.error().what, HasSubstr("would be rounded"));
  // f32 is not rounded.
  std::string wide = text;
  for (size_t at = wide.find("bf16"); at != std::string::npos; at = wide.find("bf16")) {
    wide.replace(at, 4, "f32");
  }
  EXPECT_TRUE(BucketForm(Graph(wide)).has_value());
}

// Twelve copies of outputs and the operands of a chain are more than a part may read: the form
// would cut the chain, which the program as it is does not, and a bf16 value of it would be
// rounded.
TEST(BucketTest, CopiesCutNoOtherPart) {
  const auto text = [](const std::string& dtype) {
    std::string inputs;
    std::string sums;
    std::string outputs;
    for (int i = 0; i < 12; ++i) {
      inputs += fmt::format("%g{} = input {} [R, 8]\n", i, dtype);
      sums += fmt::format("%s{} = all_reduce sum %g{}\n", i, i);
      outputs += fmt::format("%s{}, ", i);
    }
    for (const char* const name : {"y", "w0", "w1", "w2"}) {
      inputs += fmt::format("%{} = input {} [R, 8]\n", name, dtype);
    }
    return inputs + sums +
           "%u = all_reduce sum %y\n%v = all_reduce sum %w0\n%t1 = mul %u, %w0\n"
           "%t2 = add %t1, %v\n%t3 = mul %t2, %w1\n%t4 = add %t3, %w2\nreturn " +
           outputs + "%t4\n";
  };
  const auto form = BucketForm(Graph(text("bf16")));
  ASSERT_FALSE(form.has_value());
  EXPECT_THAT(form.error().what, HasSubstr("would be rounded"));
  EXPECT_TRUE(BucketForm(Graph(text("f32"))).has_value());
}

TEST(BucketTest, AnIdNamesOneChoiceForABucket) {
  const ProgramGraph graph = Graph(kMixed);
  const Form form = FormVia(graph, "bucket").value();
  const Recipe recipe =
      RecipeOfForm(form, ChoiceId::Parse("host/one_shot?via=bucket").value()).value();
  EXPECT_THAT(recipe.backend_steps(), SizeIs(1));
  const auto two =
      RecipeOfForm(form, ChoiceId::Parse("host/a?via=bucket+host/b?via=bucket").value());
  ASSERT_FALSE(two.has_value());
  EXPECT_THAT(two.error().what, HasSubstr("names the choices of 2 steps"));
}

// kMixed with the operations around its collectives: neg before the first and a copy before both
// others; mul, relu and a copy after them.
TEST(BucketTest, OperationsAroundItsCollectivesRunInItsStep) {
  const ProgramGraph graph = Graph(kMixed);
  const Program program = Program::Bind(graph, {MemoryKind::kHost, 2, 2}).value();
  const FusionRecipes source;
  const FormList list = source.Forms(program, 10, {});
  ASSERT_EQ(list.forms.at(1).via, kBucket);
  const Form& form = list.forms[1];
  std::vector<std::string> keys;
  for (const Region& region : form.positions.at(0).regions) {
    keys.push_back(FuseText(form.graph, region));
  }
  EXPECT_THAT(keys, ElementsAre("-1.1", "1", "-1"));
  const Recipe whole =
      source.RecipeOf(graph, ChoiceId::Parse("host/a?fuse=-1.1&via=bucket").value()).value();
  ASSERT_THAT(whole.steps, SizeIs(1));
  EXPECT_THAT(Operations(whole.steps[0], form.graph),
              ElementsAre("neg", "all_reduce", "mul", "cast", "all_reduce", "relu", "cast",
                          "all_reduce", "cast"));
  EXPECT_THAT(whole.packs, IsEmpty());
  EXPECT_THAT(whole.temporaries, IsEmpty());
  EXPECT_FALSE(whole.steps[0].is_packed());
  const std::vector<BackendCall> calls = BackendCalls(whole, program, 10, 7).value();
  ASSERT_THAT(calls, SizeIs(1));
  EXPECT_THAT(calls[0].program.graph().collectives(), SizeIs(3));
  for (const char* const other : {"host/a?fuse=2&via=bucket", "host/a?fuse=1.-1&via=bucket"}) {
    EXPECT_FALSE(source.RecipeOf(graph, ChoiceId::Parse(other).value()).has_value()) << other;
  }
}

// An operation that is between two collectives of a bucket belongs to none of them.
TEST(BucketTest, OperationsThatReadTwoCollectivesStayOut) {
  const Program program =
      Program::Bind(Graph("%a = input f32 [R, 8]\n%b = input f32 [R, 8]\n%s = all_reduce sum %a\n"
                          "%t = all_reduce sum %b\n%y = add %s, %t\nreturn %y\n"),
                    {MemoryKind::kHost, 2, 2})
          .value();
  const FormList list = FusionRecipes().Forms(program, 10, {});
  ASSERT_EQ(list.forms.at(1).via, kBucket);
  const Form& form = list.forms[1];
  ASSERT_THAT(form.positions.at(0).regions, SizeIs(1));
  EXPECT_EQ(FuseText(form.graph, form.positions[0].regions[0]), "-1");
  const bool is_named =
      std::any_of(list.refusals.begin(), list.refusals.end(), [](const Refusal& refusal) {
        return refusal.choice.find("via=bucket") != std::string::npos &&
               refusal.reason.find("belongs to no collective of the bucket alone") !=
                   std::string::npos;
      });
  EXPECT_TRUE(is_named);
}

TEST(BucketTest, SettingsAndSizesLeaveItOutWithAReason) {
  const Program program = Program::Bind(Graph(kMixed), {MemoryKind::kHost, 2, 2}).value();
  const auto reason = [&](const FusionRules& rules, uint64_t rows) {
    std::vector<Refusal> refusals;
    for (const Form& form : Rewrites(program, rows, rules, refusals)) EXPECT_NE(form.via, kBucket);
    EXPECT_FALSE(refusals.empty());
    EXPECT_EQ(refusals[0].choice, "via=bucket");
    return refusals[0].reason;
  };
  FusionRules off;
  off.enabled = false;
  EXPECT_EQ(reason(off, 10), "collective_fusion_enabled is off");
  FusionRules without;
  without.types = static_cast<uint8_t>(FusionType::kEpilogue);
  EXPECT_EQ(reason(without, 10), "custom_op_fusion_types leaves cross_subgraph out");
  EXPECT_THAT(reason({}, 10'000'000), HasSubstr("1073741824 are the most"));
  std::vector<Refusal> refusals;
  EXPECT_EQ(Rewrites(program, 10, {}, refusals).front().via, kBucket);
  EXPECT_THAT(refusals, IsEmpty());
}

// The form has the values of the program, by the reference evaluator.
TEST(BucketTest, RandomProgramsKeepTheirValues) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr uint64_t kPrograms = 300;
#else
  constexpr uint64_t kPrograms = 2000;
#endif
  uint64_t packed = 0;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    const ProgramGraph graph = Graph(seed % 2 == 0 ? RandomProgram(seed, 2, kAnyCollectives)
                                                   : RandomBucketProgram(seed, 2));
    const Result<Form> form = BucketForm(graph);
    if (!form) continue;
    ++packed;
    EXPECT_EQ(form->graph.inputs().size(), graph.inputs().size());
    const Result<Recipe> recipe = MakeRecipe(form->graph, form->Buckets());
    ASSERT_TRUE(recipe.has_value()) << graph.ToText();
    EXPECT_EQ(recipe->backend_steps().size(), form->positions.size());
    const uint64_t rows = 4;
    std::vector<std::vector<std::vector<std::byte>>> inputs(2);
    for (int rank = 0; rank < 2; ++rank) {
      for (size_t input = 0; input < graph.inputs().size(); ++input) {
        inputs[static_cast<size_t>(rank)].push_back(
            InputPeriod(graph, input, rank, {.rows = rows, .world_size = 2}));
      }
    }
    const auto expected = EvaluateProgram(graph, rows, 2, inputs).value();
    const auto found = EvaluateProgram(form->graph, rows, 2, inputs).value();
    for (size_t rank = 0; rank < 2; ++rank) {
      for (size_t output = 0; output < expected[rank].size(); ++output) {
        EXPECT_EQ(Encode(found[rank][output]), Encode(expected[rank][output])) << graph.ToText();
      }
    }
  }
  EXPECT_GT(packed, kPrograms / 2);
}

}  // namespace
}  // namespace cotune
