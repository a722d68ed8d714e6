// One rank calls something else than the others: all of them learn which and what, and nobody takes
// wrong data for right.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "plugins/host/backend.h"
#include "plugins/host/call_record.h"
#include "plugins/host/ranks_for_test.h"

namespace cotune::host {
namespace {

constexpr int64_t kLongNs = 120 * kSecondNs;
constexpr int kRanks = 4;
constexpr int kOther = 2;  // the rank that calls something else
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
};

const cotune_problem_t kSum = AbiProblem(COTUNE_ALL_REDUCE, kF32, COTUNE_SUM, kCount, kRanks);

class MismatchTest : public testing::TestWithParam<Mismatch> {};

TEST_P(MismatchTest, IsNamedByAll) {
  const Mismatch& mismatch = GetParam();
  JobForTest job;
  RankProcesses ranks(kRanks, [&](int rank) -> std::string {
    GroupForTest group(job.host(), "g", rank, AllRanks(kRanks), MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    std::vector<float> send(2 * kCount * kRanks, 1);
    std::vector<float> receive(send.size());
    cotune_error_t error = EmptyError();
    const auto run = [&](const cotune_problem_t& problem, const char* choice) {
      return RunOnce(group.group(), problem, choice, send.data(), receive.data(),
                     MonotonicNs() + kLongNs, &error);
    };
    // The others may fail early or late: still in a call before, when that waits for the rank that
    // has gone on; or in the call after, when who only sends was done before the others came.
    cotune_status_t status = COTUNE_OK;
    for (int call = 0; call < 24 && status == COTUNE_OK; ++call) {
      const bool differs = call == 20 && rank == kOther;
      status = differs ? run(mismatch.other, mismatch.other_choice)
                       : run(mismatch.usual, mismatch.usual_choice);
    }
    const std::string message = error.message;
    const auto says = [&](const std::string& text) {
      return message.find(text) != std::string::npos;
    };
    const bool told = status == COTUNE_PEER_FAILED && says("job rank 2 ") &&
                      says(mismatch.usual_text) && says(mismatch.other_text);
    return told ? "" : "status " + std::to_string(status) + ": " + message;
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, MismatchTest,
    testing::Values(Mismatch{"Count", kSum, "one_shot?chunk=65536",
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
                             AbiProblem(COTUNE_ALL_TO_ALL, kF32, 0, kCount, kRanks),
                             "pairwise?chunk=65536", "all_reduce of 3000", "all_to_all of 3000"},
                    Mismatch{"NoElements", kSum, "one_shot?chunk=65536",
                             AbiProblem(COTUNE_ALL_REDUCE, kF32, COTUNE_SUM, 0, kRanks),
                             "one_shot?chunk=65536", "all_reduce of 3000", "all_reduce of 0"},
                    Mismatch{"Root", AbiProblem(COTUNE_BROADCAST, kF32, 0, kCount, kRanks, 0),
                             "chain?chunk=65536",
                             AbiProblem(COTUNE_BROADCAST, kF32, 0, kCount, kRanks, 1),
                             "chain?chunk=65536", "from rank 0", "from rank 1"},
                    Mismatch{"Choice", kSum, "one_shot?chunk=65536", kSum, "two_shot?chunk=65536",
                             "by another choice", "3000 f32"}),
    [](const testing::TestParamInfo<Mismatch>& info) { return info.param.name; });

TEST(CallRecordTest, WhatAnotherProcessWroteIsReadWithCare) {
  EXPECT_EQ(TextOf(0xffff, 7), "? of 7 ?");
}

}  // namespace
}  // namespace cotune::host
