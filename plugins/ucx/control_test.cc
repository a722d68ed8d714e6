#include "plugins/ucx/control.h"

#include <gtest/gtest.h>

#include <vector>

#include "plugins/ucx/tag.h"

namespace cotune::ucx {
namespace {

constexpr uint64_t Bit(int rank) { return uint64_t{1} << rank; }

TEST(LateRanksTest, TheRankThatDoesNotAnswerIsLateAlsoThroughOthers) {
  // 0 waits for 1, 1 for 2, and 2 says nothing; what it said before does not count.
  const std::vector<RankView> views = {{false, Bit(1)}, {false, Bit(2)}, {true, Bit(0)}};
  EXPECT_EQ(LateRanks(views, 0, Bit(1)), Bit(2));
  EXPECT_EQ(LateRanks(views, 1, Bit(2)), Bit(2));
}

TEST(LateRanksTest, ARankThatWaitsForNobodyIsLate) {
  const std::vector<RankView> views = {{false, Bit(1)}, {false, 0}, {true, 0}};
  EXPECT_EQ(LateRanks(views, 0, Bit(1)), Bit(1)) << "and nobody that it does not wait for";
}

TEST(LateRanksTest, SeveralMayBeLate) {
  const std::vector<RankView> views = {{false, 0}, {true, 0}, {false, Bit(3)}, {true, 0}};
  EXPECT_EQ(LateRanks(views, 0, Bit(1) | Bit(2)), Bit(1) | Bit(3));
}

TEST(LateRanksTest, NobodyIsLateWhereAllWaitForEachOther) {
  const std::vector<RankView> views = {{false, Bit(1)}, {false, Bit(2)}, {false, Bit(0)}};
  EXPECT_EQ(LateRanks(views, 0, Bit(1)), 0u);
}

TEST(RanksAtFaultTest, ASilentRankThatIsStoppedIsAtFaultForThoseThatItMakesSilent) {
  // 0 waits for 1, which hears nobody because 2 was stopped while it sent.
  const std::vector<RankView> views = {{false, Bit(1)}, {true, Bit(0)}, {true, 0}};
  EXPECT_EQ(RanksAtFault(views, 0, Bit(1), 0), Bit(1));
  EXPECT_EQ(RanksAtFault(views, 0, Bit(1), Bit(2)), Bit(2));
}

TEST(RanksAtFaultTest, AStoppedRankThatAnswersOrARankThatIsLateChangesNothing) {
  const std::vector<RankView> answers = {{false, Bit(1)}, {true, Bit(0)}, {false, Bit(0)}};
  EXPECT_EQ(RanksAtFault(answers, 0, Bit(1), Bit(2)), Bit(1)) << "it was stopped just now";
  const std::vector<RankView> late = {{false, Bit(1)}, {false, 0}, {true, 0}};
  EXPECT_EQ(RanksAtFault(late, 0, Bit(1), Bit(2)), Bit(1)) << "rank 1 waits for nobody";
}

TEST(RanksAtFaultTest, ARankThatWaitsForNobodyIsAtFaultItself) {
  const std::vector<RankView> views = {{false, 0}, {false, Bit(0)}, {true, Bit(0)}};
  EXPECT_EQ(RanksAtFault(views, 0, 0, 0), Bit(0));
  EXPECT_EQ(RanksAtFault(views, 0, Bit(0), 0), Bit(0)) << "its own bit does not count";
  EXPECT_EQ(RanksAtFault(views, 0, 0, Bit(2)), Bit(0)) << "the stopped rank does not hold it up";
}

sdk::CallRecord Call(uint32_t digest) {
  sdk::CallRecord record;
  record.digest = digest;
  return record;
}

TEST(CompareCallsTest, TheMinorityIsAtFault) {
  const sdk::CallRecord usual = Call(1);
  const sdk::CallRecord other = Call(2);
  const std::vector<const sdk::CallRecord*> all = {&usual, &usual, &other, &usual};
  const CallComparison seen_by_one = CompareCalls(all, 0);
  EXPECT_TRUE(seen_by_one.differs);
  EXPECT_TRUE(seen_by_one.is_complete);
  EXPECT_EQ(seen_by_one.culprit, 2);
  EXPECT_EQ(seen_by_one.reporter, 0);
  EXPECT_EQ(CompareCalls(all, 2).culprit, 2) << "it sees that it is alone";
}

TEST(CompareCallsTest, OfTwoTheHigherRankIsNamedByBoth) {
  const sdk::CallRecord one = Call(1);
  const sdk::CallRecord other = Call(2);
  const std::vector<const sdk::CallRecord*> all = {&one, &other};
  EXPECT_EQ(CompareCalls(all, 0).culprit, 1);
  EXPECT_EQ(CompareCalls(all, 1).culprit, 1);
  EXPECT_EQ(CompareCalls(all, 1).reporter, 0);
}

TEST(CompareCallsTest, WhatIsNotKnownIsNoDifference) {
  const sdk::CallRecord one = Call(1);
  const std::vector<const sdk::CallRecord*> all = {&one, nullptr, &one};
  EXPECT_FALSE(CompareCalls(all, 0).differs);
  EXPECT_FALSE(CompareCalls(all, 0).is_complete);
}

constexpr uint64_t kGroup = 0x1234567890abcdef;

ControlMessage Message(ControlMessage::Kind kind) {
  ControlMessage message;
  message.kind = kind;
  message.sender = 2;
  message.group = kGroup;
  return message;
}

TEST(IsSoundTest, MessagesOfTheGroupAreSound) {
  ControlMessage state = Message(ControlMessage::Kind::kState);
  state.awaited = Bit(0) | Bit(2);
  EXPECT_TRUE(IsSound(state, kGroup, 3));
  ControlMessage failure = Message(ControlMessage::Kind::kFailure);
  failure.failure = {
      .kind = GroupFailure::Kind::kLate, .culprit = 2, .reporter = 1, .late = Bit(2)};
  EXPECT_TRUE(IsSound(failure, kGroup, 3));
  state.awaited = ~uint64_t{0};
  EXPECT_TRUE(IsSound(state, kGroup, 64)) << "the largest group";
}

TEST(IsSoundTest, AMessageOfAnotherJobIsNot) {
  EXPECT_FALSE(IsSound(Message(ControlMessage::Kind::kLeft), kGroup + 1, 3));
}

TEST(IsSoundTest, RanksAndKindsOutOfRangeAreNot) {
  const auto changed = [](auto change) {
    ControlMessage message = Message(ControlMessage::Kind::kFailure);
    change(message);
    return IsSound(message, kGroup, 3);
  };
  EXPECT_TRUE(changed([](ControlMessage& /*m*/) {}));
  EXPECT_FALSE(changed([](ControlMessage& m) { m.kind = static_cast<ControlMessage::Kind>(6); }));
  EXPECT_FALSE(changed([](ControlMessage& m) { m.sender = -1; }));
  EXPECT_FALSE(changed([](ControlMessage& m) { m.sender = 3; }));
  EXPECT_FALSE(changed([](ControlMessage& m) { m.awaited = Bit(3); }));
  EXPECT_FALSE(changed([](ControlMessage& m) { m.failure.culprit = 3; }));
  EXPECT_FALSE(changed([](ControlMessage& m) { m.failure.culprit = -1; }));
  EXPECT_FALSE(changed([](ControlMessage& m) { m.failure.reporter = 3; }));
  EXPECT_FALSE(changed([](ControlMessage& m) { m.failure.reporter = -1; }));
  EXPECT_FALSE(changed([](ControlMessage& m) { m.failure.late = Bit(3); }));
  EXPECT_FALSE(changed([](ControlMessage& m) { m.failure.kind = GroupFailure::Kind::kInStore; }))
      << "its text is not in the message";
  EXPECT_FALSE(
      changed([](ControlMessage& m) { m.failure.kind = static_cast<GroupFailure::Kind>(8); }));
}

TEST(TagTest, EveryFieldHasBitsOfItsOwn) {
  const DataTag zero;
  const std::vector<DataTag> tags = {
      {.sender = 63}, {.call = 1023}, {.instance = 255}, {.order = 63}, {.digest = kDigestMask}};
  uint64_t together = TagOf(zero);
  EXPECT_EQ(together, 0u);
  for (const DataTag& tag : tags) {
    EXPECT_EQ(together & TagOf(tag), 0u);
    together |= TagOf(tag);
  }
  EXPECT_EQ(together, ~kControlBit) << "and no data message is taken for one of control";
  EXPECT_NE(ControlTag(5) & kControlBit, 0u);
}

}  // namespace
}  // namespace cotune::ucx
