// Functions of the caller that race as choices, on ranks that are threads of this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "integration/capi/cotune.h"
#include "integration/capi/testing/function_ranks.h"
#include "nlohmann/json.hpp"

namespace cotune {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kCount = 256;
constexpr uint32_t kAllReduceOnly = 1u << COTUNE_COLLECTIVE_ALL_REDUCE;
constexpr std::array<cotune_collective, 5> kCollectives = {
    COTUNE_COLLECTIVE_ALL_REDUCE, COTUNE_COLLECTIVE_ALL_GATHER, COTUNE_COLLECTIVE_REDUCE_SCATTER,
    COTUNE_COLLECTIVE_ALL_TO_ALL, COTUNE_COLLECTIVE_BROADCAST};

cotune_result Right(RankInMeeting& at, cotune_function_call& call, char* reason, size_t size) {
  return RunNaively(at, call, static_cast<float*>(call.recv), reason, size);
}

// The result is in memory of the function.
cotune_result RightElsewhere(RankInMeeting& at, cotune_function_call& call, char* reason,
                             size_t size) {
  at.own.resize(call.count * static_cast<uint64_t>(call.world_size));
  call.result = at.own.data();
  return RunNaively(at, call, at.own.data(), reason, size);
}

// The function names recv itself as the place of its result.
cotune_result RightInRecv(RankInMeeting& at, cotune_function_call& call, char* reason,
                          size_t size) {
  call.result = call.recv;
  return Right(at, call, reason, size);
}

void ExpectRightValues(cotune_group* group, const std::vector<cotune_collective>& collectives) {
  for (const cotune_collective each : collectives) {
    for (const bool is_in_place : {false, true}) {
      for (const uint64_t count : {kCount, uint64_t{1}, 3 * kCount, uint64_t{7}}) {
        EXPECT_EQ(WrongIn(group, each, count, is_in_place), "");
      }
    }
  }
}

std::string ExplainedText(cotune_group* group) {
  cotune_call call{};
  call.struct_size = sizeof(call);
  call.collective = COTUNE_COLLECTIVE_ALL_REDUCE;
  call.dtype = COTUNE_F32;
  call.reduction = COTUNE_REDUCE_SUM;
  call.count = kCount;
  std::string text(size_t{1} << 16, '\0');
  size_t length = 0;
  EXPECT_EQ(cotune_explain(group, &call, text.data(), text.size(), &length), COTUNE_SUCCESS);
  text.resize(length);
  return text;
}

class CallerFunctionsTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    unsetenv("COTUNE_CONFIG");
    setenv("COTUNE_COLLECTIVE_AUTOTUNE_TIMEOUT", "10s", 1);
    setenv("COTUNE_COLLECTIVE_BENCHMARK_NRUNS", "10", 1);
    ranks_ = std::make_unique<FunctionRanks>(GetParam());
  }

  // One tune of all_reduce, after which the choice named is out on every rank. Gives its line.
  nlohmann::json ExpectDropped(const std::string& choice) {
    nlohmann::json line;
    ranks_->Run([&](int rank, cotune_group* group) {
      EXPECT_EQ(TuneFloats(group, kAllReduceOnly), COTUNE_SUCCESS) << cotune_last_error(group);
      const nlohmann::json explained = Explained(group, COTUNE_COLLECTIVE_ALL_REDUCE, kCount);
      EXPECT_EQ(explained["source"], "table");
      EXPECT_NE(explained["choice"], choice);
      ExpectRightValues(group, {COTUNE_COLLECTIVE_ALL_REDUCE});
      if (rank == 0) line = LineOf(explained, choice);
      EXPECT_THAT(ExplainedText(group), HasSubstr("    " + choice + " was dropped (")) << rank;
      if (rank == 0 && line.contains("reason")) {
        EXPECT_THAT(ExplainedText(group), HasSubstr(std::string(line["reason"]) + "\n"));
      }
    });
    EXPECT_FALSE(line.is_null());
    EXPECT_TRUE(line.contains("time_us") && line["time_us"].is_null()) << line.dump();
    return line;
  }

  void ExpectEachOpenIsClosed(int opens_at_least) {
    for (const auto& each : ranks_->functions) {
      const RankFunctions::Counts counts = each->counts();
      EXPECT_GE(counts.opened, opens_at_least);
      EXPECT_EQ(counts.closed, counts.opened);
    }
  }

  int last() const { return GetParam() - 1; }

  std::unique_ptr<FunctionRanks> ranks_;
};

INSTANTIATE_TEST_SUITE_P(Ranks, CallerFunctionsTest, ::testing::Values(2, 3));

TEST_P(CallerFunctionsTest, RightFunctionsAreMeasuredBesideTheBackends) {
  ranks_->Add("here", Right);
  ranks_->Add("there?in=own", RightElsewhere);
  ranks_->Run([&](int rank, cotune_group* group) {
    // Before a tune the default is that of a backend.
    EXPECT_THAT(std::string(Explained(group, COTUNE_COLLECTIVE_ALL_REDUCE, kCount)["choice"]),
                StartsWith("host/"));
    EXPECT_EQ(TuneFloats(group, kAllReduceOnly), COTUNE_SUCCESS) << cotune_last_error(group);
    ExpectRightValues(group, {COTUNE_COLLECTIVE_ALL_REDUCE});
    if (rank != 0) return;
    const nlohmann::json explained = Explained(group, COTUNE_COLLECTIVE_ALL_REDUCE, kCount);
    for (const char* choice : {"caller/here", "caller/there?in=own"}) {
      const nlohmann::json line = LineOf(explained, choice);
      EXPECT_GT(line.value("time_us", -1.0), 0) << explained.dump(1);
      EXPECT_EQ(line.value("wrong", 1), 0) << line.dump();
    }
  });
  ExpectEachOpenIsClosed(1);
}

TEST_P(CallerFunctionsTest, FunctionsAloneRunEveryCollective) {
  ranks_->backends = "caller";
  ranks_->Add("here", Right);
  ranks_->Add("there", RightElsewhere);
  ranks_->Add("in_recv", RightInRecv);
  ranks_->Run([&](int, cotune_group* group) {
    EXPECT_EQ(TuneFloats(group, 0), COTUNE_SUCCESS) << cotune_last_error(group);
    for (const cotune_collective each : kCollectives) {
      const nlohmann::json explained = Explained(group, each, kCount);
      EXPECT_EQ(explained["source"], "table");
      EXPECT_THAT(std::string(explained["choice"]), StartsWith("caller/"));
    }
    ExpectRightValues(group, {kCollectives.begin(), kCollectives.end()});
    EXPECT_EQ(WrongIn(group, COTUNE_COLLECTIVE_BROADCAST, kCount, false, last()), "");
    EXPECT_EQ(cotune_all_reduce(group, nullptr, nullptr, 0, COTUNE_F32, COTUNE_REDUCE_SUM),
              COTUNE_SUCCESS)
        << cotune_last_error(group);
    // No function runs it.
    double sent = 1;
    double received = 0;
    EXPECT_EQ(cotune_all_reduce(group, &sent, &received, 1, COTUNE_F64, COTUNE_REDUCE_SUM),
              COTUNE_ERROR_UNSUPPORTED);
  });
  ExpectEachOpenIsClosed(1);
}

TEST_P(CallerFunctionsTest, ADatabaseKnowsFunctionsAgain) {
  ranks_->backends = "caller";
  ranks_->Add("here", Right);
  ranks_->Add("there", RightElsewhere);
  const std::string path = ranks_->folder + "/tuned.tdb";
  std::string winner;
  ranks_->Run([&](int rank, cotune_group* group) {
    EXPECT_EQ(TuneFloats(group, kAllReduceOnly), COTUNE_SUCCESS) << cotune_last_error(group);
    EXPECT_EQ(cotune_save(group, path.c_str()), COTUNE_SUCCESS) << cotune_last_error(group);
    if (rank == 0) winner = Explained(group, COTUNE_COLLECTIVE_ALL_REDUCE, kCount)["choice"];
  });
  ranks_->Run([&](int, cotune_group* group) {
    EXPECT_EQ(cotune_load(group, path.c_str()), COTUNE_SUCCESS) << cotune_last_error(group);
    const nlohmann::json explained = Explained(group, COTUNE_COLLECTIVE_ALL_REDUCE, kCount);
    EXPECT_EQ(explained["source"], "table");
    EXPECT_EQ(explained["choice"], winner);
    ExpectRightValues(group, {COTUNE_COLLECTIVE_ALL_REDUCE});
  });
  // Another version of the functions may have other times.
  for (const auto& each : ranks_->functions) each->version = "2";
  ranks_->Run([&](int, cotune_group* group) {
    EXPECT_EQ(cotune_load(group, path.c_str()), COTUNE_ERROR_DATABASE);
    EXPECT_THAT(cotune_last_error(group), HasSubstr("caller"));
  });
}

TEST_P(CallerFunctionsTest, AWrongFunctionIsDroppedOnAllRanks) {
  ranks_->Add("wrong",
              [&](RankInMeeting& at, cotune_function_call& call, char* reason, size_t size) {
                const cotune_result result = Right(at, call, reason, size);
                if (call.rank == last()) static_cast<float*>(call.recv)[call.count - 1] += 1;
                return result;
              });
  const nlohmann::json line = ExpectDropped("caller/wrong");
  EXPECT_GT(line.value("wrong", 0), 0) << line.dump();
}

TEST_P(CallerFunctionsTest, AFunctionThatWritesNothingIsWrong) {
  ranks_->Add("elsewhere", RightElsewhere);
  ranks_->Add("right", RightInRecv);
  ranks_->Add("nothing", [](RankInMeeting&, cotune_function_call&, char*, size_t) {
    return cotune_result{COTUNE_SUCCESS};
  });
  const nlohmann::json line = ExpectDropped("caller/nothing");
  EXPECT_GT(line.value("wrong", 0), 0) << line.dump();
}

// A call that writes nothing does not give the result of the call before, which had the same data.
TEST_P(CallerFunctionsTest, NoResultOfAnEarlierCallIsLeft) {
  ranks_->backends = "caller";
  std::vector<std::atomic<int>> calls(static_cast<size_t>(GetParam()));
  ranks_->Add("once",
              [&](RankInMeeting& at, cotune_function_call& call, char* reason, size_t size) {
                const int before = calls[static_cast<size_t>(call.rank)]++;
                if (before > 0) return cotune_result{COTUNE_SUCCESS};
                return RightInRecv(at, call, reason, size);
              });
  ranks_->Run([&](int, cotune_group* group) {
    EXPECT_EQ(WrongIn(group, COTUNE_COLLECTIVE_ALL_REDUCE, kCount, false), "");
    EXPECT_THAT(WrongIn(group, COTUNE_COLLECTIVE_ALL_REDUCE, kCount, false),
                HasSubstr("value 0 is"));
  });
}

TEST_P(CallerFunctionsTest, AFunctionThatFailsOnOneRankIsDroppedOnAllRanks) {
  setenv("COTUNE_COLLECTIVE_AUTOTUNE_TIMEOUT", "1s", 1);
  ranks_->Add("fails",
              [&](RankInMeeting& at, cotune_function_call& call, char* reason, size_t size) {
                if (call.rank != last()) return Right(at, call, reason, size);
                std::strncpy(reason, "the link\nis down", size);
                return cotune_result{COTUNE_ERROR_ENVIRONMENT};
              });
  ranks_->Add("right", Right);
  const nlohmann::json line = ExpectDropped("caller/fails");
  EXPECT_THAT(line.value("reason", ""), HasSubstr("the link is down"));
  // Once for the function that has failed, and again for the other one.
  ExpectEachOpenIsClosed(2);
}

TEST_P(CallerFunctionsTest, AFunctionThatThrowsOnOneRankIsDroppedOnAllRanks) {
  setenv("COTUNE_COLLECTIVE_AUTOTUNE_TIMEOUT", "1s", 1);
  ranks_->Add("throws",
              [&](RankInMeeting& at, cotune_function_call& call, char* reason, size_t size) {
                if (call.rank == 0) throw std::runtime_error("no more patience");
                return Right(at, call, reason, size);
              });
  const nlohmann::json line = ExpectDropped("caller/throws");
  EXPECT_THAT(line.value("reason", ""), HasSubstr("no more patience"));
  ExpectEachOpenIsClosed(1);
}

TEST_P(CallerFunctionsTest, AFunctionThatDoesNotReturnIsDroppedAndWritesToNoOperand) {
  setenv("COTUNE_COLLECTIVE_AUTOTUNE_TIMEOUT", "500ms", 1);
  TestEvent comes_to_life;
  TestEvent has_written;
  std::atomic<int> stuck = 0;
  ranks_->Add("stuck",
              [&](RankInMeeting& at, cotune_function_call& call, char* reason, size_t size) {
                if (call.rank != last()) return Right(at, call, reason, size);
                ++stuck;
                comes_to_life.Await();
                std::memset(call.send, 0x5a, call.count * sizeof(float));
                std::memset(call.recv, 0x5a, call.count * sizeof(float));
                has_written.Set();
                return cotune_result{COTUNE_SUCCESS};
              });
  ranks_->Add("right", Right);
  ranks_->Run([&](int rank, cotune_group* group) {
    EXPECT_EQ(TuneFloats(group, kAllReduceOnly), COTUNE_SUCCESS) << cotune_last_error(group);
    const nlohmann::json explained = Explained(group, COTUNE_COLLECTIVE_ALL_REDUCE, kCount);
    EXPECT_EQ(explained["source"], "table");
    EXPECT_NE(explained["choice"], "caller/stuck");
    if (rank == 0) {
      const nlohmann::json line = LineOf(explained, "caller/stuck");
      EXPECT_EQ(line["outcome"], "launch_failed");
      EXPECT_THAT(line.value("reason", ""), HasSubstr("caller/stuck has not returned"));
    }
    if (rank == last()) {
      EXPECT_EQ(stuck, 1);
      comes_to_life.Set();
      has_written.Await();
    }
    ExpectRightValues(group, {COTUNE_COLLECTIVE_ALL_REDUCE});
  });
  ExpectEachOpenIsClosed(2);
}

// The only choice is stuck in a call, whose operands are the caller's.
TEST_P(CallerFunctionsTest, ACallThatIsGivenUpLeavesItsOperandsAlone) {
  ranks_->backends = "caller";
  ranks_->call_timeout_ns = 1'000'000'000;
  TestEvent comes_to_life;
  TestEvent has_written;
  std::atomic<bool> gets_stuck = false;
  ranks_->Add("stuck",
              [&](RankInMeeting& at, cotune_function_call& call, char* reason, size_t size) {
                if (!gets_stuck || call.rank != last()) return Right(at, call, reason, size);
                comes_to_life.Await();
                std::memset(call.send, 0x5a, call.count * sizeof(float));
                std::memset(call.recv, 0x5a, call.count * sizeof(float));
                has_written.Set();
                return cotune_result{COTUNE_SUCCESS};
              });
  ranks_->Run([&](int rank, cotune_group* group) {
    EXPECT_EQ(WrongIn(group, COTUNE_COLLECTIVE_ALL_REDUCE, kCount, false), "");
    gets_stuck = true;
    std::vector<float> send(kCount, 2);
    std::vector<float> recv(kCount, -3);
    EXPECT_NE(
        cotune_all_reduce(group, send.data(), recv.data(), kCount, COTUNE_F32, COTUNE_REDUCE_SUM),
        COTUNE_SUCCESS);
    if (rank != last()) return;
    EXPECT_THAT(cotune_last_error(group), HasSubstr("caller/stuck"));
    comes_to_life.Set();
    has_written.Await();
    EXPECT_EQ(send, std::vector<float>(kCount, 2));
    EXPECT_EQ(recv, std::vector<float>(kCount, -3));
  });
  ExpectEachOpenIsClosed(1);
}

TEST_P(CallerFunctionsTest, FunctionsThatDifferBetweenRanksAreLeftOut) {
  for (const bool differ_by_version : {false, true}) {
    FunctionRanks ranks(GetParam());
    ranks.Add("right", Right);
    auto& other = *ranks.functions[static_cast<size_t>(last())];
    if (differ_by_version) other.version = "2";
    if (!differ_by_version) other.Add("more", Right);
    ranks.Run([&](int, cotune_group* group) {
      EXPECT_EQ(TuneFloats(group, kAllReduceOnly), COTUNE_SUCCESS) << cotune_last_error(group);
      const nlohmann::json explained = Explained(group, COTUNE_COLLECTIVE_ALL_REDUCE, kCount);
      EXPECT_THAT(std::string(explained["choice"]), StartsWith("host/"));
      EXPECT_TRUE(LineOf(explained, "caller/right").is_null()) << explained.dump(1);
      ExpectRightValues(group, {COTUNE_COLLECTIVE_ALL_REDUCE});
    });
    for (const auto& each : ranks.functions) EXPECT_EQ(each->counts().opened, 0);
  }
}

TEST_P(CallerFunctionsTest, ASubgroupRunsThemWithItsOwnRanks) {
  ranks_->backends = "caller";
  ranks_->Add("right", Right);
  ranks_->Run([&](int rank, cotune_group* group) {
    if (rank == 0) return;
    // The subgroup has the ranks in reverse order.
    std::vector<int32_t> chosen;
    for (int32_t each = last(); each > 0; --each) chosen.push_back(each);
    cotune_group* part = nullptr;
    ASSERT_EQ(cotune_group_split(group, "part", chosen.data(), chosen.size(), &part, nullptr),
              COTUNE_SUCCESS)
        << cotune_last_error(group);
    EXPECT_EQ(cotune_group_rank(part), last() - rank);
    EXPECT_EQ(TuneFloats(part, kAllReduceOnly | 1u << COTUNE_COLLECTIVE_ALL_GATHER), COTUNE_SUCCESS)
        << cotune_last_error(part);
    EXPECT_EQ(Explained(part, COTUNE_COLLECTIVE_ALL_GATHER, kCount)["choice"], "caller/right");
    ExpectRightValues(part, {COTUNE_COLLECTIVE_ALL_REDUCE, COTUNE_COLLECTIVE_ALL_GATHER});
    cotune_group_destroy(part);
  });
  ExpectEachOpenIsClosed(0);
  EXPECT_GE(ranks_->functions.back()->counts().opened, 1);
}

TEST_P(CallerFunctionsTest, AFunctionThatFailsAfterTheTuneStopsTheGroup) {
  ranks_->backends = "caller";
  ranks_->call_timeout_ns = 2'000'000'000;
  std::atomic<bool> fails = false;
  ranks_->Add("fragile",
              [&](RankInMeeting& at, cotune_function_call& call, char* reason, size_t size) {
                if (!fails || call.rank != last()) return Right(at, call, reason, size);
                std::strncpy(reason, "the link is down", size);
                return cotune_result{COTUNE_ERROR_ENVIRONMENT};
              });
  ranks_->Run([&](int rank, cotune_group* group) {
    EXPECT_EQ(TuneFloats(group, kAllReduceOnly), COTUNE_SUCCESS) << cotune_last_error(group);
    ExpectRightValues(group, {COTUNE_COLLECTIVE_ALL_REDUCE});
    if (rank == last()) fails = true;
    const std::string failure = WrongIn(group, COTUNE_COLLECTIVE_ALL_REDUCE, kCount, false);
    EXPECT_NE(failure, "");
    if (rank == last()) {
      EXPECT_THAT(failure, HasSubstr("caller/fragile"));
      EXPECT_THAT(failure, HasSubstr("the link is down"));
    }
    const cotune_result result = cotune_last_result(group);
    EXPECT_NE(result, COTUNE_SUCCESS);
    EXPECT_EQ(WrongIn(group, COTUNE_COLLECTIVE_ALL_REDUCE, kCount, false), failure);
    EXPECT_EQ(cotune_last_result(group), result);
  });
  ExpectEachOpenIsClosed(1);
}

// Another thread gives up the job while functions wait.
TEST_P(CallerFunctionsTest, AnAbortEndsACallAndClosesItsGroup) {
  ranks_->backends = "caller";
  TestEvent waits;
  ranks_->Add("waits",
              [&](RankInMeeting& at, cotune_function_call& call, char* reason, size_t size) {
                if (call.rank != 0) return Right(at, call, reason, size);
                waits.Set();
                // The last rank does not come.
                at.meeting->Await(call.rank, call.deadline_ns);
                return cotune_result{COTUNE_ERROR_ABORTED};
              });
  ranks_->Run([&](int rank, cotune_group* group) {
    if (rank == last()) {
      waits.Await();
      EXPECT_EQ(cotune_group_abort(group, "the user has enough"), COTUNE_SUCCESS);
      return;
    }
    EXPECT_THAT(WrongIn(group, COTUNE_COLLECTIVE_ALL_REDUCE, kCount, false),
                HasSubstr("the user has enough"));
  });
  ExpectEachOpenIsClosed(0);
}

}  // namespace
}  // namespace cotune
