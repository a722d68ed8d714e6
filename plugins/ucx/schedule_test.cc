// Every choice for 1 to 64 ranks, all ranks in one thread, against the reference evaluator.
#include "plugins/ucx/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "plugins/testing/exact_data.h"
#include "plugins/ucx/algorithms.h"
#include "plugins/ucx/choice_list.h"
#include "plugins/ucx/testing/schedule_run.h"

namespace cotune::ucx {
namespace {

using Bytes = std::vector<std::byte>;
using Build = Schedule (*)(const Problem&, int, const Parameters&);

// One buffer of each rank where the problem is in place, else two; guarded behind the end.
class RankMemory {
 public:
  RankMemory(const Problem& problem, int rank, const Bytes& input, size_t output_bytes)
      : output_bytes_(output_bytes) {
    receive_.assign(std::max(input.size(), output_bytes) + kGuardBytes, kPoison);
    const size_t block = problem.count * ElementBytes(problem.type);
    const size_t own = static_cast<size_t>(rank) * block;
    if (!problem.in_place) {
      send_ = input;
      buffers_ = {send_.data(), receive_.data()};
      return;
    }
    std::byte* send = receive_.data();
    std::byte* receive = receive_.data();
    if (problem.collective == Collective::kAllGather) send += own;
    if (problem.collective == Collective::kReduceScatter) receive += own;
    if (!input.empty()) std::memcpy(send, input.data(), input.size());
    buffers_ = {send, receive};
  }

  const RankBuffers& buffers() const { return buffers_; }
  bool Holds(const Bytes& expected) const {
    const auto guard = receive_.end() - kGuardBytes;
    return expected.size() == output_bytes_ &&
           (expected.empty() ||
            std::memcmp(buffers_.receive, expected.data(), expected.size()) == 0) &&
           std::all_of(guard, receive_.end(), [](std::byte b) { return b == kPoison; });
  }

 private:
  static constexpr std::ptrdiff_t kGuardBytes = 64;
  static constexpr std::byte kPoison{0xa5};

  const size_t output_bytes_;
  Bytes send_;
  Bytes receive_;
  RankBuffers buffers_;
};

// The inputs of all ranks and what each has to receive.
struct Data {
  explicit Data(const Problem& problem) {
    for (int r = 0; r < problem.world_size; ++r)
      inputs.push_back(backend_test::ExactInput(problem, r));
    for (int r = 0; r < problem.world_size; ++r) {
      outputs.push_back(backend_test::ExpectedOutput(problem, r, inputs));
    }
  }
  std::vector<Bytes> inputs;
  std::vector<Bytes> outputs;
};

// `make` gives the schedule of a rank; the rank's memory is in place if its schedule is.
template <class MakeSchedule>
std::string RunAll(const Problem& problem, const Data& data, uint32_t seed, MakeSchedule make) {
  std::vector<Schedule> schedules;
  std::vector<RankMemory> memory;
  std::vector<RankBuffers> buffers;
  memory.reserve(data.inputs.size());
  for (int r = 0; r < problem.world_size; ++r) {
    const auto index = static_cast<size_t>(r);
    schedules.push_back(make(r));
    memory.emplace_back(schedules.back().problem, r, data.inputs[index],
                        data.outputs[index].size());
    buffers.push_back(memory.back().buffers());
  }
  std::string wrong = RunSchedules(schedules, buffers, seed);
  for (size_t r = 0; r < memory.size() && wrong.empty(); ++r) {
    if (!memory[r].Holds(data.outputs[r])) wrong = "wrong data on rank " + std::to_string(r);
  }
  return wrong;
}

std::vector<Problem> ProblemsOf(Collective collective, int world_size) {
  std::vector<Problem> problems;
  Problem problem{.collective = collective, .world_size = world_size};
  for (const bool in_place : {false, true}) {
    for (const uint64_t count : {0, 1, 150}) {
      for (const sdk::ElementType type : {sdk::ElementType::kBf16, sdk::ElementType::kI32}) {
        problem.in_place = in_place;
        problem.count = count;
        problem.type = type;
        problem.root = collective == Collective::kBroadcast ? (world_size * 2 / 3) % world_size : 0;
        problem.reduction = in_place ? Reduction::kAverage : Reduction::kSum;
        problems.push_back(problem);
      }
    }
  }
  return problems;
}

// Instrumented code is slow; more ranks of a kind that was there have nothing new for it.
bool IsTried(int world_size) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(COTUNE_UBSAN)
  return world_size <= 9 || world_size == 16 || world_size == 33;
#else
  return world_size <= kRanksMax;
#endif
}

class EveryChoiceTest : public testing::TestWithParam<Collective> {};

TEST_P(EveryChoiceTest, GivesTheEvaluatorsValuesOnAnyNumberOfRanks) {
  uint32_t seed = 0;
  for (int world_size = 1; world_size <= kRanksMax; ++world_size) {
    if (!IsTried(world_size)) continue;
    for (const Problem& problem : ProblemsOf(GetParam(), world_size)) {
      const Data data(problem);
      for (const Choice& choice : ListChoices(problem)) {
        if (!choice.reason.empty()) continue;
        const std::string wrong = RunAll(problem, data, ++seed, [&](int rank) {
          return ScheduleOf(problem, choice.name, rank).value();
        });
        ASSERT_EQ(wrong, "") << choice.name << " on " << world_size << " ranks, count "
                             << problem.count << ", seed " << seed;
      }
    }
  }
}

// Messages are the same in place and out of place, so that no digest of a call needs to have it.
TEST_P(EveryChoiceTest, MayBeInPlaceOnSomeRanksAlone) {
  uint32_t seed = 0;
  for (const int world_size : {2, 3, 4, 7, 8}) {
    for (const Problem& problem : ProblemsOf(GetParam(), world_size)) {
      if (problem.in_place) continue;
      const Data data(problem);
      for (const Choice& choice : ListChoices(problem)) {
        if (!choice.reason.empty()) continue;
        const std::string wrong = RunAll(problem, data, ++seed, [&](int rank) {
          Problem own = problem;
          own.in_place = rank % 2 == 1;
          return ScheduleOf(own, choice.name, rank).value();
        });
        ASSERT_EQ(wrong, "") << choice.name << " on " << world_size << " ranks, count "
                             << problem.count << ", seed " << seed;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryChoiceTest,
                         testing::Values(Collective::kAllReduce, Collective::kAllGather,
                                         Collective::kReduceScatter, Collective::kAllToAll,
                                         Collective::kBroadcast));

struct Segmented {
  Collective collective;
  Build build;
  int radix;
};

class SegmentsTest : public testing::TestWithParam<Segmented> {};

// Far smaller segments than those that are offered, so that many of them are on their way.
TEST_P(SegmentsTest, RunBesideEachOther) {
  uint32_t seed = 0;
  for (const int world_size : {2, 3, 5, 8, 13}) {
    for (const int posts : {1, 2, 5}) {
      Problem problem{.collective = GetParam().collective,
                      .type = sdk::ElementType::kF16,
                      .count = 2000,
                      .world_size = world_size,
                      .root = world_size - 1};
      if (problem.collective != Collective::kBroadcast) problem.root = 0;
      const Data data(problem);
      const Parameters parameters = {
          .radix = GetParam().radix, .segment_bytes = 128, .posts = posts};
      EXPECT_GT(GetParam().build(problem, 0, parameters).Segments(), 1u);
      const std::string wrong = RunAll(problem, data, ++seed, [&](int rank) {
        return GetParam().build(problem, rank, parameters);
      });
      ASSERT_EQ(wrong, "") << world_size << " ranks, " << posts << " posts";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SegmentsTest,
    testing::Values(Segmented{Collective::kAllReduce, ScheduleAllReduceScatterGather, 2},
                    Segmented{Collective::kAllReduce, ScheduleAllReduceScatterGather, 4},
                    Segmented{Collective::kAllReduce, ScheduleAllReduceRing, 0},
                    Segmented{Collective::kAllReduce, ScheduleAllReduceDoubleTree, 0},
                    Segmented{Collective::kAllGather, ScheduleAllGatherRing, 0},
                    Segmented{Collective::kReduceScatter, ScheduleReduceScatterRing, 0},
                    Segmented{Collective::kBroadcast, ScheduleBroadcastKnomial, 4},
                    Segmented{Collective::kBroadcast, ScheduleBroadcastScatterGather, 0},
                    Segmented{Collective::kBroadcast, ScheduleBroadcastChain, 0}));

// The executor itself: it must see what it is there for.
TEST(ScheduleRunTest, LengthsThatDifferAndMissingMessagesShow) {
  const Problem problem{.type = sdk::ElementType::kU8, .count = 100, .world_size = 2};
  Problem shorter = problem;
  shorter.count = 99;
  const Data data(problem);
  EXPECT_EQ(RunAll(problem, data, 1,
                   [&](int rank) {
                     return ScheduleAllReduceRing(rank == 0 ? problem : shorter, rank, {});
                   }),
            "messages of different lengths");
  EXPECT_EQ(RunAll(problem, data, 1,
                   [&](int rank) {
                     return rank == 0 ? ScheduleAllReduceRing(problem, rank, {})
                                      : ScheduleAlone(problem, rank, {});
                   }),
            "ranks wait for ever");
  EXPECT_EQ(RunAll(problem, data, 1, [&](int rank) { return ScheduleAlone(problem, rank, {}); }),
            "wrong data on rank 0");
}

TEST(KnomialShapeTest, TakesAsManyRanksAsFitTheRadix) {
  EXPECT_EQ(KnomialShapeOf(2, 8).factors, (std::vector<int>{2}));
  EXPECT_EQ(KnomialShapeOf(7, 2).factors, (std::vector<int>{2, 2}));
  EXPECT_EQ(KnomialShapeOf(7, 2).Extras(7), 3);
  EXPECT_EQ(KnomialShapeOf(13, 4).factors, (std::vector<int>{4, 3}));
  EXPECT_EQ(KnomialShapeOf(13, 4).full, 12);
}

}  // namespace
}  // namespace cotune::ucx
