#include "core/choice/multi_template.h"

#include <gtest/gtest.h>

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

TEST(LeftOutTest, TravelsInLines) {
  const std::vector<LeftOutChoice> left_out = {{"class a", "host/x", "it crashed"},
                                               {"class b", "host/y?z=1", ""}};
  EXPECT_EQ(DecodeLeftOut(EncodeLeftOut(left_out)).value(), left_out);
  EXPECT_TRUE(DecodeLeftOut("")->empty());
  EXPECT_EQ(DecodeLeftOut(EncodeLeftOut({{"c", "d", "two\nlines"}}))->front().reason, "two lines");
  EXPECT_EQ(DecodeLeftOut("a\nb\n").error().code, ErrorCode::kDatabase);
  EXPECT_EQ(DecodeLeftOut("a\nb\nc\nd").error().code, ErrorCode::kDatabase);
}

}  // namespace
}  // namespace cotune
