#include "core/selection/dispatch_table.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <map>
#include <new>
#include <random>
#include <thread>

#include "core/selection/dispatch_table.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {
std::atomic<uint64_t> allocation_count{0};
}  // namespace

// Counts every allocation of this test program. Not inlined: the compiler pairs new with delete.
[[gnu::noinline]] void* operator new(std::size_t size) {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace cotune {
namespace {

using ::testing::HasSubstr;

ChoiceId Id(std::string_view text) { return ChoiceId::Parse(text).value(); }

DispatchKey RandomKey(std::mt19937_64& random) {
  DispatchKey key;
  key.collective = static_cast<Collective>(1 + random() % 5);
  key.dtype = static_cast<Dtype>(1 + random() % 7);
  key.reduction =
      Reduces(key.collective) ? static_cast<Reduction>(1 + random() % 5) : Reduction::kNone;
  key.memory = static_cast<MemoryKind>(1 + random() % 2);
  key.buffer_class = static_cast<BufferClass>(random() % 2);
  key.in_place = random() % 2 == 1;
  key.program_digest = random() % 3 == 0 ? 0 : random();
  return key;
}

std::vector<std::pair<uint64_t, ChoiceId>> RandomWinners(std::mt19937_64& random) {
  std::vector<std::pair<uint64_t, ChoiceId>> winners;
  uint64_t bytes = random() % 2 == 0 ? random() % 5 : random() >> random() % 64;
  for (uint64_t i = 0, n = 1 + random() % 40; i < n; ++i) {
    winners.emplace_back(bytes, Id("host/algorithm" + std::to_string(random() % 6)));
    const uint64_t step = 1 + (random() >> (4 + random() % 58));
    if (bytes > UINT64_MAX - step) break;
    bytes += step;
  }
  return winners;
}

// Makes a list for the size of each winner; some are empty.
std::vector<NextBestOfSize> RandomNextBest(
    std::mt19937_64& random, const std::vector<std::pair<uint64_t, ChoiceId>>& winners) {
  std::vector<NextBestOfSize> next_best;
  for (const auto& [bytes, winner] : winners) {
    std::vector<ChoiceId> choices;
    for (uint64_t i = 0, n = random() % (kNextBestMax + 1); i < n; ++i) {
      choices.push_back(Id("host/next" + std::to_string(random() % 9)));
    }
    next_best.push_back({bytes, NextBest(std::move(choices))});
  }
  return next_best;
}

DispatchRow RandomRow(std::mt19937_64& random, const DispatchKey& key) {
  const auto winners = RandomWinners(random);
  return DispatchRow::Of(key, winners, RandomNextBest(random, winners));
}

std::vector<DispatchRow> RandomRows(std::mt19937_64& random, size_t n) {
  std::map<DispatchKey, DispatchRow> rows;
  while (rows.size() < n) {
    const DispatchKey key = RandomKey(random);
    rows.insert_or_assign(key, RandomRow(random, key));
    if (rows.size() == n) break;
    DispatchKey other_buffers = key;
    other_buffers.buffer_class = static_cast<BufferClass>(1 - static_cast<int>(key.buffer_class));
    rows.insert_or_assign(other_buffers, RandomRow(random, other_buffers));
  }
  std::vector<DispatchRow> result;
  for (auto& [key, row] : rows) result.push_back(std::move(row));
  return result;
}

bool HasPlainRowFromBelow(const std::vector<DispatchRow>& rows, DispatchKey key, uint64_t bytes) {
  key.buffer_class = BufferClass::kPlain;
  return std::any_of(rows.begin(), rows.end(), [&](const DispatchRow& row) {
    return row.key == key && row.smallest_bytes < bytes;
  });
}

// The classes of dtypes of an element width, the closest width first.
std::vector<std::vector<Dtype>> DtypesByNearness(Dtype dtype) {
  using enum Dtype;
  const std::vector<Dtype> one = {kU8};
  const std::vector<Dtype> two = {kF16, kBf16};
  const std::vector<Dtype> four = {kF32, kI32};
  const std::vector<Dtype> eight = {kF64, kI64};
  switch (SizeBytes(dtype)) {
    case 1:
      return {{dtype}, one, two, four, eight};
    case 2:
      return {{dtype}, two, one, four, eight};
    case 4:
      return {{dtype}, four, two, one, eight};
    default:
      return {{dtype}, eight, four, two, one};
  }
}

// The oracle of nearness: asks for the rows of all keys, the nearest key first.
const DispatchRow* NaiveRow(const std::vector<DispatchRow>& rows, const DispatchKey& key) {
  const auto row_of = [&](const DispatchKey& wanted) -> const DispatchRow* {
    const auto found = std::find_if(rows.begin(), rows.end(),
                                    [&](const DispatchRow& row) { return row.key == wanted; });
    return found == rows.end() ? nullptr : &*found;
  };
  if (const DispatchRow* own = row_of(key)) return own;
  DispatchKey other = key;
  other.buffer_class = BufferClass::kPlain;
  if (key.program_digest != 0 || row_of(other) != nullptr) return nullptr;
  other = key;
  for (const Reduction reduction : {key.reduction, Reduction::kSum, Reduction::kProduct,
                                    Reduction::kMin, Reduction::kMax, Reduction::kAverage}) {
    for (const std::vector<Dtype>& dtypes : DtypesByNearness(key.dtype)) {
      for (const bool in_place : {key.in_place, !key.in_place}) {
        for (const Dtype dtype : dtypes) {
          other.reduction = reduction;
          other.dtype = dtype;
          other.in_place = in_place;
          if (const DispatchRow* relative = row_of(other)) return relative;
        }
      }
    }
  }
  return nullptr;
}

// Every key that a call without a program may have.
std::vector<DispatchKey> AllKeys() {
  std::vector<DispatchKey> keys;
  for (const Collective collective : AllCollectives()) {
    for (const Dtype dtype : AllDtypes()) {
      for (int reduction = Reduces(collective) ? 1 : 0; reduction <= (Reduces(collective) ? 5 : 0);
           ++reduction) {
        for (const MemoryKind memory : {MemoryKind::kHost, MemoryKind::kCuda}) {
          for (const BufferClass buffers : AllBufferClasses()) {
            for (const bool in_place : {false, true}) {
              keys.push_back({collective, dtype, static_cast<Reduction>(reduction), memory, buffers,
                              in_place, 0});
            }
          }
        }
      }
    }
  }
  return keys;
}

// The oracle: walk the rows as they were given.
std::string NaiveLookup(const std::vector<DispatchRow>& rows, const DispatchKey& asked,
                        uint64_t bytes) {
  const DispatchRow* const deciding = NaiveRow(rows, asked);
  if (deciding == nullptr) return "";
  const DispatchKey key = deciding->key;
  for (const DispatchRow& row : rows) {
    if (row.key != key) continue;
    const bool is_below = bytes < row.smallest_bytes;
    if (key.buffer_class == BufferClass::kSymmetric && is_below &&
        HasPlainRowFromBelow(rows, key, row.smallest_bytes)) {
      return "";
    }
    for (const SizeRange& range : row.ranges) {
      if (bytes >= range.first_bytes &&
          (bytes < range.end_bytes || range.end_bytes == UINT64_MAX)) {
        return range.choice.text();
      }
    }
  }
  return "";
}

std::string LookupText(const DispatchTable& table, const DispatchKey& key, uint64_t bytes) {
  const int32_t choice = table.Lookup(key, bytes);
  return choice == DispatchTable::kNoChoice
             ? ""
             : table.choices().at(static_cast<size_t>(choice)).text();
}

TEST(DispatchTableTest, EmptyTableHasNoChoice) {
  const DispatchTable table;
  EXPECT_EQ(table.Lookup(DispatchKey{}, 0), DispatchTable::kNoChoice);
  EXPECT_EQ(table.Lookup(DispatchKey{}, UINT64_MAX), DispatchTable::kNoChoice);
  EXPECT_EQ(DispatchTable::Parse(table.Serialize()).value(), table);
}

TEST(DispatchTableTest, LooksUpAsTheRowsSay) {
  DispatchKey key;
  key.reduction = Reduction::kSum;
  const DispatchTable table =
      DispatchTable::Build(
          {{key, {{0, 2048, Id("host/tree")}, {2048, UINT64_MAX, Id("host/ring?chunk=4096")}}}})
          .value();
  EXPECT_EQ(LookupText(table, key, 0), "host/tree");
  EXPECT_EQ(LookupText(table, key, 2047), "host/tree");
  EXPECT_EQ(LookupText(table, key, 2048), "host/ring?chunk=4096");
  EXPECT_EQ(LookupText(table, key, UINT64_MAX - 1), "host/ring?chunk=4096");
  EXPECT_EQ(LookupText(table, key, UINT64_MAX), "host/ring?chunk=4096");
  DispatchKey other = key;
  other.collective = Collective::kAllGather;
  EXPECT_EQ(table.Lookup(other, 10), DispatchTable::kNoChoice);
  other = key;
  other.program_digest = 1;
  EXPECT_EQ(table.Lookup(other, 10), DispatchTable::kNoChoice);
}

std::vector<std::pair<uint64_t, ChoiceId>> WinnersFrom(uint64_t bytes) {
  return {{bytes, Id("h/a")}, {4 * bytes, Id("h/b")}};
}

TEST(DispatchTableTest, RegisteredBuffersHaveTheirRowFromTheSmallestMeasuredSizeOn) {
  const DispatchKey plain;
  DispatchKey registered;
  registered.buffer_class = BufferClass::kSymmetric;
  const DispatchRow row = DispatchRow::Of(registered, WinnersFrom(1000));
  EXPECT_EQ(row.smallest_bytes, 1000u);

  const DispatchTable both =
      DispatchTable::Build({row, DispatchRow::Of(plain, WinnersFrom(999))}).value();
  EXPECT_EQ(LookupText(both, registered, 0), "");
  EXPECT_EQ(LookupText(both, registered, 999), "");
  EXPECT_EQ(both.DecidingKey(registered, 999), plain);
  EXPECT_EQ(both.RangeOf(registered, 999), std::nullopt);
  EXPECT_EQ(LookupText(both, registered, 1000), "h/a");
  EXPECT_EQ(both.DecidingKey(registered, 1000), registered);
  EXPECT_EQ(both.RangeOf(registered, 1000), (SizeRange{1000, 2000, Id("h/a")}));
  EXPECT_EQ(LookupText(both, registered, UINT64_MAX), "h/b");
  EXPECT_EQ(LookupText(both, plain, 500), "h/a");
  EXPECT_EQ(both.RangeOf(plain, 500)->first_bytes, 0u);
  EXPECT_EQ(DispatchTable::Parse(both.Serialize()).value(), both);
}

TEST(DispatchTableTest, RegisteredBuffersKeepSmallSizesWherePlainOnesHaveNoneMeasured) {
  DispatchKey registered;
  registered.buffer_class = BufferClass::kSymmetric;
  const DispatchRow row = DispatchRow::Of(registered, WinnersFrom(1000));
  const DispatchTable alone = DispatchTable::Build({row}).value();
  EXPECT_EQ(LookupText(alone, registered, 999), "h/a");
  EXPECT_EQ(alone.RangeOf(registered, 999), (SizeRange{0, 2000, Id("h/a")}));
  EXPECT_EQ(alone.DecidingKey(registered, 999), registered);
  const DispatchTable beside_larger =
      DispatchTable::Build({row, DispatchRow::Of(DispatchKey{}, WinnersFrom(1 << 20))}).value();
  EXPECT_EQ(LookupText(beside_larger, registered, 999), "h/a");
  EXPECT_EQ(beside_larger.RangeOf(registered, 999), (SizeRange{0, 2000, Id("h/a")}));
}

TEST(DispatchTableTest, ACallWithoutDataSaysNothingOfThoseWithData) {
  const std::vector<std::pair<uint64_t, ChoiceId>> winners = {{0, Id("h/empty")},
                                                              {1 << 20, Id("h/a")}};
  DispatchKey registered;
  registered.buffer_class = BufferClass::kSymmetric;
  const DispatchRow row = DispatchRow::Of(registered, winners);
  EXPECT_EQ(row.smallest_bytes, 1u << 20);
  EXPECT_EQ(row.ranges, (std::vector<SizeRange>{{0, UINT64_MAX, Id("h/a")}}));
  EXPECT_EQ(DispatchRow::Of(registered, {winners.data(), 1}).ranges.front().choice, Id("h/empty"));
  EXPECT_EQ(DispatchRow::Of(DispatchKey{}, winners).ranges, row.ranges);
}

TEST(DispatchTableTest, SeveralRangesAmongTheLargestSizes) {
  constexpr uint64_t kHalf = uint64_t{1} << 63;
  const DispatchKey key;
  const DispatchTable table = DispatchTable::Build({{key,
                                                     {{0, kHalf + 5, Id("h/a")},
                                                      {kHalf + 5, kHalf + 9, Id("h/b")},
                                                      {kHalf + 9, UINT64_MAX, Id("h/c")}}}})
                                  .value();
  EXPECT_EQ(LookupText(table, key, kHalf + 4), "h/a");
  EXPECT_EQ(LookupText(table, key, kHalf + 5), "h/b");
  EXPECT_EQ(LookupText(table, key, kHalf + 8), "h/b");
  EXPECT_EQ(LookupText(table, key, kHalf + 9), "h/c");
  EXPECT_EQ(LookupText(table, key, UINT64_MAX), "h/c");
}

TEST(DispatchTableTest, AgreesWithANaiveWalkAtEveryBoundaryOfRandomTables) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 20; ++round) {
    const std::vector<DispatchRow> rows = RandomRows(random, 1 + random() % 60);
    const DispatchTable table = DispatchTable::Build(rows).value();
    for (const DispatchRow& row : rows) {
      for (const SizeRange& range : row.ranges) {
        for (uint64_t bytes :
             {range.first_bytes, range.end_bytes - 1, range.end_bytes,
              range.first_bytes + (range.end_bytes - range.first_bytes) / 2, range.first_bytes / 2,
              range.first_bytes - (range.first_bytes > 0)}) {
          const std::string expected = NaiveLookup(rows, row.key, bytes);
          ASSERT_EQ(LookupText(table, row.key, bytes), expected) << bytes;
          const std::optional<SizeRange> found = table.RangeOf(row.key, bytes);
          ASSERT_EQ(found ? found->choice.text() : "", expected) << bytes;
          if (!found) continue;
          ASSERT_GE(bytes, found->first_bytes);
          ASSERT_TRUE(bytes < found->end_bytes || found->end_bytes == UINT64_MAX) << bytes;
        }
      }
    }
    for (int i = 0; i < 500; ++i) {
      const DispatchKey key = RandomKey(random);
      ASSERT_EQ(LookupText(table, key, 64), NaiveLookup(rows, key, 64));
    }
  }
}

DispatchKey KeyOf(Dtype dtype, bool in_place, Reduction reduction = Reduction::kSum) {
  return {.dtype = dtype, .reduction = reduction, .in_place = in_place};
}

DispatchTable TableOf(const std::vector<DispatchKey>& keys) {
  std::vector<DispatchRow> rows;
  for (const DispatchKey& key : keys) rows.push_back({key, {{0, UINT64_MAX, Id("h/a")}}});
  return DispatchTable::Build(std::move(rows)).value();
}

TEST(DispatchTableTest, EveryRuleOfNearness) {
  using enum Dtype;
  using enum Reduction;
  struct Case {
    const char* rule;
    DispatchKey asked;
    DispatchKey nearer;
    DispatchKey farther;
  };
  const std::vector<Case> cases = {
      {"the other place before another dtype", KeyOf(kF32, true), KeyOf(kF32, false),
       KeyOf(kI32, true)},
      {"equal width before another one", KeyOf(kBf16, false), KeyOf(kF16, true),
       KeyOf(kF32, false)},
      {"the closest width", KeyOf(kBf16, false), KeyOf(kU8, true), KeyOf(kF32, false)},
      {"the closest width of large ones", KeyOf(kF64, false), KeyOf(kF32, false),
       KeyOf(kF16, false)},
      {"the own place among dtypes of one width", KeyOf(kU8, true), KeyOf(kBf16, true),
       KeyOf(kF16, false)},
      {"the order of dtypes", KeyOf(kU8, true), KeyOf(kF16, true), KeyOf(kBf16, true)},
      {"the same reduction before another one", KeyOf(kF32, false, kMax), KeyOf(kF64, true, kMax),
       KeyOf(kF32, false, kSum)},
      {"sum before other reductions", KeyOf(kF32, false, kMax), KeyOf(kF64, true, kSum),
       KeyOf(kF32, false, kProduct)},
      {"the order of reductions", KeyOf(kF32, false, kMax), KeyOf(kF64, true, kProduct),
       KeyOf(kF32, false, kMin)},
  };
  for (const Case& each : cases) {
    const DispatchTable table = TableOf({each.farther, each.nearer});
    const DispatchRow* relative = table.RelativeOf(each.asked);
    ASSERT_NE(relative, nullptr) << each.rule;
    EXPECT_EQ(relative->key, each.nearer) << each.rule;
    EXPECT_EQ(table.DecidingKey(each.asked, 8), each.nearer) << each.rule;
    EXPECT_EQ(TableOf({each.farther}).RelativeOf(each.asked)->key, each.farther) << each.rule;
    EXPECT_EQ(table.RelativeOf(each.nearer), nullptr) << "a row of its own";
    EXPECT_EQ(table.Find(each.asked), nullptr) << each.rule;
  }
}

TEST(DispatchTableTest, WhatIsNoRelative) {
  const DispatchKey asked = KeyOf(Dtype::kF32, false);
  DispatchKey other = KeyOf(Dtype::kF32, true);
  other.memory = MemoryKind::kCuda;
  EXPECT_EQ(TableOf({other}).RelativeOf(asked), nullptr);
  EXPECT_EQ(TableOf({other}).Lookup(asked, 8), DispatchTable::kNoChoice);
  other = KeyOf(Dtype::kF32, true);
  other.buffer_class = BufferClass::kSymmetric;
  EXPECT_EQ(TableOf({other}).RelativeOf(asked), nullptr);
  other = KeyOf(Dtype::kF32, true);
  other.collective = Collective::kReduceScatter;
  EXPECT_EQ(TableOf({other}).RelativeOf(asked), nullptr);
  other = KeyOf(Dtype::kF32, true);
  other.program_digest = 7;
  EXPECT_EQ(TableOf({other}).RelativeOf(asked), nullptr) << "a program is no relative";
  DispatchKey program = asked;
  program.program_digest = 7;
  EXPECT_EQ(TableOf({asked}).RelativeOf(program), nullptr) << "a program has no relatives";
  EXPECT_EQ(TableOf({asked}).DecidingKey(program, 8), program);
}

TEST(DispatchTableTest, SymmetricKeysHaveRelativesOnlyWithoutAPlainRowOfTheirOwn) {
  const DispatchKey plain = KeyOf(Dtype::kBf16, false);
  DispatchKey symmetric = plain;
  symmetric.buffer_class = BufferClass::kSymmetric;
  DispatchKey symmetric_relative = symmetric;
  symmetric_relative.dtype = Dtype::kF32;
  DispatchKey plain_relative = plain;
  plain_relative.dtype = Dtype::kF16;

  const DispatchTable without_own = TableOf({plain_relative, symmetric_relative});
  EXPECT_EQ(without_own.RelativeOf(symmetric)->key, symmetric_relative);
  EXPECT_EQ(without_own.DecidingKey(symmetric, 8), symmetric_relative);
  EXPECT_EQ(without_own.RelativeOf(plain)->key, plain_relative);

  const DispatchTable with_plain = TableOf({plain, plain_relative, symmetric_relative});
  EXPECT_EQ(with_plain.RelativeOf(symmetric), nullptr);
  EXPECT_EQ(with_plain.Lookup(symmetric, 8), DispatchTable::kNoChoice)
      << "so that it runs as plain";
  EXPECT_EQ(with_plain.DecidingKey(symmetric, 8), plain);

  const DispatchTable only_plain = TableOf({plain_relative});
  EXPECT_EQ(only_plain.Lookup(symmetric, 8), DispatchTable::kNoChoice);
  EXPECT_EQ(only_plain.DecidingKey(symmetric, 8), plain_relative);
}

// A relative is in force from where its own row is.
TEST(DispatchTableTest, ASymmetricRelativeIsInForceFromItsSmallestMeasuredSizeOn) {
  const DispatchKey plain = KeyOf(Dtype::kF32, false);
  DispatchKey symmetric = plain;
  symmetric.buffer_class = BufferClass::kSymmetric;
  const DispatchTable table = DispatchTable::Build({DispatchRow::Of(symmetric, WinnersFrom(1000)),
                                                    DispatchRow::Of(plain, WinnersFrom(10))})
                                  .value();
  DispatchKey asked = symmetric;
  asked.in_place = true;
  EXPECT_EQ(LookupText(table, asked, 999), "");
  EXPECT_EQ(table.RangeOf(asked, 999), std::nullopt);
  EXPECT_TRUE(table.NextBestOf(asked, 999).empty());
  EXPECT_EQ(table.DecidingKey(asked, 999), plain);
  EXPECT_EQ(LookupText(table, asked, 1000), "h/a");
  EXPECT_EQ(table.RangeOf(asked, 1000), (SizeRange{1000, 2000, Id("h/a")}));
  EXPECT_EQ(table.DecidingKey(asked, 1000), symmetric);
}

TEST(DispatchTableTest, RelativesOfAllKeysAgreeWithANaiveSearchOverRandomTables) {
  std::mt19937_64 random(12);
  const std::vector<DispatchKey> keys = AllKeys();
  ASSERT_EQ(keys.size(), 728u);
  size_t with_relative = 0;
  size_t with_plain_row = 0;
  for (int round = 0; round < 60; ++round) {
    std::vector<DispatchRow> rows = RandomRows(random, 1 + random() % 25);
    // Rows of keys whose other class of buffers has none.
    std::erase_if(rows, [&](const DispatchRow&) { return random() % 3 == 0; });
    const DispatchTable table = DispatchTable::Build(rows).value();
    for (const DispatchKey& key : keys) {
      const DispatchRow* const expected = NaiveRow(rows, key);
      const DispatchRow* const own = table.Find(key);
      const DispatchRow* const relative = table.RelativeOf(key);
      ASSERT_TRUE(own == nullptr || relative == nullptr) << ToText(key);
      const DispatchRow* const found = own != nullptr ? own : relative;
      ASSERT_EQ(found == nullptr, expected == nullptr) << ToText(key);
      for (const uint64_t bytes : {uint64_t{0}, uint64_t{64}, random() >> random() % 64}) {
        ASSERT_EQ(LookupText(table, key, bytes), NaiveLookup(rows, key, bytes)) << ToText(key);
        if (table.Lookup(key, bytes) == DispatchTable::kNoChoice) continue;
        ASSERT_EQ(table.DecidingKey(key, bytes), expected->key) << ToText(key);
        ASSERT_EQ(table.RangeOf(key, bytes), table.RangeOf(expected->key, bytes)) << ToText(key);
      }
      if (relative != nullptr) {
        ASSERT_EQ(*relative, *expected) << ToText(key);
        ++with_relative;
      }
      DispatchKey plain = key;
      plain.buffer_class = BufferClass::kPlain;
      with_plain_row += found == nullptr && table.Find(plain) != nullptr ? 1 : 0;
    }
  }
  EXPECT_GT(with_relative, 1000u);
  EXPECT_GT(with_plain_row, 10u);
}

TEST(DispatchTableTest, RelativesAreNotSerialised) {
  const DispatchKey key = KeyOf(Dtype::kF32, false);
  const DispatchTable table = TableOf({key});
  EXPECT_EQ(table.rows().size(), 1u);
  const DispatchTable parsed = DispatchTable::Parse(table.Serialize()).value();
  EXPECT_EQ(parsed, table);
  EXPECT_EQ(parsed.RelativeOf(KeyOf(Dtype::kI64, true))->key, key);
}

// The nearest one by the geometric mean, without regard to the ranges.
TEST(DispatchTableTest, TheNextBestChoicesAreThoseOfTheNearestMeasuredSize) {
  const DispatchKey key = KeyOf(Dtype::kF32, false);
  const std::vector<std::pair<uint64_t, ChoiceId>> winners = {
      {1000, Id("h/a")}, {4000, Id("h/a")}, {16000, Id("h/b")}};
  const NextBest first({Id("h/x"), Id("h/y")});
  const NextBest last({Id("h/z")});
  const DispatchRow row =
      DispatchRow::Of(key, winners, {{1000, first}, {4000, NextBest()}, {16000, last}});
  const DispatchTable table = DispatchTable::Build({row}).value();
  EXPECT_EQ(table.rows()[0].ranges.size(), 2u);
  DispatchKey relative = key;
  relative.in_place = true;
  for (const DispatchKey& asked : {key, relative}) {
    EXPECT_EQ(table.NextBestOf(asked, 0), first);
    EXPECT_EQ(table.NextBestOf(asked, 1999), first);
    EXPECT_EQ(table.NextBestOf(asked, 2000), NextBest());
    EXPECT_EQ(table.NextBestOf(asked, 7999), NextBest());
    EXPECT_EQ(table.NextBestOf(asked, 8000), last);
    EXPECT_EQ(table.NextBestOf(asked, UINT64_MAX), last);
  }
  relative.program_digest = 1;
  EXPECT_TRUE(table.NextBestOf(relative, 1000).empty());
  // The table keeps the lists of all sizes, and has their choices among its own.
  const DispatchTable parsed = DispatchTable::Parse(table.Serialize()).value();
  EXPECT_EQ(parsed, table);
  EXPECT_EQ(parsed.choices(), (std::vector{Id("h/a"), Id("h/b"), Id("h/x"), Id("h/y"), Id("h/z")}));
  DispatchRow other = row;
  other.next_best[2].next_best = NextBest({Id("h/y")});
  const DispatchTable with_other = DispatchTable::Build({other}).value();
  EXPECT_FALSE(with_other == table);
  EXPECT_NE(with_other.Serialize(), table.Serialize()) << "the ranks commit it";
}

TEST(DispatchTableTest, ARowKeepsItsMeasuredSizesAlsoWithoutNextBestChoices) {
  const std::vector<std::pair<uint64_t, ChoiceId>> winners = {
      {0, Id("h/a")}, {1000, Id("h/a")}, {4000, Id("h/a")}};
  const DispatchKey key;
  EXPECT_TRUE(DispatchRow::Of(key, winners).next_best.empty()) << "no sizes were given";
  // A call without data is left out, as among the winners.
  const NextBest next_best({Id("h/b")});
  const DispatchRow row = DispatchRow::Of(key, winners, {{0, next_best}, {1000, {}}, {4000, {}}});
  EXPECT_EQ(row.next_best, (std::vector<NextBestOfSize>{{1000, {}}, {4000, {}}}));
  // 2000 bytes are the geometric mean of both.
  const DispatchTable table = DispatchTable::Build({row}).value();
  EXPECT_EQ(table.MeasuredSizeOf(key, 1)->bytes, 1000u);
  EXPECT_EQ(table.MeasuredSizeOf(key, 1999)->bytes, 1000u);
  EXPECT_EQ(table.MeasuredSizeOf(key, 2000)->bytes, 4000u);
  EXPECT_EQ(table.MeasuredSizeOf(key, UINT64_MAX)->bytes, 4000u);
  EXPECT_TRUE(table.NextBestOf(key, 2000).empty());
  DispatchKey other = key;
  other.program_digest = 1;
  EXPECT_EQ(table.MeasuredSizeOf(other, 2000), nullptr);
}

TEST(DispatchTableTest, NextBestAgreesWithANaiveSearchOverRandomTables) {
  std::mt19937_64 random(13);
  for (int round = 0; round < 20; ++round) {
    const DispatchKey key = RandomKey(random);
    const DispatchRow row = RandomRow(random, key);
    const DispatchTable table = DispatchTable::Build({row}).value();
    if (row.next_best.empty()) continue;
    for (const NextBestOfSize& each : row.next_best) {
      ASSERT_EQ(table.NextBestOf(key, each.bytes), each.next_best) << each.bytes;
    }
    for (int i = 0; i < 100; ++i) {
      const uint64_t bytes = std::max<uint64_t>(1, random() >> random() % 64);
      const auto distance = [bytes](const NextBestOfSize& each) {
        return std::abs(std::log2(static_cast<long double>(bytes)) -
                        std::log2(static_cast<long double>(each.bytes)));
      };
      // Equally near sizes give either list, as the boundary is rounded.
      const auto nearest = std::min_element(row.next_best.begin(), row.next_best.end(),
                                            [&](const NextBestOfSize& a, const NextBestOfSize& b) {
                                              return distance(a) < distance(b);
                                            });
      const NextBest& found = table.NextBestOf(key, bytes);
      const bool is_as_near =
          std::any_of(row.next_best.begin(), row.next_best.end(), [&](const NextBestOfSize& each) {
            return each.next_best == found && distance(each) - distance(*nearest) < 1e-9L;
          });
      ASSERT_TRUE(is_as_near) << bytes;
    }
  }
}

TEST(DispatchTableTest, LookupAllocatesNothing) {
  std::mt19937_64 random(5);
  const std::vector<DispatchRow> rows = RandomRows(random, 50);
  const DispatchTable table = DispatchTable::Build(rows).value();
  int64_t sum = 0;
  const uint64_t before = allocation_count.load();
  for (const DispatchRow& row : rows) {
    for (uint64_t bytes = 1; bytes < (uint64_t{1} << 40); bytes *= 3)
      sum += table.Lookup(row.key, bytes);
  }
  DispatchKey relative;
  relative.reduction = Reduction::kAverage;
  for (uint64_t bytes = 1; bytes < (uint64_t{1} << 40); bytes *= 3) {
    sum += table.Lookup(relative, bytes);
  }
  const uint64_t after = allocation_count.load();
  EXPECT_EQ(after, before);
  EXPECT_GE(sum, 0);
  std::string grown(100, 'x');  // the counter does count
  EXPECT_GT(allocation_count.load(), after);
}

TEST(DispatchTableTest, ManyThreadsReadOneTable) {
  std::mt19937_64 random(6);
  const std::vector<DispatchRow> rows = RandomRows(random, 30);
  const DispatchTable table = DispatchTable::Build(rows).value();
  std::atomic<int> mistakes{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (const DispatchRow& row : rows) {
        if (LookupText(table, row.key, 4096) != NaiveLookup(rows, row.key, 4096)) ++mistakes;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(mistakes.load(), 0);
}

TEST(DispatchTableTest, BytesAreCanonicalAndComeBack) {
  std::mt19937_64 random(8);
  std::vector<DispatchRow> rows = RandomRows(random, 20);
  const DispatchTable table = DispatchTable::Build(rows).value();
  const std::string bytes = table.Serialize();
  for (int round = 0; round < 10; ++round) {
    std::shuffle(rows.begin(), rows.end(), random);
    EXPECT_EQ(DispatchTable::Build(rows).value().Serialize(), bytes);
  }
  const DispatchTable parsed = DispatchTable::Parse(bytes).value();
  EXPECT_EQ(parsed.rows(), table.rows());
  EXPECT_EQ(parsed.choices(), table.choices());
}

TEST(DispatchTableTest, BuildRefusesMalformedRows) {
  const DispatchKey key;
  const auto cause_of = [&](std::vector<SizeRange> ranges) {
    const Result<DispatchTable> table = DispatchTable::Build({{key, std::move(ranges)}});
    return table ? "built" : table.error().cause;
  };
  EXPECT_EQ(cause_of({}), "there is no range");
  EXPECT_EQ(cause_of({{1, UINT64_MAX, Id("h/a")}}), "range 0 begins at 1 bytes, not at 0");
  EXPECT_EQ(cause_of({{0, 5, Id("h/a")}, {6, UINT64_MAX, Id("h/a")}}),
            "range 1 begins at 6 bytes, not at 5");
  EXPECT_EQ(cause_of({{0, 0, Id("h/a")}, {0, UINT64_MAX, Id("h/a")}}),
            "range 0 ends at 0 bytes, at or before its begin");
  EXPECT_EQ(cause_of({{0, 5, Id("h/a")}}),
            "the last range ends at 5 bytes, so larger sizes have none");
  const DispatchRow beyond{key, {{0, 5, Id("h/a")}, {5, UINT64_MAX, Id("h/b")}}, 5};
  EXPECT_EQ(DispatchTable::Build({beyond}).error().cause,
            "5 bytes, the smallest measured size, are beyond the first range");
  const DispatchRow descending{
      key, {{0, UINT64_MAX, Id("h/a")}}, 0, {{8, NextBest({Id("h/b")})}, {8, NextBest()}}};
  EXPECT_EQ(DispatchTable::Build({descending}).error().cause,
            "next best choices for 8 bytes come after those for 8");
  const DispatchRow row{key, {{0, UINT64_MAX, Id("h/a")}}};
  const Result<DispatchTable> twice = DispatchTable::Build({row, row});
  ASSERT_FALSE(twice.has_value());
  EXPECT_EQ(twice.error().code, ErrorCode::kInternal);
  EXPECT_THAT(twice.error().what, HasSubstr("same key"));
}

TEST(DispatchTableTest, ParseNamesTheBadField) {
  const DispatchRow row{DispatchKey{},
                        {{0, UINT64_MAX, Id("h/a")}},
                        0,
                        {{8, NextBest({Id("h/a")})}, {16, NextBest({Id("h/a")})}}};
  proto::DispatchTableRecord good;
  ASSERT_TRUE(good.ParseFromString(DispatchTable::Build({row}).value().Serialize()));
  const auto where_of = [&](auto spoil) {
    proto::DispatchTableRecord record = good;
    spoil(record);
    const Result<DispatchTable> table = DispatchTable::Parse(record.SerializeAsString());
    EXPECT_FALSE(table.has_value());
    if (table) return std::string("parsed");
    EXPECT_EQ(table.error().code, ErrorCode::kDatabase);
    return table.error().where + ": " + table.error().cause;
  };
  EXPECT_EQ(where_of([](auto& r) { r.mutable_rows(0)->set_collective(9); }),
            "row 0, field collective: value 9 is not known");
  EXPECT_EQ(where_of([](auto& r) { r.mutable_rows(0)->set_dtype(257); }),
            "row 0, field dtype: value 257 is not known");
  EXPECT_EQ(where_of([](auto& r) { r.mutable_rows(0)->set_reduction(6); }),
            "row 0, field reduction: value 6 is not known");
  EXPECT_EQ(where_of([](auto& r) { r.mutable_rows(0)->set_memory(0); }),
            "row 0, field memory: value 0 is not known");
  EXPECT_EQ(where_of([](auto& r) { r.mutable_rows(0)->set_buffer_class(2); }),
            "row 0, field buffer_class: value 2 is not known");
  EXPECT_EQ(where_of([](auto& r) { r.mutable_rows(0)->add_range_choices(0); }),
            "row 0, field range_choices: 2 choices for 1 ranges");
  EXPECT_EQ(where_of([](auto& r) { r.mutable_rows(0)->set_range_choices(0, 1); }),
            "row 0, field range_choices: choice 1 of 1");
  EXPECT_THAT(where_of([](auto& r) { r.mutable_rows(0)->set_range_ends_bytes(0, 8); }),
              HasSubstr("ends at 8 bytes"));
  EXPECT_THAT(where_of([](auto& r) { r.mutable_rows(0)->set_smallest_bytes(UINT64_MAX); }),
              HasSubstr("beyond the first range"));
  EXPECT_EQ(where_of([](auto& r) { r.mutable_rows(0)->add_next_best_counts(0); }),
            "row 0, field next_best_counts: 3 counts for 2 sizes");
  EXPECT_EQ(where_of([](auto& r) { r.mutable_rows(0)->set_next_best_counts(1, 2); }),
            "row 0, field next_best_counts: more choices than the 2 that there are");
  EXPECT_EQ(where_of([](auto& r) { r.mutable_rows(0)->set_next_best_counts(1, 0); }),
            "row 0, field next_best: 2 choices, and 1 belong to a size");
  EXPECT_EQ(where_of([](auto& r) { r.mutable_rows(0)->set_next_best(0, 1); }),
            "row 0, field next_best: choice 1 of 1");
  EXPECT_THAT(where_of([](auto& r) { r.set_choices(0, "nonsense"); }), HasSubstr("choice 0"));
  EXPECT_THAT(where_of([](auto& r) { r.add_choices("h/unused"); }), HasSubstr("canonical"));
  EXPECT_THAT(DispatchTable::Parse("\xff\xff").error().cause, HasSubstr("not a table"));
}

TEST(DispatchTableTest, KeyAsText) {
  DispatchKey key{.reduction = Reduction::kMax, .in_place = true, .program_digest = 0xab};
  EXPECT_EQ(ToText(key), "all_reduce/max/f32/host/plain/in_place/program00000000000000ab");
  EXPECT_EQ(InWords(key), "all_reduce max f32 in place, program 00000000000000ab");
  key = {.collective = Collective::kAllGather, .buffer_class = BufferClass::kSymmetric};
  EXPECT_EQ(InWords(key), "all_gather f32 out of place, symmetric buffers");
}

}  // namespace
}  // namespace cotune
