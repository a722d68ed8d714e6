#include "core/selection/dispatch_table.h"

#include <atomic>
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
  key.reduction = static_cast<Reduction>(random() % 6);
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

std::vector<DispatchRow> RandomRows(std::mt19937_64& random, size_t n) {
  std::map<DispatchKey, DispatchRow> rows;
  while (rows.size() < n) {
    const DispatchKey key = RandomKey(random);
    rows.insert_or_assign(key, DispatchRow::Of(key, RandomWinners(random)));
    if (rows.size() == n) break;
    DispatchKey other_buffers = key;
    other_buffers.buffer_class = static_cast<BufferClass>(1 - static_cast<int>(key.buffer_class));
    rows.insert_or_assign(other_buffers, DispatchRow::Of(other_buffers, RandomWinners(random)));
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

// The oracle: walk the rows as they were given.
std::string NaiveLookup(const std::vector<DispatchRow>& rows, const DispatchKey& key,
                        uint64_t bytes) {
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
  other.in_place = true;
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
  const DispatchRow row{key, {{0, UINT64_MAX, Id("h/a")}}};
  const Result<DispatchTable> twice = DispatchTable::Build({row, row});
  ASSERT_FALSE(twice.has_value());
  EXPECT_EQ(twice.error().code, ErrorCode::kInternal);
  EXPECT_THAT(twice.error().what, HasSubstr("same key"));
}

TEST(DispatchTableTest, ParseNamesTheBadField) {
  const DispatchRow row{DispatchKey{}, {{0, UINT64_MAX, Id("h/a")}}};
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
  EXPECT_THAT(where_of([](auto& r) { r.set_choices(0, "nonsense"); }), HasSubstr("choice 0"));
  EXPECT_THAT(where_of([](auto& r) { r.add_choices("h/unused"); }), HasSubstr("canonical"));
  EXPECT_THAT(DispatchTable::Parse("\xff\xff").error().cause, HasSubstr("not a table"));
}

TEST(DispatchTableTest, KeyAsText) {
  DispatchKey key{.reduction = Reduction::kMax, .in_place = true, .program_digest = 0xab};
  EXPECT_EQ(ToText(key), "all_reduce/max/f32/host/plain/in_place/program00000000000000ab");
}

}  // namespace
}  // namespace cotune
