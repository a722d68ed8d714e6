// One rank calls something else than the others: all of them learn which and what, and nobody takes
// wrong data for right.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plugins/host/backend.h"
#include "plugins/sdk/call_record.h"
#include "plugins/host/schedule.h"
#include "plugins/host/testing/host_ranks.h"

namespace cotune::host {
namespace {

constexpr int64_t kLongNs = 120 * kSecondNs;
constexpr int kRanks = 4;
// More ranks count arrivals where fewer read each other's signals.
constexpr int kManyRanks = kMaxRanksMeetingBySignals + 1;
constexpr int kOther = 2;  // the rank that calls something else
constexpr int kWrongCall = 20;
constexpr uint64_t kCount = 3000;
constexpr cotune_dtype_t kF32 = {COTUNE_DTYPE_FLOAT, 32, 1};
constexpr cotune_dtype_t kI32 = {COTUNE_DTYPE_INT, 32, 1};

struct Mismatch {
  const char* name;
  cotune_problem_t usual;
  const char* usual_choice;
  cotune_problem_t other;
  const char* other_choice;
  const char* usual_text;
  const char* other_text;
  int ranks = kRanks;
};

cotune_problem_t SumOf(cotune_dtype_t type, uint64_t count, int ranks = kRanks) {
  return AbiProblem(COTUNE_ALL_REDUCE, type, COTUNE_SUM, count, ranks);
}

const cotune_problem_t kSum = SumOf(kF32, kCount);

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
      return RunOnce(group.group(), SumOf(kF32, count, 2), "one_shot?chunk=65536", send.data(),
                     receive.data(), MonotonicNs() + kLongNs, &error);
    };
    const auto broadcast = [&] {
      return RunOnce(group.group(), AbiProblem(COTUNE_BROADCAST, kF32, 0, 1000, 2),
                     "flat?chunk=65536", send.data(), receive.data(), MonotonicNs() + kLongNs,
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

INSTANTIATE_TEST_SUITE_P(
    Kinds, MismatchTest,
    testing::Values(
        Mismatch{"Count", kSum, "one_shot?chunk=65536",
                 AbiProblem(COTUNE_ALL_REDUCE, kF32, COTUNE_SUM, 10, kRanks),
                 "one_shot?chunk=65536", "called all_reduce of 3000 f32 (sum)",
                 "called all_reduce of 10 f32 (sum)"},
        Mismatch{"Type", kSum, "two_shot?chunk=65536",
                 AbiProblem(COTUNE_ALL_REDUCE, kI32, COTUNE_SUM, kCount, kRanks),
                 "two_shot?chunk=65536", "3000 f32", "3000 i32"},
        Mismatch{"Reduction", kSum, "one_shot?chunk=65536",
                 AbiProblem(COTUNE_ALL_REDUCE, kF32, COTUNE_MAX, kCount, kRanks),
                 "one_shot?chunk=65536", "(sum)", "(max)"},
        Mismatch{"Collective", kSum, "one_shot?chunk=65536",
                 AbiProblem(COTUNE_ALL_TO_ALL, kF32, 0, kCount, kRanks), "pairwise?chunk=65536",
                 "all_reduce of 3000", "all_to_all of 3000"},
        Mismatch{"NoElements", kSum, "one_shot?chunk=65536", SumOf(kF32, 0), "one_shot?chunk=65536",
                 "all_reduce of 3000", "calls with no elements"},
        Mismatch{"NoElementsInLines", SumOf(kF32, 20), "one_shot?transport=ll", SumOf(kF32, 0),
                 "one_shot?transport=ll", "all_reduce of 20", "calls with no elements"},
        Mismatch{"Root", AbiProblem(COTUNE_BROADCAST, kF32, 0, kCount, kRanks, 0),
                 "chain?chunk=65536", AbiProblem(COTUNE_BROADCAST, kF32, 0, kCount, kRanks, 1),
                 "chain?chunk=65536", "from rank 0", "from rank 1"},
        Mismatch{"Choice", kSum, "one_shot?chunk=65536", kSum, "two_shot?chunk=65536",
                 "by another choice", "3000 f32"},
        Mismatch{"TypeOfManyRanks", SumOf(kF32, kCount, kManyRanks), "one_shot?chunk=65536",
                 SumOf(kI32, kCount, kManyRanks), "one_shot?chunk=65536", "3000 f32", "3000 i32",
                 kManyRanks},
        Mismatch{"TypeInLines", SumOf(kF32, 20), "one_shot?transport=ll", SumOf(kI32, 20),
                 "one_shot?transport=ll", "20 f32", "20 i32"},
        Mismatch{"LinesAndSlot", SumOf(kF32, 20), "one_shot?transport=ll", SumOf(kF32, 20),
                 "one_shot?chunk=65536", "by another choice", "20 f32"},
        Mismatch{"OneChunkAndMany", SumOf(kF32, 100'000), "ring?chunk=1048576",
                 SumOf(kF32, 100'000), "one_shot?chunk=65536", "by another choice", "100000 f32"},
        Mismatch{"RootInLines", AbiProblem(COTUNE_BROADCAST, kF32, 0, 20, kRanks, 0),
                 "flat?transport=ll", AbiProblem(COTUNE_BROADCAST, kF32, 0, 20, kRanks, 1),
                 "flat?transport=ll", "from rank 0", "from rank 1"}),
    [](const testing::TestParamInfo<Mismatch>& info) { return info.param.name; });

TEST(CallRecordTest, WhatAnotherProcessWroteIsReadWithCare) {
  EXPECT_EQ(sdk::TextOf(0xffff, 7), "? of 7 ?");
}

}  // namespace
}  // namespace cotune::host
