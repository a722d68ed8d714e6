#include "plugins/cuda/group/kernel_failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plugins/cuda/group/call_record.h"

namespace cotune::cuda {
namespace {

using ::testing::HasSubstr;

FailureRecord RecordWith(FailureKind kind, int reporter, int peer) {
  FailureRecord record{};
  record.is_set = 1;
  record.poison = MakePoison(kind, reporter, peer);
  record.number = 41;
  record.step = 8;
  record.block = 3;
  return record;
}

TEST(KernelFailureTest, ALateRankIsNamed) {
  const sdk::Failure seen_here = FailureOf(RecordWith(kTimeout, 0, 2), 0, 4, {});
  EXPECT_EQ(seen_here.status, COTUNE_PEER_FAILED);
  EXPECT_EQ(seen_here.failed_rank, 2);
  EXPECT_THAT(seen_here.message,
              HasSubstr("group rank 0's kernel waited for group rank 2 until the deadline (launch "
                        "41 of the group, step 8, block 3)"));
  // The late rank itself is told, and so is a rank that nobody waited for.
  const sdk::Failure late = FailureOf(RecordWith(kTimeout, 0, 2), 2, 4, {});
  EXPECT_EQ(late.failed_rank, 2);
  EXPECT_THAT(late.message, HasSubstr("waited for group rank 2 (this rank) until its deadline"));
  const sdk::Failure third = FailureOf(RecordWith(kTimeout, 0, 2), 1, 4, {});
  EXPECT_EQ(third.failed_rank, 2);
  EXPECT_THAT(third.message, HasSubstr("group rank 0's kernel waited for group rank 2 until"));
}

TEST(KernelFailureTest, BothCallsAreNamed) {
  sdk::Problem problem{.count = 1000, .world_size = 2};
  const std::string choice = ListChoices(problem, {}).front().name;
  FailureRecord record = RecordWith(kMismatch, 0, 1);
  record.own_call = RecordOf(problem, choice);
  problem.reduction = sdk::Reduction::kMax;
  record.other_call = RecordOf(problem, choice);
  for (const int rank : {0, 1}) {
    record.other = 1 - rank;
    const sdk::Failure failure = FailureOf(record, rank, 2, {});
    EXPECT_EQ(failure.status, COTUNE_PEER_FAILED);
    EXPECT_EQ(failure.failed_rank, 1 - rank);
    EXPECT_THAT(failure.message, HasSubstr("all_reduce of 1000 f32 (sum) by " + choice));
    EXPECT_THAT(failure.message, HasSubstr("all_reduce of 1000 f32 (max) by " + choice));
  }
}

TEST(KernelFailureTest, ProgramsThatDifferAreTold) {
  sdk::Problem problem{.count = 1000, .world_size = 2, .program_digest = 5};
  const std::string choice = ListChoices(problem, {}).front().name;
  FailureRecord record = RecordWith(kMismatch, 0, 1);
  record.own_call = RecordOf(problem, choice);
  problem.program_digest = 6;
  record.other_call = RecordOf(problem, choice);
  record.other = 1;
  const sdk::Failure failure = FailureOf(record, 0, 2, {});
  EXPECT_EQ(failure.failed_rank, 1);
  EXPECT_THAT(failure.message,
              HasSubstr("group rank 1 called all_reduce of 1000 f32 (sum) in a program that "
                        "differs, or by another choice, where group rank 0 (this rank) called "
                        "all_reduce of 1000 f32 (sum) in a program (launch 41 of the group)"));
}

TEST(KernelFailureTest, ARankThatHasNotHeardOfTheOtherCallNamesTheRanks) {
  FailureRecord record = RecordWith(kMismatch, 0, 2);
  record.own_call = RecordOf({.count = 1000, .world_size = 3}, "a choice");
  record.other_call = record.own_call;
  const sdk::Failure failure = FailureOf(record, 1, 3, {});
  EXPECT_EQ(failure.failed_rank, 2);
  EXPECT_THAT(failure.message, HasSubstr("group rank 0 and group rank 2 make different calls"));
  EXPECT_THAT(failure.message, HasSubstr("group rank 1 (this rank) called all_reduce of 1000 f32"));
}

TEST(KernelFailureTest, AnAbortNamesTheRankThatAborted) {
  const sdk::Failure failure = FailureOf(RecordWith(kAborted, 1, 0), 0, 2, {});
  EXPECT_EQ(failure.status, COTUNE_ABORTED);
  EXPECT_EQ(failure.message, "group rank 1 aborted the group");
}

TEST(KernelFailureTest, ARecordThatMakesNoSenseNamesNobody) {
  const sdk::Failure late = FailureOf(RecordWith(kTimeout, 0, 9), 0, 2, {});
  EXPECT_EQ(late.failed_rank, -1);
  EXPECT_THAT(late.message, HasSubstr("waited for a peer"));
  FailureRecord other = RecordWith(kMismatch, 9, 12);
  other.other = 12;
  EXPECT_EQ(FailureOf(other, 0, 2, {}).failed_rank, -1);
  EXPECT_EQ(FailureOf(RecordWith(kProtocol, 0, 1), 0, 2, {}).status, COTUNE_INTERNAL);
}

}  // namespace
}  // namespace cotune::cuda
