#include "core/choice/neighbour_pruning.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "core/testing/parsed.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kKiB = 1024;

std::vector<uint64_t> Doubling(uint64_t first, uint64_t last) {
  std::vector<uint64_t> sizes;
  for (uint64_t bytes = first; bytes <= last; bytes *= 2) sizes.push_back(bytes);
  return sizes;
}

TEST(OrderOfSizesTest, AllChoicesRaceAtAQuarterOfTheLargestSizeAndBelow) {
  const MeasuringOrder order = OrderOfSizes(Doubling(kKiB, 512 * kKiB * kKiB));
  EXPECT_THAT(order.first, ElementsAre(kKiB, 2 * kKiB, 32 * kKiB, 512 * kKiB, 8 * kKiB * kKiB,
                                       128 * kKiB * kKiB));
  ASSERT_EQ(order.rest.size(), 14u);
  EXPECT_EQ(order.rest[0], 512 * kKiB * kKiB) << "it decides for all larger sizes";
  EXPECT_EQ(order.rest[1], 4 * kKiB);
  EXPECT_TRUE(std::is_sorted(order.rest.begin() + 1, order.rest.end()));
}

TEST(OrderOfSizesTest, SizesThatLieCloseTogetherOrFarApartAreAllFirst) {
  const auto order_of = [](std::vector<uint64_t> sizes) { return OrderOfSizes(sizes); };
  EXPECT_THAT(order_of({4096}).first, ElementsAre(4096));
  EXPECT_THAT(order_of({4096}).rest, IsEmpty());
  EXPECT_THAT(order_of({0}).first, ElementsAre(0));
  EXPECT_THAT(order_of({1024, 2048, 4095}).first, ElementsAre(1024, 2048, 4095));
  EXPECT_THAT(order_of({1024, 2048, 4095}).rest, IsEmpty());
  EXPECT_THAT(order_of({1024, 4096}).first, ElementsAre(1024));
  EXPECT_THAT(order_of({1024, 4096}).rest, ElementsAre(4096));
  EXPECT_THAT(order_of({0, 64, 4096, 1 << 20}).first, ElementsAre(0, 64, 4096));
  EXPECT_THAT(order_of({0, 64, 4096, 1 << 20}).rest, ElementsAre(1 << 20));
}

TEST(OrderOfSizesTest, EverySizeIsMeasuredOnceAndNoGapBetweenFirstOnesIsWiderThanItMustBe) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::set<uint64_t> drawn;
    for (int i = random() % 24; i >= 0; --i) {
      drawn.insert((uint64_t{random()} >> (random() % 32)) * (random() % 3));
    }
    const std::vector<uint64_t> sizes(drawn.begin(), drawn.end());
    const MeasuringOrder order = OrderOfSizes(sizes);
    std::vector<uint64_t> all = order.first;
    all.insert(all.end(), order.rest.begin(), order.rest.end());
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all, sizes);
    ASSERT_EQ(order.first.front(), sizes.front());
    for (size_t i = 1; i < order.first.size(); ++i) {
      ASSERT_LT(order.first[i - 1], order.first[i]);
      const auto next = std::lower_bound(sizes.begin(), sizes.end(), order.first[i]);
      const bool is_near = std::max<uint64_t>(1, order.first[i - 1]) * 16 >= order.first[i];
      ASSERT_TRUE(is_near || *(next - 1) == order.first[i - 1]);
    }
  }
}

// One choice of a cell; a size gives it a time in ns.
struct Entry {
  std::string id;
  int64_t median_ns = 0;  // 0: it failed
};

Verdict VerdictOf(const Entry& entry) {
  Verdict verdict{.id = Id(entry.id)};
  verdict.is_default = entry.id == "a/default";
  if (entry.median_ns == 0) {
    verdict.outcome = Outcome::kLaunchFailed;
    return verdict;
  }
  verdict.samples_ns.assign(8, entry.median_ns);
  verdict.repetitions = 1;
  verdict.median_ns = verdict.interval_low_ns = verdict.interval_high_ns = entry.median_ns;
  return verdict;
}

DecidedCell Cell(const std::vector<Entry>& entries, std::vector<Refusal> refusals = {}) {
  CellResult cell;
  cell.problem.cls.world_size = cell.problem.cls.ranks_per_node = 2;
  for (const Entry& entry : entries) cell.verdicts.push_back(VerdictOf(entry));
  cell.refusals = std::move(refusals);
  return Decide(std::move(cell), {});
}

// Four choices that are fast enough to be next best, and a default.
std::vector<Entry> Usual(int64_t ns) {
  return {{"a/default", 9 * ns}, {"a/best", ns},       {"a/second", ns * 11 / 10},
          {"a/third", 3 * ns},   {"a/fourth", 3 * ns}, {"a/fifth", 3 * ns + 1}};
}

DecidedCell CellWith(int64_t ns, std::vector<Entry> others, std::vector<Refusal> refusals = {}) {
  std::vector<Entry> entries = Usual(ns);
  std::move(others.begin(), others.end(), std::back_inserter(entries));
  return Cell(entries, std::move(refusals));
}

// A list of these choices and of the winner of usual cells.
ChoiceList ListOf(std::vector<std::string> ids) {
  if (std::find(ids.begin(), ids.end(), "a/best") == ids.end()) ids.emplace_back("a/best");
  ChoiceList list;
  for (const std::string& id : ids) {
    Choice choice{.id = Id(id)};
    choice.is_default = id == "a/default";
    list.choices.push_back(std::move(choice));
  }
  return list;
}

std::vector<std::string> IdsOf(const std::vector<SlowChoice>& slow) {
  std::vector<std::string> ids;
  for (const SlowChoice& each : slow) ids.push_back(each.refusal.choice);
  return ids;
}

std::vector<std::string> RefusedOf(const ChoiceList& list, uint64_t bytes,
                                   const std::map<uint64_t, DecidedCell>& cells,
                                   const std::set<uint64_t>& unusable = {}) {
  return IdsOf(RefuseSlowChoices(list, bytes, cells, unusable));
}

TEST(RefuseSlowChoicesTest, AChoiceThatIsSlowOnBothSidesIsRefusedWithTheFigures) {
  const ChoiceList list =
      ListOf({"a/default", "a/best", "a/second", "a/third", "a/fourth", "a/slow"});
  std::map<uint64_t, DecidedCell> cells;
  cells.emplace(1024, CellWith(100, {{"a/slow", 310}}));
  cells.emplace(4096, CellWith(200, {{"a/slow", 544 * 2}}));
  const std::vector<SlowChoice> slow = RefuseSlowChoices(list, 2048, cells, {});
  ASSERT_EQ(slow.size(), 1u);
  EXPECT_EQ(slow[0].refusal.choice, "a/slow");
  EXPECT_EQ(slow[0].refusal.reason,
            "not raced: 3.1 and 5.4 times the winner's time at 1024 and 4096 bytes");
  EXPECT_THAT(slow[0].faster, ElementsAre(Id("a/best"), Id("a/best")));
}

// The time of the choice by the winner's at each size, in tenths.
struct Case {
  const char* name;
  uint64_t bytes;
  std::map<uint64_t, int64_t> tenths;
  bool is_refused;
};

TEST(RefuseSlowChoicesTest, TheNeighboursDecide) {
  const Case cases[] = {
      {"slow on both sides", 2048, {{1024, 50}, {4096, 50}}, true},
      {"at the limit", 2048, {{1024, 40}, {4096, 40}}, true},
      {"slow below and fast above: it crosses over", 2048, {{1024, 50}, {4096, 19}}, false},
      {"fast below", 2048, {{1024, 19}, {4096, 50}}, false},
      {"16 times apart on each side", 16384, {{1024, 50}, {262144, 50}}, true},
      {"farther below", 16385, {{1024, 50}, {262144, 50}}, false},
      {"farther above", 16384, {{1024, 50}, {262145, 50}}, false},
      {"the nearest ones count", 2048, {{512, 50}, {1024, 19}, {4096, 50}}, false},
      {"and no others", 2048, {{512, 10}, {1024, 50}, {4096, 50}, {8192, 10}}, true},
      {"none below", 512, {{1024, 50}, {4096, 50}}, false},
      {"one below alone", 8192, {{4096, 50}}, false},
      {"beyond two", 8192, {{1024, 50}, {4096, 50}}, true},
      {"beyond, 4 times the larger one", 16384, {{1024, 50}, {4096, 50}}, true},
      {"beyond, more than that", 16385, {{1024, 50}, {4096, 50}}, false},
      {"beyond two that lie 16 times apart", 32768, {{1024, 50}, {16384, 50}}, true},
      {"beyond two that lie farther apart", 32768, {{1023, 50}, {16384, 50}}, false},
      {"beyond, growing from fast", 8192, {{1024, 15}, {4096, 50}}, false},
      {"beyond, shrinking to 2.2 at 16384", 16384, {{1024, 100}, {4096, 47}}, true},
      {"beyond, shrinking below 2 at 16384", 16384, {{1024, 100}, {4096, 44}}, false},
      {"no neighbour", 2048, {}, false},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.name);
    std::map<uint64_t, DecidedCell> cells;
    // The default takes 9 times as long as the winner, so that the winner is never the default.
    for (const auto& [bytes, tenths] : each.tenths) {
      cells.emplace(bytes, CellWith(10, {{"a/x", tenths}, {"a/y", 30}, {"a/z", 30}}));
    }
    const bool is_refused = !RefusedOf(ListOf({"a/default", "a/x"}), each.bytes, cells).empty();
    EXPECT_EQ(is_refused, each.is_refused);
  }
}

TEST(RefuseSlowChoicesTest, NeighboursHalfAndTwiceAsLargeShowMoreThanThoseFartherAway) {
  const auto is_refused = [](uint64_t below_bytes, int64_t below, uint64_t above_bytes,
                             int64_t above) {
    std::map<uint64_t, DecidedCell> cells;
    // As many fast choices as a winner has next best ones, so that the choice is none of them.
    const auto cell_with = [](int64_t tenths) {
      return CellWith(10, {{"a/b", 11}, {"a/c", 11}, {"a/d", 11}, {"a/x", tenths}});
    };
    cells.emplace(below_bytes, cell_with(below));
    cells.emplace(above_bytes, cell_with(above));
    return !RefusedOf(ListOf({"a/default", "a/x"}), 2048, cells).empty();
  };
  EXPECT_TRUE(is_refused(1024, 15, 4096, 15));
  EXPECT_FALSE(is_refused(1024, 14, 4096, 15));
  EXPECT_FALSE(is_refused(1024, 15, 4096, 14));
  EXPECT_FALSE(is_refused(1023, 15, 4096, 15)) << "less than half as large";
  EXPECT_FALSE(is_refused(1024, 15, 4097, 15)) << "more than twice as large";
  EXPECT_TRUE(is_refused(1023, 20, 4097, 20));
  EXPECT_FALSE(is_refused(1023, 19, 4097, 20));
}

TEST(RefuseSlowChoicesTest, ChoicesThatMayBeNeededOrMayNotWorkRace) {
  std::map<uint64_t, DecidedCell> cells;
  const auto refused = [&](const char* id) {
    return !RefusedOf(ListOf({id}), 2048, cells).empty();
  };
  cells.emplace(1024, CellWith(100, {{"a/slow", 500}, {"a/fails", 500}, {"a/once", 500}}));
  cells.emplace(
      4096, CellWith(100, {{"a/slow", 500}, {"a/fails", 0}}, {{"a/refused", "it needs 4 ranks"}}));
  cells.emplace(512, CellWith(100, {{"a/slow", 500}, {"a/refused", 500}}));
  cells.emplace(8192, CellWith(100, {{"a/slow", 500}, {"a/refused", 500}, {"a/fails", 500}}));
  EXPECT_TRUE(refused("a/slow"));
  EXPECT_FALSE(refused("a/default"));
  EXPECT_FALSE(refused("a/best"));
  EXPECT_FALSE(refused("a/third")) << "the second of the next best";
  EXPECT_FALSE(refused("a/fourth")) << "the third of the next best";
  EXPECT_TRUE(refused("a/fifth"));
  EXPECT_FALSE(refused("a/fails")) << "it failed at 4096 bytes";
  EXPECT_FALSE(refused("a/once")) << "it has one neighbour";
  EXPECT_FALSE(refused("a/new"));
  EXPECT_TRUE(refused("a/refused")) << "ranks may have different refusals at 4096 bytes";
  // A failure far away shows nothing.
  cells.erase(4096);
  cells.erase(8192);
  cells.emplace(4096, CellWith(100, {{"a/fails", 500}}));
  cells.emplace(uint64_t{1} << 20, CellWith(100, {{"a/fails", 0}}));
  EXPECT_TRUE(refused("a/fails"));
}

TEST(RefuseSlowChoicesTest, UnsteadyCellsAndThoseWithoutAWinnerTeachNothing) {
  for (const bool is_unsteady : {true, false}) {
    std::map<uint64_t, DecidedCell> cells;
    cells.emplace(512, CellWith(100, {{"a/slow", 500}}));
    cells.emplace(1024, CellWith(100, {{"a/slow", 120}}));
    cells.emplace(4096, CellWith(100, {{"a/slow", 500}}));
    const ChoiceList list = ListOf({"a/slow"});
    EXPECT_THAT(RefusedOf(list, 2048, cells), IsEmpty());
    DecidedCell& cell = cells.at(1024);
    if (is_unsteady) {
      cell.cell.is_unsteady = true;
    } else {
      cell.winner = Fail(ErrorCode::kEnvironment, "no choice could be timed");
    }
    EXPECT_THAT(RefusedOf(list, 2048, cells), ElementsAre("a/slow")) << "512 counts";
  }
}

// The list lacks the choice that has won at both sizes. The fastest one that it has is a/second at
// 1024 bytes, with 11 ns, and a/other at 4096 bytes, with 12.
TEST(RefuseSlowChoicesTest, AWinnerThatTheListLacksShowsNothing) {
  const auto refused = [](int64_t slow_ns, std::vector<std::string> ids) {
    std::map<uint64_t, DecidedCell> cells;
    const auto cell_with = [&](int64_t second_ns, int64_t other_ns) {
      // The next best of the winner race anyway.
      return Cell({{"a/default", 90},
                   {"gone/b", 1},
                   {"gone/c", 2},
                   {"gone/d", 2},
                   {"gone/e", 2},
                   {"a/second", second_ns},
                   {"a/other", other_ns},
                   {"a/slow", slow_ns}});
    };
    cells.emplace(1024, cell_with(11, 40));
    cells.emplace(4096, cell_with(40, 12));
    return RefuseSlowChoices(ListOf(std::move(ids)), 2048, cells, {});
  };
  const std::vector<std::string> here = {"a/default", "a/slow", "a/second", "a/other"};
  EXPECT_THAT(IdsOf(refused(15, here)), IsEmpty());
  const std::vector<SlowChoice> slow = refused(33, here);
  ASSERT_THAT(IdsOf(slow), ElementsAre("a/slow"));
  EXPECT_EQ(slow[0].refusal.reason,
            "not raced: 3.0 and 2.8 times the time of the fastest listed choice at 1024 and 4096 "
            "bytes");
  EXPECT_THAT(slow[0].faster, ElementsAre(Id("a/second"), Id("a/other")));
  EXPECT_THAT(IdsOf(refused(15, {"a/default", "a/slow", "a/second", "a/other", "gone/b"})),
              ElementsAre("a/slow", "a/second", "a/other"));
  EXPECT_THAT(IdsOf(refused(33, {"a/slow"})), IsEmpty()) << "no other choice of the cells is left";
}

TEST(RefuseSlowChoicesTest, ASizeOfWhichNoRankCanRunTheWinnerIsNoNeighbour) {
  std::map<uint64_t, DecidedCell> cells;
  for (const uint64_t bytes : {512, 1024, 4096}) {
    cells.emplace(bytes, CellWith(100, {{"a/slow", 500}}));
  }
  const ChoiceList list = ListOf({"a/slow"});
  EXPECT_THAT(RefusedOf(list, 2048, cells, {1024}), ElementsAre("a/slow")) << "512 counts";
  EXPECT_THAT(RefusedOf(list, 2048, cells, {512, 1024}), IsEmpty());
  EXPECT_THAT(RefusedOf(list, 2048, cells, {4096}), ElementsAre("a/slow")) << "two smaller ones";
  EXPECT_THAT(RefusedOf(list, 2048, cells, {1024, 4096}), IsEmpty());
}

TEST(ChoicesToRaceAfterAllTest, AreThoseOfWhichAFasterChoiceDidNotRun) {
  const std::vector<SlowChoice> slow = {
      {{"a/x", "not raced"}, {Id("a/best"), Id("a/best")}},
      {{"a/y", "not raced"}, {Id("a/best"), Id("a/fails")}},
      {{"a/z", "not raced"}, {Id("a/unmade"), Id("a/best")}},
      {{"a/w", "not raced"}, {Id("a/x"), Id("a/best")}},
  };
  const auto to_race = [&](const DecidedCell& decided) {
    return IdsOf(ChoicesToRaceAfterAll(slow, decided));
  };
  EXPECT_THAT(to_race(CellWith(100, {{"a/fails", 0}})), ElementsAre("a/y", "a/z"));
  EXPECT_THAT(to_race(CellWith(100, {{"a/fails", 300}, {"a/unmade", 300}})), IsEmpty());
  EXPECT_THAT(to_race(Cell({{"a/default", 0}, {"a/best", 0}})),
              ElementsAre("a/x", "a/y", "a/z", "a/w"));
}

// An eliminated choice may have two samples, of which one is a spike.
TEST(RefuseSlowChoicesTest, TheBestSampleCounts) {
  std::map<uint64_t, DecidedCell> cells;
  cells.emplace(1024, CellWith(100, {{"a/slow", 500}}));
  cells.emplace(4096, CellWith(100, {{"a/slow", 500}}));
  Verdict& verdict = cells.at(1024).cell.verdicts.back();
  verdict.outcome = Outcome::kOutpaced;
  verdict.samples_ns = {800, 150};
  const ChoiceList list = ListOf({"a/slow"});
  EXPECT_THAT(RefusedOf(list, 2048, cells), ElementsAre("a/slow"));
  verdict.samples_ns = {800, 149};
  EXPECT_THAT(RefusedOf(list, 2048, cells), IsEmpty());
}

// The nearest smaller and the nearest larger size at which the choice has a time.
std::vector<uint64_t> NearestWith(const ChoiceId& id, uint64_t bytes,
                                  const std::map<uint64_t, DecidedCell>& cells) {
  std::vector<uint64_t> smaller;
  std::vector<uint64_t> larger;
  for (const auto& [size, decided] : cells) {
    for (const Verdict& verdict : decided.cell.verdicts) {
      if (verdict.id == id && verdict.median_ns > 0)
        (size < bytes ? smaller : larger).push_back(size);
    }
  }
  std::vector<uint64_t> nearest;
  if (!smaller.empty()) nearest.push_back(smaller.back());
  if (!larger.empty()) nearest.push_back(larger.front());
  return nearest;
}

// Times of choices are straight lines over sizes with noise.
TEST(RefuseSlowChoicesTest, NeverRefusesTheDefaultOrANeighboursBestAndKnowsNoOrderOfVerdicts) {
  std::mt19937 random(11);
  size_t refused_count = 0;
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> ids = {"a/default"};
    for (int i = 0; i < 12; ++i) ids.push_back(fmt::format("a/c{}", i));
    std::map<uint64_t, DecidedCell> cells;
    std::map<uint64_t, DecidedCell> shuffled;
    std::vector<std::pair<int64_t, int64_t>> lines;
    for (size_t i = 0; i < ids.size(); ++i) {
      lines.emplace_back(1000 + random() % 9000, 1 + random() % 20);
    }
    for (uint64_t bytes = 1024; bytes <= 1 << 20; bytes *= 4) {
      if (random() % 4 == 0) continue;
      std::vector<Entry> entries;
      for (size_t i = 0; i < ids.size(); ++i) {
        const auto [base_ns, per_byte] = lines[i];
        entries.push_back({ids[i], base_ns + per_byte * static_cast<int64_t>(bytes) / 16 +
                                       static_cast<int64_t>(random() % 200)});
        if (random() % 20 == 0) entries.back().median_ns = 0;
      }
      cells.emplace(bytes, Cell(entries));
      std::shuffle(entries.begin(), entries.end(), random);
      shuffled.emplace(bytes, Cell(entries));
    }
    const uint64_t bytes = uint64_t{1024} << (random() % 11);
    cells.erase(bytes);
    shuffled.erase(bytes);
    const std::vector<std::string> refused = RefusedOf(ListOf(ids), bytes, cells);
    refused_count += refused.size();
    std::vector<std::string> names = ids;
    std::shuffle(names.begin(), names.end(), random);
    std::vector<std::string> refused_shuffled = RefusedOf(ListOf(names), bytes, shuffled);
    std::vector<std::string> sorted = refused;
    std::sort(sorted.begin(), sorted.end());
    std::sort(refused_shuffled.begin(), refused_shuffled.end());
    EXPECT_EQ(sorted, refused_shuffled);
    // By the lines, a refused choice is not the fastest at this size.
    const auto ns_at = [&](const std::string& id) {
      const auto at = std::find(ids.begin(), ids.end(), id) - ids.begin();
      return lines[at].first + lines[at].second * static_cast<int64_t>(bytes) / 16;
    };
    for (const std::string& id : refused) {
      EXPECT_NE(id, "a/default");
      for (const uint64_t size : NearestWith(Id(id), bytes, cells)) {
        EXPECT_NE(id, cells.at(size).winner->id.text()) << size << " for " << bytes;
      }
      EXPECT_TRUE(std::any_of(ids.begin(), ids.end(), [&](const std::string& other) {
        return ns_at(other) < ns_at(id);
      })) << id;
    }
  }
  EXPECT_GT(refused_count, 300u) << "the rule refuses something";
}

}  // namespace
}  // namespace cotune
