// One rank calls something else than the others: all of them learn which and what, and nobody takes
// wrong data for right.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plugins/sdk/call_record.h"
#include "plugins/testing/rank_processes.h"
#include "plugins/testing/tested_backend.h"

namespace cotune::backend_test {
namespace {

constexpr int64_t kLongNs = 120 * kSecondNs;
constexpr int kOther = 2;  // the rank that calls something else
constexpr int kWrongCall = 20;
constexpr cotune_dtype_t kF32 = {COTUNE_DTYPE_FLOAT, 32, 1};

cotune_problem_t SumOf(cotune_dtype_t type, uint64_t count, int ranks) {
  return AbiProblem(COTUNE_ALL_REDUCE, type, COTUNE_SUM, count, ranks);
}

class MismatchTest : public testing::TestWithParam<Mismatch> {};

TEST_P(MismatchTest, IsNamedByAll) {
  const Mismatch& mismatch = GetParam();
  JobForTest job;
  RankProcesses ranks(mismatch.ranks, [&](int rank) -> std::string {
    GroupForTest group(job.host(), "g", rank, AllRanks(mismatch.ranks), MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    std::vector<float> send(200'000, 1);
    std::vector<float> receive(send.size());
    cotune_error_t error = EmptyError();
    const auto run = [&](const cotune_problem_t& problem, const char* choice) {
      return RunOnce(group.group(), problem, choice, send.data(), receive.data(),
                     MonotonicNs() + kLongNs, &error);
    };
    // The others may fail early: still in a call before, when that waits for the rank that has gone
    // on. Who needs nothing of the others may fail in the call after: who only sends in a
    // broadcast, or calls with no elements. But whoever gets data does not take that of another
    // call for it.
    cotune_status_t status = COTUNE_OK;
    int failed_call = -1;
    for (int call = 0; call < kWrongCall + 4 && status == COTUNE_OK; ++call) {
      const bool differs = call == kWrongCall && rank == kOther;
      status = differs ? run(mismatch.other, mismatch.other_choice)
                       : run(mismatch.usual, mismatch.usual_choice);
      failed_call = call;
    }
    // These are in front of the rank that differs, and have the data of their own call.
    const bool is_done = status == COTUNE_OK && rank < kOther && Tested().sends_ahead &&
                         mismatch.usual.collective == COTUNE_BROADCAST;
    if (is_done) return "";
    const std::string message = error.message;
    const auto says = [&](const std::string& text) {
      return message.find(text) != std::string::npos;
    };
    const bool told = status == COTUNE_PEER_FAILED && error.failed_rank == kOther &&
                      says(mismatch.usual_text) && says(mismatch.other_text);
    const bool needs_nothing = mismatch.usual.collective == COTUNE_BROADCAST ||
                               (rank == kOther && mismatch.other.count == 0);
    const bool in_time = needs_nothing || failed_call <= kWrongCall;
    return told && in_time ? ""
                           : "call " + std::to_string(failed_call) + ", status " +
                                 std::to_string(status) + ": " + message;
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

// Rank 1 leaves out a broadcast, and its next call has signals where rank 0 waits for others.
TEST(MismatchedSequenceTest, ARankThatIsACallBehindIsNamed) {
  constexpr int kCalls = 10;
  JobForTest job;
  RankProcesses ranks(2, [&](int rank) -> std::string {
    GroupForTest group(job.host(), "g", rank, AllRanks(2), MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    constexpr uint64_t kTwoChunks = 20'000;
    std::vector<float> send(kTwoChunks, 1);
    std::vector<float> receive(kTwoChunks);
    cotune_error_t error = EmptyError();
    const auto reduce = [&](uint64_t count) {
      return RunOnce(group.group(), SumOf(kF32, count, 2), Tested().small, send.data(),
                     receive.data(), MonotonicNs() + kLongNs, &error);
    };
    const auto broadcast = [&] {
      return RunOnce(group.group(), AbiProblem(COTUNE_BROADCAST, kF32, 0, 1000, 2),
                     Tested().broadcast, send.data(), receive.data(), MonotonicNs() + kLongNs,
                     &error);
    };
    for (int call = 0; call < kCalls; ++call) {
      if (broadcast() != COTUNE_OK || reduce(1000) != COTUNE_OK) return error.message;
    }
    // As root rank 0 waits for nobody.
    if (rank == 0 && broadcast() != COTUNE_OK) return "";
    const cotune_status_t status = reduce(rank == 0 ? 1000 : kTwoChunks);
    const std::string message = error.message;
    return status == COTUNE_PEER_FAILED &&
                   message.find("same calls in the same order") != std::string::npos
               ? ""
               : "status " + std::to_string(status) + ": " + message;
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, MismatchTest, testing::ValuesIn(Tested().mismatches),
                         [](const testing::TestParamInfo<Mismatch>& info) {
                           return info.param.name;
                         });

TEST(CallRecordTest, WhatAnotherProcessWroteIsReadWithCare) {
  EXPECT_EQ(sdk::TextOf(0xffff, 7), "? of 7 ?");
}

}  // namespace
}  // namespace cotune::backend_test
