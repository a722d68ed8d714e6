#include "core/choice/multi_template.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"

namespace cotune {
namespace {

std::vector<uint64_t> HintsOf(std::vector<uint64_t> hints_bytes) {
  ProblemClass cls{.collective = Collective::kAllGather};
  cls.world_size = cls.ranks_per_node = 8;
  return MultiTemplate(Program::SingleCollective(cls).value(), std::move(hints_bytes), 0)
      .size_hints_bytes();
}

TEST(MultiTemplateTest, HintsAreRoundedToElementsSortedAndUnique) {
  EXPECT_EQ(HintsOf({1000, 64, 65, 992}), (std::vector<uint64_t>{64, 992}));
}

TEST(MultiTemplateTest, LessThanAnElementForEveryRankIsNoHintWhereThereAreOthers) {
  EXPECT_EQ(HintsOf({4, 31, 1 << 20}), (std::vector<uint64_t>{1 << 20}));
  EXPECT_EQ(HintsOf({0, 4, 64}), (std::vector<uint64_t>{0, 64})) << "0 was asked for";
  EXPECT_EQ(HintsOf({4}), (std::vector<uint64_t>{0})) << "the only one";
}

TEST(MultiTemplateTest, CellsAreNamedForUsers) {
  ProblemClass cls{.collective = Collective::kAllGather};
  cls.world_size = cls.ranks_per_node = 2;
  const MultiTemplate single(Program::SingleCollective(cls).value(), {64}, 0);
  EXPECT_EQ(single.CellInWords(64), "all_gather f32 out of place at 64 bytes");
  const auto named = [](const std::string& head) {
    const std::string text = head +
                             "%x = input f32 [R, 8]\n%s = all_reduce sum %x\n%y = relu %s\n"
                             "return %y\n";
    Program program =
        Program::Bind(ProgramGraph::Parse(text).value(), {MemoryKind::kHost, 2, 2}).value();
    const std::string digest = fmt::format("{:016x}", program.anchor().program_digest);
    const MultiTemplate node(std::move(program), {32, 64}, 0);
    return std::vector<std::string>{node.CellInWords(32), node.CellInWords(64), digest};
  };
  const std::vector<std::string> with_name = named("program small\n");
  EXPECT_EQ(with_name[0], "program small at 1 row");
  EXPECT_EQ(with_name[1], "program small at 2 rows");
  const std::vector<std::string> without = named("");
  EXPECT_EQ(without[0], "program " + without[2] + " at 1 row");
}

class CountingTimer final : public CellTimer {
 public:
  Result<DecidedCell> TimeCell(MultiTemplate& node, uint64_t size_hint_bytes) override {
    ++calls;
    if (fails) return Fail(ErrorCode::kRankLost, "rank 1 was lost");
    DecidedCell cell{{}, Fail(ErrorCode::kEnvironment, "no choice ran")};
    cell.cell.problem = node.ProblemAt(size_hint_bytes);
    return cell;
  }
  int calls = 0;
  bool fails = false;
};

TEST(MultiTemplateTest, TimingsAreMeasuredWhenFirstAskedForAndKept) {
  ProblemClass cls{.collective = Collective::kAllGather};
  cls.world_size = cls.ranks_per_node = 2;
  MultiTemplate node(Program::SingleCollective(cls).value(), {64, 128}, 0);
  CountingTimer timer;
  timer.fails = true;
  EXPECT_EQ(node.choice_timings(64, timer).error().code, ErrorCode::kRankLost);
  EXPECT_FALSE(node.has_timings(64)) << "a failure is not kept";
  timer.fails = false;
  const DecidedCell* const first = node.choice_timings(64, timer).value();
  EXPECT_EQ(first->cell.problem.bytes(), 64u);
  EXPECT_EQ(node.choice_timings(64, timer).value(), first);
  EXPECT_EQ(timer.calls, 2);
  EXPECT_FALSE(node.has_timings(128)) << "nobody asked for it";
  node.SetTimings(128, *first);
  EXPECT_TRUE(node.choice_timings(128, timer).has_value());
  EXPECT_EQ(timer.calls, 2) << "what is known is not measured";
  const std::map<uint64_t, DecidedCell> taken = node.TakeCells();
  EXPECT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken.at(128).cell.problem.bytes(), 64u);
  EXPECT_TRUE(node.cells().empty());
}

}  // namespace
}  // namespace cotune
