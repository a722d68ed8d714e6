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

}  // namespace
}  // namespace cotune
