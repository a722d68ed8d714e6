#include "plugins/host/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "plugins/host/algorithms.h"
#include "plugins/host/testing/schedule_simulation.h"

namespace cotune::host {
namespace {

// Instrumented code is slow, and this test is about orders of execution, which it does not change.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSeedDivisor = 10;
#else
constexpr int kSeedDivisor = 1;
#endif

struct NamedAlgorithm {
  const char* name;
  Collective collective;
  Schedule (*build)(const Problem&, int, const SlotSize&);
  bool in_lines = false;
};

constexpr NamedAlgorithm kAlgorithms[] = {
    {"all_reduce one_shot", Collective::kAllReduce, ScheduleAllReduceOneShot},
    {"all_reduce two_shot", Collective::kAllReduce, ScheduleAllReduceTwoShot},
    {"all_reduce ring", Collective::kAllReduce, ScheduleAllReduceRing},
    {"all_reduce tree", Collective::kAllReduce, ScheduleAllReduceTree},
    {"all_gather direct", Collective::kAllGather, ScheduleAllGatherDirect},
    {"all_gather ring", Collective::kAllGather, ScheduleAllGatherRing},
    {"reduce_scatter direct", Collective::kReduceScatter, ScheduleReduceScatterDirect},
    {"reduce_scatter ring", Collective::kReduceScatter, ScheduleReduceScatterRing},
    {"all_to_all direct", Collective::kAllToAll, ScheduleAllToAllDirect},
    {"all_to_all pairwise", Collective::kAllToAll, ScheduleAllToAllPairwise},
    {"all_gather peer_read", Collective::kAllGather, ScheduleAllGatherPeerRead},
    {"all_to_all peer_read", Collective::kAllToAll, ScheduleAllToAllPeerRead},
    {"broadcast peer_read", Collective::kBroadcast, ScheduleBroadcastPeerRead},
    {"broadcast flat", Collective::kBroadcast, ScheduleBroadcastFlat},
    {"broadcast tree", Collective::kBroadcast, ScheduleBroadcastTree},
    {"broadcast chain", Collective::kBroadcast, ScheduleBroadcastChain},
    {"all_reduce lines", Collective::kAllReduce, ScheduleAllReduceLines, true},
    {"all_gather lines", Collective::kAllGather, ScheduleAllGatherLines, true},
    {"reduce_scatter lines", Collective::kReduceScatter, ScheduleReduceScatterLines, true},
    {"all_to_all lines", Collective::kAllToAll, ScheduleAllToAllLines, true},
    {"broadcast lines", Collective::kBroadcast, ScheduleBroadcastLines, true},
};

// The largest count that the algorithm takes, or `count`.
uint64_t CountFor(const NamedAlgorithm& algorithm, ElementType type, int world_size,
                  uint64_t count) {
  if (!algorithm.in_lines) return count;
  const bool has_blocks = algorithm.collective == Collective::kReduceScatter ||
                          algorithm.collective == Collective::kAllToAll;
  const uint64_t lines = kLinesPerHalf / (has_blocks ? static_cast<uint64_t>(world_size) : 1);
  return std::min(count, lines * kLinePayloadBytes / ElementBytes(type));
}

SimulatedCollective Build(const NamedAlgorithm& algorithm, Problem problem, const SlotSize& size,
                          bool in_place) {
  problem.collective = algorithm.collective;
  problem.count = CountFor(algorithm, problem.type, problem.world_size, problem.count);
  // Refused by the list of choices: others would read what is being overwritten.
  if (algorithm.build == ScheduleAllToAllPeerRead) in_place = false;
  if (algorithm.collective != Collective::kBroadcast) problem.root = 0;
  SimulatedCollective collective{.name = std::string(algorithm.name) + " count " +
                                         std::to_string(problem.count) +
                                         (in_place ? " in place" : ""),
                                 .in_place = in_place};
  for (int rank = 0; rank < problem.world_size; ++rank) {
    collective.schedules.push_back(algorithm.build(problem, rank, size));
  }
  return collective;
}

// A slot so small that even short problems take several chunks.
SlotSize SmallSlot(int world_size) {
  const auto slot_bytes = static_cast<uint64_t>(world_size) * 2 * 4 * kCacheLineBytes;
  return {slot_bytes, slot_bytes};
}

class ScheduleTest : public testing::TestWithParam<int> {};

TEST_P(ScheduleTest, EachAlgorithmAloneUnderManyInterleavings) {
  const int world_size = GetParam();
  const SlotSize size = SmallSlot(world_size);
  const int seeds = world_size <= 8 && kSeedDivisor == 1 ? 4 : 1;
  for (const NamedAlgorithm& algorithm : kAlgorithms) {
    for (const ElementType type : {ElementType::kF32, ElementType::kBf16, ElementType::kF64}) {
      for (const uint64_t count : {0u, 1u, 2u, 3u, 17u, 1000u}) {
        for (const bool in_place : {false, true}) {
          const Problem problem{.reduction = Reduction::kSum,
                                .type = type,
                                .count = count,
                                .world_size = world_size,
                                .root = world_size / 2};
          const SimulatedCollective collective = Build(algorithm, problem, size, in_place);
          for (int seed = 0; seed < seeds; ++seed) {
            ScheduleSimulation simulation(world_size, size.slot_bytes, static_cast<uint64_t>(seed));
            ASSERT_EQ(simulation.Run({collective}), "") << collective.name << " seed " << seed;
          }
        }
      }
    }
  }
}

// Ranks run ahead of each other from one collective into the next, on the same slots.
TEST_P(ScheduleTest, MixedCollectivesInARow) {
  const int world_size = GetParam();
  const SlotSize size = SmallSlot(world_size);
  const int seeds = world_size <= 8 ? 60 / kSeedDivisor : 4;
  for (int seed = 0; seed < seeds; ++seed) {
    std::mt19937_64 random(static_cast<uint64_t>(seed) + 1000);
    std::vector<SimulatedCollective> collectives;
    for (int i = 0; i < 12; ++i) {
      const NamedAlgorithm& algorithm = kAlgorithms[random() % std::size(kAlgorithms)];
      const Problem problem{.reduction = random() % 2 == 0 ? Reduction::kAverage : Reduction::kMax,
                            .type = kElementTypes[random() % std::size(kElementTypes)],
                            .count = random() % 3 == 0 ? random() % 5 : random() % 900,
                            .world_size = world_size,
                            .root = static_cast<int>(random() % static_cast<uint64_t>(world_size))};
      collectives.push_back(Build(algorithm, problem, size, random() % 2 == 0));
    }
    ScheduleSimulation simulation(world_size, size.slot_bytes, static_cast<uint64_t>(seed));
    ASSERT_EQ(simulation.Run(collectives), "") << "seed " << seed;
  }
}

// With operations around the collective: chunks and parts of whole rows, and an input that is
// computed where it is read. Rows begin at no cache line.
TEST_P(ScheduleTest, EachAlgorithmOfWholeRowsUnderManyInterleavings) {
  const int world_size = GetParam();
  for (const NamedAlgorithm& algorithm : kAlgorithms) {
    for (const ElementType type : {ElementType::kF32, ElementType::kBf16, ElementType::kF64}) {
      for (const uint64_t columns : {1u, 7u, 30u}) {
        for (const bool is_computed : {false, true}) {
          const bool reads_peers =
              std::string(algorithm.name).find("peer_read") != std::string::npos;
          if (reads_peers && is_computed) continue;
          SlotSize size = SmallSlot(world_size);
          size.unit_elements = columns;
          size.input_is_computed = is_computed;
          const uint64_t lines = kLinesPerHalf / static_cast<uint64_t>(world_size) *
                                 kLinePayloadBytes / ElementBytes(type);
          const uint64_t rows = algorithm.in_lines ? lines / columns : 1000 / columns;
          const Problem problem{.reduction = Reduction::kSum,
                                .type = type,
                                .count = rows * columns,
                                .world_size = world_size,
                                .root = world_size / 2};
          const SimulatedCollective collective = Build(algorithm, problem, size, false);
          for (const Schedule& schedule : collective.schedules) {
            ASSERT_TRUE(schedule.FitsSlot(size.slot_bytes)) << collective.name;
            ASSERT_EQ(schedule.chunk_elements % columns, 0u) << collective.name;
            for (int part = 0; part <= schedule.parts; ++part) {
              const uint64_t begin = schedule.PartBegin(schedule.ChunkLength(0), part);
              ASSERT_EQ(begin % columns, 0u) << collective.name << " part " << part;
            }
          }
          ScheduleSimulation simulation(world_size, size.slot_bytes, columns);
          ASSERT_EQ(simulation.Run({collective, collective}), "")
              << collective.name << " rows of " << columns;
        }
      }
    }
  }
}

// An input that is computed is read once, and every element of it.
TEST_P(ScheduleTest, AComputedInputIsReadOnce) {
  const int world_size = GetParam();
  for (const NamedAlgorithm& algorithm : kAlgorithms) {
    SlotSize size = SmallSlot(world_size);
    size.input_is_computed = true;
    const Problem problem{.type = ElementType::kF32, .count = 12, .world_size = world_size};
    const SimulatedCollective collective = Build(algorithm, problem, size, false);
    for (const Schedule& schedule : collective.schedules) {
      std::vector<int> reads(static_cast<size_t>(world_size) * problem.count);
      for (const Op& op : schedule.ops) {
        for (uint32_t source = 0; source < op.source_count; ++source) {
          const Place& place = schedule.sources[op.source_begin + source];
          if (place.space != Space::kInput) continue;
          const uint64_t length = schedule.ChunkLength(0);
          for (uint64_t i = schedule.PartBegin(length, op.part_begin);
               i < schedule.PartBegin(length, op.part_end); ++i) {
            ++reads[place.block * problem.count + i];
          }
        }
      }
      EXPECT_LE(*std::max_element(reads.begin(), reads.end()), 1) << algorithm.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, ScheduleTest, testing::Values(2, 3, 4, 5, 8, 16));

TEST(ScheduleSimulationTest, SixtyFourRanks) {
  constexpr int kRanks = 64;
  const SlotSize size = SmallSlot(kRanks);
  for (const char* name : {"all_reduce two_shot", "all_reduce ring", "all_reduce tree",
                           "reduce_scatter direct", "all_to_all pairwise", "broadcast tree"}) {
    const auto algorithm =
        std::find_if(std::begin(kAlgorithms), std::end(kAlgorithms),
                     [&](const NamedAlgorithm& a) { return name == std::string(a.name); });
    ASSERT_NE(algorithm, std::end(kAlgorithms));
    const Problem problem{.reduction = Reduction::kSum,
                          .type = ElementType::kI32,
                          .count = 90,
                          .world_size = kRanks,
                          .root = 63};
    ScheduleSimulation simulation(kRanks, size.slot_bytes, 7);
    EXPECT_EQ(simulation.Run({Build(*algorithm, problem, size, false)}), "") << name;
  }
}

// The simulation must see what it is there to see: each of these takes one operation out of a sound
// schedule.
class BrokenScheduleTest : public testing::TestWithParam<OpKind> {};

TEST_P(BrokenScheduleTest, IsNoticed) {
  // More ranks count arrivals where fewer read each other's signals.
  const int ranks = GetParam() == OpKind::kWaitArrived ? kMaxRanksMeetingBySignals + 1 : 4;
  const SlotSize size = SmallSlot(ranks);
  int noticed = 0;
  for (const NamedAlgorithm& algorithm : kAlgorithms) {
    const Problem problem{.type = ElementType::kI32, .count = 1000, .world_size = ranks};
    SimulatedCollective collective = Build(algorithm, problem, size, false);
    bool changed = false;
    for (Schedule& schedule : collective.schedules) {
      const size_t before = schedule.ops.size();
      std::erase_if(schedule.ops, [](const Op& op) { return op.kind == GetParam(); });
      changed = changed || schedule.ops.size() != before;
    }
    if (!changed) continue;
    for (uint64_t seed = 0; seed < 8; ++seed) {
      ScheduleSimulation simulation(ranks, size.slot_bytes, seed);
      if (!simulation.Run({collective, collective}).empty()) {
        ++noticed;
        break;
      }
    }
  }
  EXPECT_GE(noticed, 3);
}

INSTANTIATE_TEST_SUITE_P(Kinds, BrokenScheduleTest,
                         testing::Values(OpKind::kSignal, OpKind::kWaitSignal, OpKind::kPutLines,
                                         OpKind::kTakeLines, OpKind::kWaitAllSignals,
                                         OpKind::kWaitArrived, OpKind::kWaitSlotFree,
                                         OpKind::kReduce));

TEST(ScheduleShapeTest, PartsCoverAChunkOnCacheLines) {
  const Problem problem{.type = ElementType::kF32, .count = 100, .world_size = 3};
  const Schedule schedule = ScheduleAllReduceTwoShot(problem, 0, {1 << 16, 1 << 15});
  EXPECT_EQ(schedule.PartBegin(100, 0), 0u);
  EXPECT_EQ(schedule.PartBegin(100, 1), 48u);  // 112 / 3 = 38, rounded up to 16s
  EXPECT_EQ(schedule.PartBegin(100, 2), 96u);
  EXPECT_EQ(schedule.PartBegin(100, 3), 100u);
  EXPECT_EQ(schedule.PartBegin(10, 1), 10u);
  EXPECT_EQ(schedule.PartBegin(10, 2), 10u);
}

TEST(ScheduleShapeTest, ChunksFitHalfASlot) {
  const Problem problem{.type = ElementType::kBf16, .count = 1 << 20, .world_size = 4};
  constexpr uint64_t kSlot = 64 << 10;
  // A half of 32 KiB holds 8192 partial sums of 4 bytes, or 16384 elements of 2.
  EXPECT_EQ(ChunkElements(problem, {.partial = true, .size = {kSlot, kSlot}}), 8192u);
  EXPECT_EQ(ChunkElements(problem, {.size = {kSlot, kSlot}}), 16384u);
  EXPECT_EQ(ChunkElements(problem, {.regions = 4, .size = {kSlot, kSlot / 8}}), 1024u);
  EXPECT_EQ(ChunkElements(problem, {.regions = 64, .size = {kSlot, 64}}), 32u);
}

TEST(ScheduleShapeTest, ChunksAndPartsHoldWholeRows) {
  // Half a slot of 32 KiB holds 8192 elements, and so 8 rows of 1000.
  const Problem problem{.type = ElementType::kF32, .count = 100'000, .world_size = 3};
  const SlotSize size{.slot_bytes = 64 << 10, .chunk_bytes = 64 << 10, .unit_elements = 1000};
  const Schedule schedule = ScheduleAllReduceTwoShot(problem, 0, size);
  EXPECT_EQ(schedule.chunk_elements, 8000u);
  EXPECT_EQ(schedule.PartBegin(8000, 1), 3000u);
  EXPECT_EQ(schedule.PartBegin(8000, 2), 6000u);
  EXPECT_TRUE(schedule.FitsSlot(64 << 10));
  // A row is never cut, also if it is larger than that.
  const SlotSize wide{.slot_bytes = 64 << 10, .chunk_bytes = 64 << 10, .unit_elements = 8200};
  EXPECT_EQ(ScheduleAllReduceTwoShot(problem, 0, wide).chunk_elements, 8200u);
  EXPECT_FALSE(ScheduleAllReduceTwoShot(problem, 0, wide).FitsSlot(64 << 10));
}

TEST(ScheduleShapeTest, ChunksAreEqual) {
  // 17000 elements do not fit 16384: two chunks of 8500, in whole lines of 32.
  const Problem problem{.type = ElementType::kBf16, .count = 17000, .world_size = 4};
  EXPECT_EQ(ChunkElements(problem, {.size = {64 << 10, 64 << 10}}), 8512u);
}

}  // namespace
}  // namespace cotune::host
