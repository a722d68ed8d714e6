#include "core/problem/program.h"

#include "gtest/gtest.h"

namespace cotune {
namespace {

ProblemClass AllReduce(Dtype dtype) {
  ProblemClass cls;
  cls.dtype = dtype;
  cls.reduction = Reduction::kSum;
  cls.world_size = 4;
  cls.ranks_per_node = 4;
  return cls;
}

TEST(ProgramTest, SingleCollectivePrintsAndParsesBack) {
  const Result<Program> program = Program::SingleCollective(AllReduce(Dtype::kBf16));
  ASSERT_TRUE(program.has_value());
  EXPECT_EQ(program->ToText(),
            "%0 = input bf16 x\n"
            "%1 = all_reduce/sum/bf16/host/plain/out_of_place/world4x4 %0\n"
            "return %1\n");
  EXPECT_TRUE(program->is_single_collective());
  const Result<Program> parsed = Program::Parse(program->ToText());
  ASSERT_TRUE(parsed.has_value()) << parsed.error().ToText();
  EXPECT_EQ(*parsed, *program);
  EXPECT_EQ(parsed->digest(), program->digest());
}

TEST(ProgramTest, AGraphOfTwoCollectivesKeepsItsOrder) {
  ProgramBuilder builder;
  const ValueIndex x = builder.AddInput("x", Dtype::kF32);
  const ValueIndex first = builder.AddCollective(AllReduce(Dtype::kF32), x);
  ProblemClass broadcast = AllReduce(Dtype::kF32);
  broadcast.collective = Collective::kBroadcast;
  broadcast.reduction = Reduction::kNone;
  const Result<Program> program = builder.Freeze(builder.AddCollective(broadcast, first));
  ASSERT_TRUE(program.has_value());
  EXPECT_FALSE(program->is_single_collective());
  EXPECT_EQ(program->anchor().collective, Collective::kAllReduce);
  EXPECT_EQ(*Program::Parse(program->ToText()), *program);
  EXPECT_NE(program->digest(), Program::SingleCollective(AllReduce(Dtype::kF32))->digest());
}

TEST(ProgramTest, FreezeRefusesWhatIsNotAProgram) {
  ProgramBuilder empty;
  EXPECT_FALSE(empty.Freeze(0).has_value());
  ProgramBuilder builder;
  const ValueIndex x = builder.AddInput("x", Dtype::kF32);
  const ValueIndex y = builder.AddCollective(AllReduce(Dtype::kF32), x);
  EXPECT_TRUE(builder.Freeze(y).has_value());
  EXPECT_EQ(builder.Freeze(x).error().cause, "%0 is returned, which is not the value of a node");
  EXPECT_FALSE(builder.Freeze(2).has_value());
  ProgramBuilder forward;
  forward.AddInput("x", Dtype::kF32);
  forward.AddCollective(AllReduce(Dtype::kF32), 1);
  EXPECT_EQ(forward.Freeze(1).error().cause, "%1 is used before it is defined");
  ProgramBuilder mixed;
  mixed.AddInput("x", Dtype::kF16);
  mixed.AddCollective(AllReduce(Dtype::kF32), 0);
  EXPECT_EQ(mixed.Freeze(1).error().cause, "%0 is f16, its collective takes f32");
}

TEST(ProgramTest, ParseNamesTheLine) {
  const std::string cls = "all_reduce/sum/f32/host/plain/out_of_place/world4x4";
  struct Case {
    std::string text, where;
  };
  for (const Case& each : {
           Case{"", "line 1"},
           Case{"%0 = input f32 x\n", "line 1"},
           Case{"%0 = input f99 x\n", "line 1"},
           Case{"%1 = input f32 x\n", "line 1"},
           Case{"%0 = input f32 x\n%1 = " + cls + "\nreturn %1\n", "line 2"},
           Case{"%0 = input f32 x\n%1 = " + cls + " %0\nreturn 1\n", "line 3"},
           Case{"%0 = input f32 x\n%1 = " + cls + " %0\nreturn %1\nmore\n", "line 4"},
           Case{"hello\n", "line 1"},
       }) {
    const Result<Program> parsed = Program::Parse(each.text);
    ASSERT_FALSE(parsed.has_value()) << each.text;
    EXPECT_EQ(parsed.error().where, each.where) << each.text;
  }
}

}  // namespace
}  // namespace cotune
