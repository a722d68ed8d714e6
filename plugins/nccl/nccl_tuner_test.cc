// Tests the tuner's answers in the three versions of the interface.
#include "plugins/nccl/nccl_tuner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace cotune::nccl {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;

// A cost table as NCCL makes it, and the number of channels as it stands before the call.
struct Question {
  std::vector<float> table;
  int channels = 77;
};

Question NewQuestion(int algorithms = kTunerAlgorithms) {
  Question question;
  for (int cell = 0; cell < algorithms * kTunerProtocols; ++cell) {
    question.table.push_back(1.0f + static_cast<float>(cell));
  }
  return question;
}

class TunerTest : public ::testing::TestWithParam<int> {
 protected:
  void Ask(Question& question) {
    auto** table = reinterpret_cast<float**>(question.table.data());
    const int algorithms = static_cast<int>(question.table.size()) / kTunerProtocols;
    int* channels = &question.channels;
    NcclResult result = -1;
    if (GetParam() == 3) {
      result = ncclTunerPlugin_v3.get_coll_info(nullptr, kTunerAllReduce, 1024, 1, table,
                                                algorithms, kTunerProtocols, channels);
    } else if (GetParam() == 4) {
      result = ncclTunerPlugin_v4.get_coll_info(nullptr, kTunerAllReduce, 1024, 1, table,
                                                algorithms, kTunerProtocols, 1, channels);
    } else {
      result = ncclTunerPlugin_v5.get_coll_info(nullptr, kTunerAllReduce, 1024, 1, table,
                                                algorithms, kTunerProtocols, 1, channels);
    }
    EXPECT_EQ(result, kNcclSuccess);
  }
};

TEST_P(TunerTest, LeavesCallsOfOthersAlone) {
  Question question = NewQuestion();
  Ask(question);
  EXPECT_EQ(question.table, NewQuestion().table);
  EXPECT_EQ(question.channels, 0) << "any other number would replace NCCL's own";
}

TEST_P(TunerTest, ForcesEveryAlgorithmProtocolAndNumberOfChannels) {
  for (const Algorithm algorithm : {Algorithm::kTree, Algorithm::kRing}) {
    for (const Protocol protocol : {Protocol::kLl, Protocol::kLl128, Protocol::kSimple}) {
      for (const int channels : {0, 4, 32}) {
        const TunerScope scope(ForcedDecision{algorithm, protocol, channels});
        Question question = NewQuestion();
        Ask(question);
        std::vector<float> wanted(question.table.size(), -1.0f);
        wanted[static_cast<size_t>(algorithm) * 3 + static_cast<size_t>(protocol)] = 0.0f;
        EXPECT_THAT(question.table, ElementsAreArray(wanted));
        EXPECT_EQ(question.channels, channels);
        EXPECT_TRUE(scope.was_asked());
        EXPECT_TRUE(scope.was_followed());
      }
    }
  }
}

TEST_P(TunerTest, WithoutDecisionOnlyWhatNeedsMulticastOrANetworkIsRuledOut) {
  const TunerScope scope(std::nullopt);
  Question question = NewQuestion();
  Ask(question);
  const std::vector<float> tree_and_ring(question.table.begin(), question.table.begin() + 6);
  const std::vector<float> others(question.table.begin() + 6, question.table.end());
  EXPECT_THAT(tree_and_ring, ElementsAreArray({1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f}));
  EXPECT_THAT(others, Each(-1.0f));
  EXPECT_EQ(question.channels, 0);
  EXPECT_TRUE(scope.was_followed());
  EXPECT_EQ(scope.allowed(), 0x3fu);
}

TEST_P(TunerTest, WhatNcclDoesNotAllowIsNotForced) {
  const TunerScope scope(ForcedDecision{Algorithm::kRing, Protocol::kLl128, 8});
  Question question = NewQuestion();
  question.table[4] = -1;
  Ask(question);
  EXPECT_FLOAT_EQ(question.table[4], -1);
  EXPECT_FLOAT_EQ(question.table[3], 4);
  EXPECT_EQ(question.channels, 0);
  EXPECT_TRUE(scope.was_asked());
  EXPECT_FALSE(scope.was_followed());
  EXPECT_EQ(scope.allowed(), 0x3fu & ~DecisionBit(Algorithm::kRing, Protocol::kLl128));
}

TEST_P(TunerTest, TablesOfOtherHeightsKeepTheirRows) {
  for (const int algorithms : {2, 6, 9}) {
    const TunerScope scope(ForcedDecision{Algorithm::kTree, Protocol::kSimple, 0});
    Question question = NewQuestion(algorithms);
    Ask(question);
    std::vector<float> wanted(question.table.size(), -1.0f);
    wanted[2] = 0;
    EXPECT_THAT(question.table, ElementsAreArray(wanted));
  }
}

TEST_P(TunerTest, TheDecisionIsOfItsThreadAndScope) {
  const TunerScope outer(ForcedDecision{Algorithm::kRing, Protocol::kLl, 4});
  {
    const TunerScope inner(ForcedDecision{Algorithm::kTree, Protocol::kLl, 8});
    Question question = NewQuestion();
    Ask(question);
    EXPECT_EQ(question.channels, 8);
    EXPECT_FALSE(outer.was_asked());
  }
  Question of_other_thread = NewQuestion();
  std::thread([&] { Ask(of_other_thread); }).join();
  EXPECT_EQ(of_other_thread.table, NewQuestion().table);
  Question question = NewQuestion();
  Ask(question);
  EXPECT_EQ(question.channels, 4);
}

INSTANTIATE_TEST_SUITE_P(Versions, TunerTest, ::testing::Values(3, 4, 5));

TEST(TunerTableTest, InitialisesAndEndsInEveryForm) {
  void* context = &context;
  EXPECT_EQ(ncclTunerPlugin_v3.init(2, 1, nullptr, &context), kNcclSuccess);
  EXPECT_EQ(context, nullptr);
  EXPECT_EQ(ncclTunerPlugin_v3.destroy(context), kNcclSuccess);
  EXPECT_EQ(ncclTunerPlugin_v4.init(2, 1, nullptr, &context), kNcclSuccess);
  EXPECT_EQ(ncclTunerPlugin_v4.destroy(context), kNcclSuccess);
  EXPECT_EQ(ncclTunerPlugin_v5.init(&context, 1, 2, 1, nullptr, nullptr, nullptr), kNcclSuccess);
  EXPECT_EQ(ncclTunerPlugin_v5.finalize(context), kNcclSuccess);
  EXPECT_STREQ(ncclTunerPlugin_v5.name, "cotune");
}

}  // namespace
}  // namespace cotune::nccl
