#include "core/problem/program.h"

#include "gtest/gtest.h"

namespace cotune {
namespace {

constexpr GroupShape kFourRanks{MemoryKind::kHost, 4, 4};

ProblemClass ClassFor(Collective collective, Dtype dtype) {
  ProblemClass cls;
  cls.collective = collective;
  cls.dtype = dtype;
  if (Reduces(collective)) cls.reduction = Reduction::kSum;
  cls.world_size = 4;
  cls.ranks_per_node = 4;
  return cls;
}

Program Bound(const std::string& text, const GroupShape& group = kFourRanks) {
  Result<ProgramGraph> graph = ProgramGraph::Parse(text);
  EXPECT_TRUE(graph.has_value()) << graph.error().ToText();
  Result<Program> program = Program::Bind(std::move(*graph), group);
  EXPECT_TRUE(program.has_value()) << program.error().ToText();
  return std::move(*program);
}

constexpr char kNorm[] =
    "%x = input bf16 [R, 8]\n"
    "%residual = input bf16 [R, 8] replicated\n"
    "%gamma = input bf16 [1, 8] replicated\n"
    "%sum = all_reduce sum %x\n"
    "%stream = add %sum, %residual\n"
    "%y = rms_norm %stream, %gamma, eps=1e-6\n"
    "return %y, %stream into %residual\n";

TEST(ProgramTest, ASingleCollectiveHasTheCountOfItsClass) {
  for (const Collective collective : AllCollectives()) {
    const ProblemClass cls = ClassFor(collective, Dtype::kF32);
    const Program program = Program::SingleCollective(cls).value();
    EXPECT_TRUE(program.is_single_collective());
    EXPECT_EQ(program.anchor(), cls);
    for (const uint64_t bytes : {0, 3, 4, 16, 100, 4096, 4099}) {
      const Problem problem = program.ProblemAt(bytes, 7);
      EXPECT_EQ(problem.count, CountForBytes(cls, bytes)) << Name(collective) << bytes;
      EXPECT_EQ(problem.topology_digest, 7u);
      EXPECT_EQ(program.ProblemAtRows(program.RowsAt(problem), 7), problem);
    }
  }
}

TEST(ProgramTest, AnInputThatIsOverwrittenNeedNotBeRead) {
  const std::string begin =
      "%x = input f32 [R, 8]\n%b = input f32 [R, 8]\n%s = all_reduce sum %x\n";
  const Program program = Bound(begin + "return %s into %b\n");
  EXPECT_EQ(program.graph().outputs()[0].into, 1);
  EXPECT_EQ(program.graph().ToText(), ProgramGraph::Parse(program.graph().ToText())->ToText());
  EXPECT_FALSE(program.is_single_collective());
  EXPECT_FALSE(ProgramGraph::Parse(begin + "return %s\n").has_value());
}

TEST(ProgramTest, RowsAndColumnsGiveTheCount) {
  const Program program = Bound(kNorm);
  EXPECT_FALSE(program.is_single_collective());
  EXPECT_EQ(program.anchor().program_digest, program.graph().digest());
  const Problem problem = program.ProblemAt(100, 0);
  EXPECT_EQ(problem.count, 48u);  // 6 rows of 8 columns are 96 bytes
  EXPECT_EQ(program.RowsAt(problem), 6u);
  EXPECT_EQ(program.BytesOf(2, 6), 16u);
  EXPECT_EQ(program.BytesOf(3, 6), 96u);
  EXPECT_EQ(program.ProblemOf(0, 6, 0).cls.program_digest, 0u);
}

TEST(ProgramTest, SharesNeedAMultipleOfTheRanks) {
  const Program program = Bound(
      "%x = input f32 [R, 2]\n"
      "%share = reduce_scatter sum %x\n"
      "%twice = mul %share, 2\n"
      "%y = all_gather %twice\n"
      "return %y\n");
  const Problem problem = program.ProblemAt(100, 0);
  EXPECT_EQ(program.RowsAt(problem), 12u);
  EXPECT_EQ(problem.count, 6u);  // of one rank
  EXPECT_EQ(program.RowsOf(1, 12), 3u);
  EXPECT_EQ(program.ProblemOf(2, 12, 0).cls.collective, Collective::kAllGather);
  EXPECT_EQ(program.ProblemOf(2, 12, 0).count, 6u);
}

TEST(ProgramTest, AProgramWithoutRHasOneSize) {
  const Program program = Bound(
      "%a = input f32 [1, 10]\n"
      "%b = all_reduce sum %a\n"
      "%c = mul %b, 0.5\n"
      "return %c\n");
  EXPECT_EQ(program.ProblemAt(1, 0).bytes(), 40u);
  EXPECT_EQ(program.ProblemAt(1 << 20, 0).bytes(), 40u);
  EXPECT_EQ(program.RowsAt(program.ProblemAt(1, 0)), 1u);
}

TEST(ProgramTest, BindRefusesWhatDoesNotFitTheGroup) {
  const auto bind = [](const std::string& text) {
    return Program::Bind(ProgramGraph::Parse(text).value(), kFourRanks);
  };
  const Result<Program> root =
      bind("%x = input f32 [R, 2]\n%y = broadcast %x, root=4\n%z = neg %y\nreturn %z\n");
  ASSERT_FALSE(root.has_value());
  EXPECT_EQ(root.error().what, "root 4 is not a rank of a group of 4");
  const Result<Program> local = bind(
      "%x = input f32 [1, 2]\n%r = input f32 [R, 2]\n%y = all_reduce sum %x\n%z = add %y, %r\n"
      "return %z\n");
  ASSERT_FALSE(local.has_value());
  EXPECT_EQ(local.error().what, "this program cannot be tuned by size");
}

TEST(ProgramTest, ValuesOfEightBitsTravelAsBytes) {
  const Program program = Bound(
      "%x = input bf16 [R, 4]\n"
      "%q = cast %x, to=f8_e4m3\n"
      "%y = all_to_all %q\n"
      "%z = cast %y, to=bf16\n"
      "return %z\n");
  EXPECT_EQ(program.anchor().dtype, Dtype::kU8);
}

}  // namespace
}  // namespace cotune
