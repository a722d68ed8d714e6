// Groups in every form: ranks as threads, several groups at once, overlapping ones, 64 ranks; and
// the same bits everywhere for sums that do round.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "plugins/host/backend.h"
#include "plugins/host/sdk_names.h"
#include "plugins/host/testing/host_ranks.h"

namespace cotune::host {
namespace {

constexpr int64_t kLongNs = 120 * kSecondNs;

cotune_problem_t ToAbi(const Problem& problem) {
  const uint32_t reduction =
      Reduces(problem) ? static_cast<uint32_t>(problem.reduction) + COTUNE_SUM : 0u;
  return AbiProblem(static_cast<uint32_t>(problem.collective) + COTUNE_ALL_REDUCE,
                    ElementTypeToAbi(problem.type), reduction, problem.count, problem.world_size,
                    problem.root);
}

// Runs every choice of a problem with exact data and compares with the reference evaluator.
std::string RunAllChoices(const GroupForTest& group, int rank, const Problem& problem) {
  std::vector<std::vector<std::byte>> inputs;
  for (int r = 0; r < problem.world_size; ++r) inputs.push_back(ExactInput(problem, r));
  const std::vector<std::byte> expected = ExpectedOutput(problem, rank, inputs);
  for (const cotune_choice_t& choice : RunnableChoices(group.backend(), ToAbi(problem))) {
    std::vector<std::byte> output(expected.size(), std::byte{0xa5});
    cotune_error_t error = EmptyError();
    const cotune_status_t status = RunOnce(group.group(), ToAbi(problem), choice.name,
                                           inputs[static_cast<size_t>(rank)].data(), output.data(),
                                           MonotonicNs() + kLongNs, &error);
    if (status != COTUNE_OK) return std::string(choice.name) + ": " + error.message;
    for (size_t i = 0; i < expected.size(); ++i) {
      if (output[i] != expected[i]) {
        return std::string(choice.name) + ": wrong byte " + std::to_string(i);
      }
    }
  }
  return "";
}

constexpr Collective kCollectives[] = {Collective::kAllReduce, Collective::kAllGather,
                                       Collective::kReduceScatter, Collective::kAllToAll,
                                       Collective::kBroadcast};

// Every collective once, for groups that have to share the machine with others.
std::string RunEverything(const GroupForTest& group, int rank, int world_size, ElementType type,
                          uint64_t count) {
  if (group.status() != COTUNE_OK) return group.error().message;
  for (const Collective collective : kCollectives) {
    const Problem problem{.collective = collective,
                          .type = type,
                          .count = count,
                          .world_size = world_size,
                          .root = world_size - 1};
    if (problem.collective != Collective::kBroadcast) {
      Problem other = problem;
      other.root = 0;
      if (std::string wrong = RunAllChoices(group, rank, other); !wrong.empty()) return wrong;
    } else if (std::string wrong = RunAllChoices(group, rank, problem); !wrong.empty()) {
      return wrong;
    }
  }
  return "";
}

class ThreadRanksTest : public testing::TestWithParam<int> {};

TEST_P(ThreadRanksTest, EqualTheEvaluator) {
  const int world_size = GetParam();
  JobForTest job;
  EXPECT_EQ(RunThreads(world_size,
                       [&](int rank) -> std::string {
                         GroupForTest group(job.host(), "g", rank, AllRanks(world_size),
                                            MonotonicNs() + kLongNs);
                         for (const ElementType type : {ElementType::kF32, ElementType::kBf16}) {
                           for (const uint64_t count : {1u, 17u, 20000u}) {
                             std::string wrong =
                                 RunEverything(group, rank, world_size, type, count);
                             if (!wrong.empty()) return wrong;
                           }
                         }
                         return "";
                       }),
            "");
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, ThreadRanksTest, testing::Values(1, 2, 3, 5));

TEST(GroupsTest, SixtyFourRanks) {
  constexpr int kRanks = 64;
  JobForTest job;
  job.Set("slot_bytes", "65536");
  EXPECT_EQ(RunThreads(kRanks,
                       [&](int rank) -> std::string {
                         GroupForTest group(job.host(), "g", rank, AllRanks(kRanks),
                                            MonotonicNs() + kLongNs);
                         if (group.status() != COTUNE_OK) return group.error().message;
                         const Problem problem{
                             .type = ElementType::kI32, .count = 1000, .world_size = kRanks};
                         return RunAllChoices(group, rank, problem);
                       }),
            "");
}

// Two groups of the same ranks in one process each, used from two threads at the same time.
TEST(GroupsTest, TwoGroupsAtOnce) {
  constexpr int kRanks = 3;
  JobForTest job;
  RankProcesses ranks(kRanks, [&](int rank) -> std::string {
    std::string wrong[2];
    std::vector<std::thread> threads;
    for (const int g : {0, 1}) {
      threads.emplace_back([&, g] {
        GroupForTest group(job.host(), "group-" + std::to_string(g), rank, AllRanks(kRanks),
                           MonotonicNs() + kLongNs);
        for (int i = 0; i < 20 && wrong[g].empty(); ++i) {
          wrong[g] = RunEverything(group, rank, kRanks,
                                   g == 0 ? ElementType::kF32 : ElementType::kI64, 3000);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return wrong[0] + wrong[1];
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

// Groups {0, 1, 2, 3}, {3, 1} and {0, 2} of one job; a rank's number differs from group to group.
TEST(GroupsTest, OverlappingSubgroups) {
  JobForTest job;
  RankProcesses ranks(4, [&](int rank) -> std::string {
    const std::vector<int32_t> pair =
        rank % 2 == 1 ? std::vector<int32_t>{3, 1} : std::vector<int32_t>{0, 2};
    const int rank_in_pair = pair[0] == rank ? 0 : 1;
    GroupForTest all(job.host(), "all", rank, AllRanks(4), MonotonicNs() + kLongNs);
    GroupForTest two(job.host(), "pair-" + std::to_string(rank % 2), rank_in_pair, pair,
                     MonotonicNs() + kLongNs);
    for (int i = 0; i < 20; ++i) {
      std::string wrong = RunEverything(all, rank, 4, ElementType::kF16, 700);
      if (wrong.empty()) wrong = RunEverything(two, rank_in_pair, 2, ElementType::kU8, 900);
      if (!wrong.empty()) return wrong;
    }
    return "";
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

// ---- Sums that round ---------------------------------------------------------------------------

constexpr int kSumRanks = 5;
constexpr uint64_t kSumCount = 30011;

std::vector<float> ArbitraryFloats(int rank) {
  std::mt19937_64 random(static_cast<uint64_t>(rank) + 99);
  std::normal_distribution<float> normal(0, 100);
  std::vector<float> values(kSumCount);
  for (float& value : values) value = normal(random);
  return values;
}

// The element type's bits of a value, and back.
std::vector<std::byte> Encode(const std::vector<float>& values, ElementType type) {
  std::vector<std::byte> bytes(values.size() * ElementBytes(type));
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half =
        type == ElementType::kBf16 ? Bf16FromF32(values[i]) : F16FromF32(values[i]);
    if (type == ElementType::kF32) {
      std::memcpy(bytes.data() + i * 4, &values[i], 4);
    } else {
      std::memcpy(bytes.data() + i * 2, &half, 2);
    }
  }
  return bytes;
}

double Decode(const std::byte* at, ElementType type) {
  float value = 0;
  uint16_t half = 0;
  std::memcpy(type == ElementType::kF32 ? static_cast<void*>(&value) : &half, at,
              ElementBytes(type));
  if (type == ElementType::kBf16) value = F32FromBf16(half);
  if (type == ElementType::kF16) value = F32FromF16(half);
  return value;
}

std::vector<float> Magnitudes(std::vector<float> values) {
  for (float& value : values) value = std::fabs(value);
  return values;
}

// How far a sum may be from the exact one: a few roundings in f32, one in the element type.
double Tolerance(ElementType type, double sum, double magnitude) {
  const double unit = type == ElementType::kBf16  ? 1.0 / 256
                      : type == ElementType::kF16 ? 1.0 / 2048
                                                  : 0;
  return std::fabs(sum) * unit + magnitude * kSumRanks / (1 << 24);
}

class RoundingTest : public testing::TestWithParam<ElementType> {};

// Results of all ranks and choices of one run, in a fixed order.
std::vector<std::vector<std::byte>> SumsOfOneRun(ElementType type,
                                                 std::vector<std::string>& names) {
  const Problem problem{.type = type, .count = kSumCount, .world_size = kSumRanks};
  JobForTest job;
  std::vector<std::vector<std::vector<std::byte>>> results(kSumRanks);
  const std::string wrong = RunThreads(kSumRanks, [&](int rank) -> std::string {
    GroupForTest group(job.host(), "g", rank, AllRanks(kSumRanks), MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    const std::vector<std::byte> input = Encode(ArbitraryFloats(rank), type);
    for (const cotune_choice_t& choice : RunnableChoices(group.backend(), ToAbi(problem))) {
      if (rank == 0) names.push_back(choice.name);
      auto& mine = results[static_cast<size_t>(rank)];
      mine.emplace_back(input.size());
      cotune_error_t error = EmptyError();
      if (RunOnce(group.group(), ToAbi(problem), choice.name, input.data(), mine.back().data(),
                  MonotonicNs() + kLongNs, &error) != COTUNE_OK) {
        return error.message;
      }
    }
    return "";
  });
  EXPECT_EQ(wrong, "");
  for (int rank = 1; rank < kSumRanks; ++rank) {
    EXPECT_TRUE(results[static_cast<size_t>(rank)] == results[0]) << "rank " << rank << " differs";
  }
  return results[0];
}

TEST_P(RoundingTest, SameBitsOnAllRanksAndInEveryRunAndCloseToTheExactSum) {
  const ElementType type = GetParam();
  std::vector<std::string> names;
  std::vector<std::string> names_again;
  const auto results = SumsOfOneRun(type, names);
  EXPECT_TRUE(results == SumsOfOneRun(type, names_again)) << "the second run differs";
  ASSERT_EQ(results.size(), names.size());
  ASSERT_GE(results.size(), 4u);
  const Problem problem{.type = type, .count = kSumCount, .world_size = kSumRanks};
  std::vector<std::vector<std::byte>> inputs;
  std::vector<std::vector<std::byte>> magnitudes;
  for (int rank = 0; rank < kSumRanks; ++rank) {
    inputs.push_back(Encode(ArbitraryFloats(rank), type));
    magnitudes.push_back(Encode(Magnitudes(ArbitraryFloats(rank)), type));
  }
  const EvaluatedValue sums = ExpectedSums(problem, 0, inputs);
  const EvaluatedValue all = ExpectedSums(problem, 0, magnitudes);
  for (size_t c = 0; c < results.size(); ++c) {
    for (uint64_t i = 0; i < kSumCount; ++i) {
      const double sum = sums.floats[i].value;
      // Nearer than the evaluator asks for: it lets 16-bit floats be rounded at every addition.
      ASSERT_NEAR(Decode(results[c].data() + i * ElementBytes(type), type), sum,
                  Tolerance(type, sum, all.floats[i].value))
          << names[c] << " element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RoundingTest,
                         testing::Values(ElementType::kF32, ElementType::kF16, ElementType::kBf16));

}  // namespace
}  // namespace cotune::host
