#include "core/problem/problem.h"

#include "gtest/gtest.h"

namespace cotune {
namespace {

ProblemClass Class(Collective collective, int world_size) {
  ProblemClass cls;
  cls.collective = collective;
  cls.reduction = Reduces(collective) ? Reduction::kSum : Reduction::kNone;
  cls.world_size = world_size;
  cls.ranks_per_node = world_size;
  return cls;
}

TEST(ProblemTest, BytesFollowTheTableOfTheAbi) {
  // {collective, send elements, receive elements, bytes} for count 10 of f32 on 4 ranks.
  struct Row {
    Collective collective;
    uint64_t send, recv, bytes;
  };
  for (const Row& row :
       {Row{Collective::kAllReduce, 10, 10, 40}, Row{Collective::kAllGather, 10, 40, 160},
        Row{Collective::kReduceScatter, 40, 10, 160}, Row{Collective::kAllToAll, 40, 40, 160},
        Row{Collective::kBroadcast, 10, 10, 40}}) {
    const Problem problem{Class(row.collective, 4), 10, 0};
    EXPECT_EQ(problem.send_elements(), row.send) << Name(row.collective);
    EXPECT_EQ(problem.recv_elements(), row.recv) << Name(row.collective);
    EXPECT_EQ(problem.bytes(), row.bytes) << Name(row.collective);
  }
}

TEST(ProblemTest, CountForBytesRoundsDown) {
  EXPECT_EQ(CountForBytes(Class(Collective::kAllReduce, 3), 1027), 256u);
  EXPECT_EQ(CountForBytes(Class(Collective::kAllGather, 3), 1027), 85u);
  EXPECT_EQ(CountForBytes(Class(Collective::kAllGather, 3), 11), 0u);
}

TEST(ProblemTest, ClassTextIsParsedBack) {
  for (Collective collective : AllCollectives()) {
    for (Dtype dtype : AllDtypes()) {
      for (Reduction reduction : AllReductions()) {
        ProblemClass cls = Class(collective, 5);
        cls.dtype = dtype;
        if (Reduces(collective)) cls.reduction = reduction;
        cls.in_place = dtype == Dtype::kU8;
        cls.ranks_per_node = 2;
        if (collective == Collective::kBroadcast) cls.root = 3;
        const Result<ProblemClass> parsed = ParseProblemClass(ToText(cls));
        ASSERT_TRUE(parsed.has_value()) << parsed.error().ToText();
        EXPECT_EQ(*parsed, cls);
      }
    }
  }
}

TEST(ProblemTest, MalformedClassTextIsRefused) {
  for (const char* text : {"", "all_reduce", "all_reduce/sum/f32/host/plain/out_of_place",
                           "all_reduce/none/f32/host/plain/out_of_place/world2x2",
                           "all_reduce/sum/f32/host/plain/out_of_place/world2x2/root1",
                           "all_reduce/sum/f32/host/plain/out_of_place/world02x2",
                           "broadcast/none/f32/host/plain/out_of_place/world2x2/root2",
                           "all_reduce/sum/f32/tape/plain/out_of_place/world2x2",
                           "all_reduce/sum/f32/host/plain/out_of_place/world2"}) {
    EXPECT_FALSE(ParseProblemClass(text).has_value()) << text;
  }
}

TEST(ProblemTest, UnknownNamesComeWithTheNearest) {
  const Result<Collective> parsed = ParseCollective("allreduce");
  ASSERT_FALSE(parsed.has_value());
  EXPECT_EQ(parsed.error().code, ErrorCode::kUsage);
  EXPECT_EQ(parsed.error().ToText(),
            "unknown collective 'allreduce'; known: all_reduce, all_gather, reduce_scatter, "
            "all_to_all, broadcast; did you mean all_reduce?");
  EXPECT_EQ(ParseDtype("quux").error().next_step, "known: f32, f64, f16, bf16, i32, i64, u8");
}

TEST(ProblemTest, ValidateNamesTheContradiction) {
  ProblemClass cls = Class(Collective::kBroadcast, 2);
  cls.reduction = Reduction::kSum;
  EXPECT_EQ(Validate(cls).error().what, "broadcast takes no reduction");
  cls = Class(Collective::kAllReduce, 2);
  cls.root = 1;
  EXPECT_EQ(Validate(cls).error().what, "all_reduce has no root");
  cls.root = 0;
  cls.world_size = 0;
  EXPECT_FALSE(Validate(cls).has_value());
  cls.world_size = 2;
  cls.ranks_per_node = 3;
  EXPECT_FALSE(Validate(cls).has_value());
}

TEST(ProblemTest, BusBandwidthFactorsAreThoseOfNcclTests) {
  EXPECT_DOUBLE_EQ(BusBandwidthFactor(Collective::kAllReduce, 4), 1.5);
  EXPECT_DOUBLE_EQ(BusBandwidthFactor(Collective::kAllGather, 4), 0.75);
  EXPECT_DOUBLE_EQ(BusBandwidthFactor(Collective::kReduceScatter, 8), 0.875);
  EXPECT_DOUBLE_EQ(BusBandwidthFactor(Collective::kAllToAll, 2), 0.5);
  EXPECT_DOUBLE_EQ(BusBandwidthFactor(Collective::kBroadcast, 8), 1.0);
  EXPECT_DOUBLE_EQ(AlgorithmBandwidthGBps(2'000'000'000, 0.5), 4.0);
}

}  // namespace
}  // namespace cotune
