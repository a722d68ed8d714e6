#include "plugins/host/choice_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace cotune::host {
namespace {

constexpr Collective kCollectives[] = {Collective::kAllReduce, Collective::kAllGather,
                                       Collective::kReduceScatter, Collective::kAllToAll,
                                       Collective::kBroadcast};

std::vector<std::string> Runnable(const Problem& problem) {
  std::vector<std::string> names;
  for (const Choice& choice : ListChoices(problem, kDefaultSlotBytes)) {
    if (choice.reason.empty()) names.push_back(choice.name);
  }
  return names;
}

Problem AllReduceOf(uint64_t bytes, int world_size) {
  return {.type = ElementType::kF32, .count = bytes / 4, .world_size = world_size};
}

TEST(ListChoicesTest, NamesAreStable) {
  // Tuned databases store these names.
  EXPECT_EQ(
      Runnable(AllReduceOf(1 << 10, 4)),
      (std::vector<std::string>{"one_shot?chunk=65536", "one_shot?transport=ll",
                                "two_shot?chunk=65536", "ring?chunk=65536", "tree?chunk=65536"}));
  EXPECT_EQ(Runnable(AllReduceOf(64 << 20, 4)),
            (std::vector<std::string>{"two_shot?chunk=65536", "two_shot?chunk=262144",
                                      "two_shot?chunk=1048576", "ring?chunk=65536",
                                      "ring?chunk=262144", "ring?chunk=1048576", "tree?chunk=65536",
                                      "tree?chunk=262144", "tree?chunk=1048576"}));
}

// Two chunk sizes hold one row of 256 KiB each; the third one holds four.
TEST(ListChoicesTest, AChunkSizeThatHoldsMoreRowsIsListed) {
  constexpr uint64_t kRowElements = 64 << 10;
  const RegionNeeds needs = {.has_after = true, .unit_elements = kRowElements};
  std::vector<std::string> names;
  for (const Choice& choice : ListChoices(AllReduceOf(16 << 20, 2), kDefaultSlotBytes, needs)) {
    if (choice.reason.empty() && choice.name.starts_with("two_shot")) names.push_back(choice.name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"two_shot?chunk=65536", "two_shot?chunk=1048576"}));
}

// Ranks that run a collective of a bucket by itself could not take part in it.
TEST(ListChoicesTest, ABucketFitsNoOtherRegion) {
  for (const int world_size : {1, 2}) {
    RegionNeeds needs = {.has_before = true, .has_after = true};
    const Problem problem = AllReduceOf(1 << 10, world_size);
    const auto fits_any = [&] {
      const std::vector<Choice> choices = ListChoices(problem, kDefaultSlotBytes, needs);
      return std::any_of(choices.begin(), choices.end(), [&](const Choice& each) {
        return each.fits_any_region || FitsAnyRegion(problem, each.name, kDefaultSlotBytes, needs);
      });
    };
    EXPECT_TRUE(fits_any());
    needs.is_bucket = true;
    EXPECT_FALSE(fits_any());
  }
}

TEST(ListChoicesTest, AlwaysOneDefaultUniqueNamesAndReasons) {
  for (const Collective collective : kCollectives) {
    for (const int world_size : {1, 2, 3, 4, 8, 64}) {
      for (const uint64_t count : {0ull, 1ull, 1000ull, 100'000ull, 20'000'000ull, 1ull << 40}) {
        for (const ElementType type : kElementTypes) {
          const Problem problem{
              .collective = collective, .type = type, .count = count, .world_size = world_size};
          const std::vector<Choice> choices = ListChoices(problem, kDefaultSlotBytes);
          std::set<std::string> names;
          int defaults = 0;
          for (const Choice& choice : choices) {
            EXPECT_TRUE(names.insert(choice.name).second) << choice.name;
            EXPECT_LT(choice.name.size(), sizeof(cotune_choice_t::name));
            EXPECT_LT(choice.reason.size(), sizeof(cotune_choice_t::reason));
            EXPECT_LT(choice.numerics.size(), sizeof(cotune_choice_t::numerics));
            EXPECT_EQ(choice.reason.empty(), !choice.numerics.empty()) << choice.name;
            defaults += choice.is_default ? 1 : 0;
            EXPECT_TRUE(!choice.is_default || choice.reason.empty()) << choice.name;
            EXPECT_EQ(choice.reason.empty(), choice.cost_us >= 0) << choice.name;
          }
          ASSERT_EQ(defaults, 1);
          ASSERT_LE(choices.size(), 16u);
        }
      }
    }
  }
}

// The class of the first choice whose name begins so.
std::string ClassOf(const Problem& problem, std::string_view name) {
  for (const Choice& choice : ListChoices(problem, kDefaultSlotBytes)) {
    if (choice.name.starts_with(name)) return choice.numerics;
  }
  return "not listed";
}

TEST(ListChoicesTest, TheNumericsClassSaysWhatTheBitsDependOn) {
  Problem problem = AllReduceOf(1 << 20, 4);
  EXPECT_EQ(ClassOf(problem, "one_shot?chunk=65536"), "rank_order_f32");
  EXPECT_EQ(ClassOf(problem, "two_shot?chunk=262144"), "rank_order_f32");
  EXPECT_EQ(ClassOf(problem, "tree?chunk=65536"), "tree");
  const auto schedule = ScheduleOf(problem, "ring?chunk=65536", 0, kDefaultSlotBytes);
  ASSERT_TRUE(schedule.has_value());
  EXPECT_EQ(ClassOf(problem, "ring?chunk=65536"),
            "ring." + std::to_string(schedule->chunk_elements));
  EXPECT_NE(ClassOf(problem, "ring?chunk=65536"), ClassOf(problem, "ring?chunk=262144"));
  problem.world_size = 3;
  EXPECT_EQ(ClassOf(problem, "tree?chunk=65536"), "rank_order_f32");
  problem.collective = Collective::kReduceScatter;
  EXPECT_EQ(ClassOf(problem, "direct?chunk=65536"), "rank_order_f32");
  EXPECT_EQ(ClassOf(problem, "ring?chunk=65536"), "ring");
  EXPECT_EQ(ClassOf(problem, "ring?chunk=262144"), "ring");
  problem.type = ElementType::kI32;
  EXPECT_EQ(ClassOf(problem, "ring?chunk=65536"), "exact");
  problem = {.collective = Collective::kAllGather, .count = 1000, .world_size = 4};
  EXPECT_EQ(ClassOf(problem, "ring"), "exact");
  problem = {.collective = Collective::kAllReduce, .count = 1000, .world_size = 1};
  EXPECT_EQ(ClassOf(problem, "copy"), "exact");
}

TEST(ListChoicesTest, NoTwoChoicesAreTheSame) {
  for (const Collective collective : kCollectives) {
    for (const uint64_t count : {100ull, 20'000ull, 70'000ull, 300'000ull, 5'000'000ull}) {
      const Problem problem{
          .collective = collective, .type = ElementType::kBf16, .count = count, .world_size = 4};
      std::set<std::pair<std::string, uint64_t>> seen;
      for (const std::string& name : Runnable(problem)) {
        const auto schedule = ScheduleOf(problem, name, 0, kDefaultSlotBytes);
        ASSERT_TRUE(schedule.has_value());
        // Data in lines is another way of the same algorithm.
        if (name.ends_with("transport=ll")) continue;
        EXPECT_TRUE(seen.insert({name.substr(0, name.find('?')), schedule->chunk_elements}).second)
            << name;
      }
    }
  }
}

TEST(ListChoicesTest, ReadingPeersIsNotForSmallOrOverwrittenBuffers) {
  Problem problem{
      .collective = Collective::kAllToAll, .type = ElementType::kU8, .count = 100, .world_size = 4};
  const auto has_peer_read = [&] {
    const std::vector<std::string> names = Runnable(problem);
    return std::find(names.begin(), names.end(), "peer_read?chunk=4194304") != names.end();
  };
  EXPECT_FALSE(has_peer_read());
  problem.count = 100'000;
  EXPECT_TRUE(has_peer_read());
  problem.in_place = true;
  EXPECT_FALSE(has_peer_read());
}

TEST(ListChoicesTest, LinesAreForWhatFitsThemAndTheDefaultWhereItIsSmall) {
  Problem problem{
      .collective = Collective::kAllToAll, .type = ElementType::kU8, .count = 1, .world_size = 4};
  const auto lines = [&] {
    for (const Choice& choice : ListChoices(problem, kDefaultSlotBytes)) {
      if (choice.name == "direct?transport=ll") return choice;
    }
    return Choice{};
  };
  EXPECT_TRUE(lines().is_default);
  problem.count = 128;
  EXPECT_TRUE(lines().is_default);
  problem.count = 129;  // 516 bytes
  EXPECT_EQ(lines().reason, "");
  EXPECT_FALSE(lines().is_default);
  problem.count = kLinesPerHalf / 4 * kLinePayloadBytes;
  EXPECT_EQ(lines().reason, "");
  ++problem.count;
  EXPECT_NE(lines().reason, "");
  EXPECT_FALSE(ScheduleOf(problem, "direct?transport=ll", 0, kDefaultSlotBytes).has_value());
}

TEST(ListChoicesTest, RefusalsSayWhy) {
  const std::vector<Choice> alone = ListChoices(AllReduceOf(4096, 1), kDefaultSlotBytes);
  ASSERT_EQ(alone.size(), 6u);
  EXPECT_EQ(alone[0].name, "copy");
  EXPECT_TRUE(alone[0].is_default);
  EXPECT_EQ(alone[3].name, "two_shot");
  EXPECT_EQ(alone[3].reason, "needs 2 ranks or more; with 1 rank only 'copy' runs");
  const std::vector<Choice> large = ListChoices(AllReduceOf(8 << 20, 4), kDefaultSlotBytes);
  EXPECT_EQ(large[0].name, "one_shot");
  EXPECT_NE(large[0].reason, "");
}

TEST(ScheduleOfTest, UnknownAndRefusedNamesAreErrors) {
  const Problem problem = AllReduceOf(1024, 4);
  for (const char* name : {"", "two_shot", "two_shot?transport=ll", "one_shot?transport=l",
                           "one_shot?x=1?transport=ll", "two_shot?chunk=1", "direct?chunk=65536",
                           "two_shot?chunk=65536&x=1"}) {
    const auto schedule = ScheduleOf(problem, name, 0, kDefaultSlotBytes);
    ASSERT_FALSE(schedule.has_value()) << name;
    EXPECT_EQ(schedule.error().status, COTUNE_INVALID_ARGUMENT);
  }
  // Listed at larger sizes only: it runs all the same.
  EXPECT_TRUE(ScheduleOf(problem, "two_shot?chunk=262144", 0, kDefaultSlotBytes).has_value());
  const auto refused = ScheduleOf(AllReduceOf(8 << 20, 4), "one_shot", 0, kDefaultSlotBytes);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().status, COTUNE_UNSUPPORTED);
}

TEST(ScheduleOfTest, RanksAgreeOnTheShape) {
  for (const Collective collective : kCollectives) {
    const Problem problem{
        .collective = collective, .type = ElementType::kF16, .count = 123'457, .world_size = 7};
    for (const std::string& name : Runnable(problem)) {
      const auto first = ScheduleOf(problem, name, 0, kDefaultSlotBytes);
      ASSERT_TRUE(first.has_value());
      const auto arrivals = [](const Schedule& schedule) {
        return std::count_if(schedule.ops.begin(), schedule.ops.end(),
                             [](const Op& op) { return op.kind == OpKind::kArrive; });
      };
      for (int rank = 1; rank < problem.world_size; ++rank) {
        const auto other = ScheduleOf(problem, name, rank, kDefaultSlotBytes);
        ASSERT_TRUE(other.has_value());
        EXPECT_EQ(other->Iterations(), first->Iterations()) << name;
        EXPECT_EQ(other->chunk_elements, first->chunk_elements) << name;
        EXPECT_EQ(arrivals(*other), arrivals(*first)) << name;
        EXPECT_LE(other->region_bytes * static_cast<uint64_t>(other->regions),
                  kDefaultSlotBytes / 2);
      }
    }
  }
}

}  // namespace
}  // namespace cotune::host
