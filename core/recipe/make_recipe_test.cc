#include "core/recipe/make_recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/testing/parsed.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

TEST(RecipeTest, NeighboursBehindACollectiveAreOnePart) {
  const Recipe recipe =
      UnfusedRecipe(Graph("%x = input f32 [R, 8]\n%r = input f32 [R, 8]\n%g = input f32 [1, 8]\n"
                          "%s = all_reduce sum %x\n%t = add %s, %r\n%y = rms_norm %t, %g\n"
                          "return %y, %t into %r\n"));
  ASSERT_THAT(recipe.steps, SizeIs(2));
  ASSERT_NE(recipe.steps[0].backend_step(), nullptr);
  EXPECT_THAT(recipe.steps[0].backend_step()->collectives, ElementsAre(0));
  EXPECT_THAT(recipe.steps[0].inputs, ElementsAre(0));
  // Inputs are slots 0 to 2, the outputs 3 and 4. The sum lies where %y will.
  EXPECT_THAT(recipe.steps[0].outputs, ElementsAre(3));
  EXPECT_THAT(recipe.steps[1].inputs, ElementsAre(1, 2, 3));
  EXPECT_THAT(recipe.steps[1].outputs, ElementsAre(1, 3));
  EXPECT_EQ(recipe.steps[1].program.outputs()[0].into, 0);  // the part's first input
  EXPECT_EQ(recipe.steps[1].program.outputs()[1].into, 2);
  ASSERT_THAT(recipe.temporaries, SizeIs(0));
}

// The sum is of another type than what comes of it, or is read after the output, or there is
// nothing of its type left.
TEST(RecipeTest, AValueLiesInNoOutputThatCannotHoldIt) {
  for (const char* behind : {"%y = cast %s, to=f64\nreturn %y\n",
                             "%y = neg %s\n%z = cast %s, to=f64\nreturn %y, %z\n"}) {
    const Recipe recipe = UnfusedRecipe(
        Graph(std::string("%x = input f32 [R, 8]\n%s = all_reduce sum %x\n") + behind));
    ASSERT_THAT(recipe.temporaries, SizeIs(1)) << behind;
    EXPECT_EQ(recipe.steps[0].outputs[0],
              static_cast<SlotIndex>(1 + recipe.steps[1].outputs.size()))
        << behind;
  }
  const Recipe two =
      UnfusedRecipe(Graph("%x = input f32 [R, 8]\n%z = input f32 [R, 8]\n%s = all_reduce sum %x\n"
                          "%t = all_reduce sum %z\n%y = add %s, %t\nreturn %y\n"));
  ASSERT_THAT(two.temporaries, SizeIs(1));
  // Inputs are slots 0 and 1, the output 2, the temporary 3.
  EXPECT_THAT(two.steps[2].inputs, ElementsAre(2, 3));
  EXPECT_THAT(two.steps[2].outputs, ElementsAre(2));
}

TEST(RecipeTest, AnOutputOfACollectiveNeedsNoTemporary) {
  const Recipe recipe = UnfusedRecipe(
      Graph("%x = input f32 [R, 8]\n%a = relu %x\n%s = all_reduce sum %a\n%n = neg %s\n"
            "return %n, %s\n"));
  ASSERT_THAT(recipe.steps, SizeIs(3));
  EXPECT_THAT(recipe.steps[1].inputs, ElementsAre(3));
  EXPECT_THAT(recipe.steps[1].outputs, ElementsAre(2));
  EXPECT_THAT(recipe.steps[2].inputs, ElementsAre(2));
  EXPECT_THAT(recipe.steps[2].outputs, ElementsAre(1));
}

TEST(RecipeTest, CollectivesThatDoNotDependShareTheirPart) {
  const Recipe recipe = UnfusedRecipe(
      Graph("%a = input f32 [1, 8]\n%b = input f32 [1, 4]\n%sa = all_reduce sum %a\n"
            "%ha = mul %sa, 0.5\n%sb = all_reduce sum %b\n%hb = mul %sb, 0.5\nreturn %ha, %hb\n"));
  ASSERT_THAT(recipe.steps, SizeIs(3));
  EXPECT_THAT(recipe.backend_steps(), ElementsAre(0, 1));
  EXPECT_THAT(recipe.steps[2].program.nodes(), SizeIs(2));
}

// %late follows the second collective and reads %r, which %early, after the first one,
// overwrites although it is further down.
TEST(RecipeTest, AnInputIsOverwrittenBehindAllItsReaders) {
  const Recipe recipe = UnfusedRecipe(
      Graph("%x = input f32 [R, 8]\n%r = input f32 [R, 8]\n%s = all_reduce sum %x\n%n = neg %s\n"
            "%t = all_reduce sum %n\n%late = add %t, %r\n%early = mul %s, 2\n"
            "return %late, %early into %r\n"));
  size_t reads = 0;
  size_t writes = 0;
  for (size_t i = 0; i < recipe.steps.size(); ++i) {
    for (const SlotIndex slot : recipe.steps[i].inputs) reads = slot == 1 ? i : reads;
    for (const SlotIndex slot : recipe.steps[i].outputs) writes = slot == 1 ? i : writes;
  }
  EXPECT_EQ(reads, writes);  // one part, which reads a row before it writes it
  EXPECT_EQ(writes, recipe.steps.size() - 1);
}

TEST(RecipeTest, TemporariesShareMemoryWhenTheyAreNotAliveTogether) {
  const Program program =
      Program::Bind(Graph("%x = input f32 [R, 64]\n%a = all_reduce sum %x\n%b = relu %a\n"
                          "%c = all_reduce sum %b\n%d = neg %c\n%e = all_reduce sum %d\n"
                          "%f = abs %e\nreturn %f\n"),
                    {MemoryKind::kHost, 2, 2})
          .value();
  const Recipe recipe = UnfusedRecipe(program.graph());
  ASSERT_THAT(recipe.temporaries, SizeIs(4));  // the last sum lies in the output
  const TemporaryLayout layout = LayOut(recipe, 2, 10);
  EXPECT_EQ(layout.bytes, 2u * 2560);  // each has 2560 bytes
  for (size_t i = 0; i < recipe.temporaries.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const RecipeTemporary& a = recipe.temporaries[i];
      const RecipeTemporary& b = recipe.temporaries[j];
      const bool overlaps = a.first_step <= b.last_step && b.first_step <= a.last_step;
      if (overlaps) {
        EXPECT_NE(layout.offsets[i], layout.offsets[j]);
      }
    }
  }
}

TEST(RecipeTest, CollectivesBetweenOperandsOfTheProgramRunOnRegisteredMemory) {
  const auto steps = [](const std::string& text, BufferClass buffers) {
    const Program program = Program::Bind(Graph(text), {MemoryKind::kHost, 4, 4, buffers}).value();
    EXPECT_EQ(program.group().buffers, buffers);
    EXPECT_EQ(program.anchor().buffer_class, buffers);
    return BackendCalls(UnfusedRecipe(program.graph()), program, 12, 7).value();
  };
  const std::string norm =
      "%x = input f32 [R, 8]\n%s = all_reduce sum %x\n%y = neg %s\nreturn %y\n";
  const auto plain = steps(norm, BufferClass::kPlain);
  ASSERT_THAT(plain, SizeIs(1));
  EXPECT_EQ(plain[0].problem.cls.buffer_class, BufferClass::kPlain);
  EXPECT_EQ(plain[0].why_plain, "");
  const auto registered = steps(norm, BufferClass::kSymmetric);
  EXPECT_EQ(registered[0].problem.cls.buffer_class, BufferClass::kSymmetric);
  EXPECT_EQ(registered[0].problem.count, 96u);
  EXPECT_EQ(registered[0].problem.cls.program_digest, 0u);
  EXPECT_EQ(registered[0].why_plain, "");
  // The sum of f32 does not fit the output of f64, and what comes of it goes on to another one.
  const auto between = steps(
      "%x = input f32 [R, 8]\n%s = all_reduce sum %x\n%t = cast %s, to=f64\n"
      "%u = all_reduce max %t\n%y = neg %u\nreturn %y\n",
      BufferClass::kSymmetric);
  ASSERT_THAT(between, SizeIs(2));
  EXPECT_EQ(between[0].problem.cls.buffer_class, BufferClass::kPlain);
  EXPECT_EQ(between[0].why_plain, "its value lies between two steps, in memory of the job");
  EXPECT_EQ(between[1].problem.cls.buffer_class, BufferClass::kPlain);
  EXPECT_EQ(between[1].why_plain, "its operand lies between two steps, in memory of the job");
}

}  // namespace
}  // namespace cotune
