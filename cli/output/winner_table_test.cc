#include "cli/output/winner_table.h"

#include "cli/output/bench_table.h"
#include "core/testing/database_entries.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// A cell without failures whose winner takes winner_us and whose default takes default_us.
DatabaseEntry Entry(uint64_t count, const char* winner, int64_t winner_us, int64_t default_us) {
  DatabaseEntry entry = EntryForTest(count);
  entry.cell.verdicts.erase(entry.cell.verdicts.begin() + 2, entry.cell.verdicts.end());
  entry.cell.verdicts[0].id = IdForTest(winner);
  entry.cell.verdicts[0].median_ns = winner_us * 1000;
  entry.cell.verdicts[0].interval_low_ns = winner_us * 1000 - 500;
  entry.cell.verdicts[0].interval_high_ns = winner_us * 1000 + 500;
  entry.winner.id = entry.cell.verdicts[0].id;
  entry.winner.median_ns = winner_us * 1000;
  entry.winner.fallback_median_ns = default_us * 1000;
  return entry;
}

TEST(WinnerTableTest, MergesNeighboursWithTheSameWinner) {
  const std::vector<DatabaseEntry> entries = {
      Entry(262144, "host/ring", 200, 800), Entry(256, "host/one_shot", 10, 20),
      Entry(1024, "host/one_shot", 20, 160), Entry(4096, "host/tree", 50, 50)};
  const std::vector<WinnerGroup> groups = SummarizeWinners(entries);
  ASSERT_EQ(groups.size(), 1u);
  const std::vector<WinnerRow>& rows = groups[0].rows;
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].first_bytes, 1024u);
  EXPECT_EQ(rows[0].last_bytes, 4096u);
  EXPECT_EQ(rows[0].sizes, 2);
  EXPECT_EQ(rows[0].winner.text(), "host/one_shot");
  EXPECT_EQ(rows[0].time_ns, 20'000);
  EXPECT_NEAR(rows[0].gain, 4.0, 1e-12);  // geometric mean of 2 and 8
  EXPECT_FALSE(rows[0].is_default);
  EXPECT_TRUE(rows[1].is_default);
  EXPECT_EQ(rows[2].first_bytes, 1u << 20);
}

TEST(WinnerTableTest, TextIsAsShown) {
  std::vector<DatabaseEntry> entries = {
      Entry(262144, "host/ring", 200, 800), Entry(256, "host/one_shot", 10, 20),
      Entry(1024, "host/one_shot", 20, 160), Entry(4096, "host/tree", 50, 50)};
  entries.push_back(EntryForTest(256));
  entries.back().cell.problem.cls.dtype = Dtype::kBf16;
  entries.back().cell.problem.cls.in_place = true;
  EXPECT_EQ(WinnerTableText(entries), R"(all_reduce sum f32, 4 ranks, host memory, out of place
  sizes  winner          at  time_us  interval_us  algbw  busbw     gain  wrong
  1K-4K  host/one_shot   4K     20.0    19.5-20.5   0.20   0.31    4.00x      0
  16K    host/tree      16K     50.0    49.5-50.5   0.33   0.49  default      0
  1M     host/ring       1M    200.0  199.5-200.5   5.24   7.86    4.00x      0

all_reduce sum bf16, 4 ranks, host memory, in place
  sizes  winner                  at  time_us  interval_us  algbw  busbw   gain  wrong
  512    host/ring?chunk=65536  512     35.0    35.0-35.0   0.01   0.02  1.18x      0
  dropped at 512: host/one_shot (wrong_result, 12 wrong elements): rank 2: element 7 is 3, not 4
)");
}

TEST(WinnerTableTest, AFusedWinnerHasItsStepsAndTheBestUnfusedChoice) {
  const ProgramGraph graph =
      ProgramGraph::Parse(
          "%a = input f32 [R, 64]\n%b = input f32 [R, 64]\n"
          "%s = all_reduce sum %a\n%t = all_reduce sum %b\n%y = mul %t, 0.5\nreturn %s, %y\n")
          .value();
  const Program program = Program::Bind(graph, {MemoryKind::kHost, 4, 4}).value();
  std::vector<DatabaseEntry> entries;
  for (const uint64_t rows : {4, 16, 64}) {
    entries.push_back(Entry(1, rows == 64 ? "host/ring" : "host/one_shot?via=bucket", 10, 20));
    DatabaseEntry& entry = entries.back();
    entry.cell.problem = program.ProblemAtRows(rows, entry.cell.problem.topology_digest);
    entry.program_text = graph.ToText();
    if (rows < 64) entry.winner.best_unfused = {IdForTest("host/tree"), int64_t(rows) * 1000};
  }
  const std::string text = WinnerTableText(entries);
  EXPECT_THAT(text, HasSubstr("  host/one_shot?via=bucket: 2 x copy, then 2 x all_reduce as one, "
                              "then copy + mul; unfused at 16 rows: 16.0 us by host/tree\n"));
  EXPECT_THAT(text, Not(HasSubstr("unfused at 4 rows")));
  EXPECT_THAT(text, Not(HasSubstr("host/ring:")));
}

TEST(WinnerTableTest, NothingMeasuredIsNoTable) { EXPECT_EQ(WinnerTableText({}), ""); }

TEST(WinnerTableTest, ClassesAreSpelledOut) {
  ProblemClass cls{
      .collective = Collective::kBroadcast, .world_size = 8, .ranks_per_node = 4, .root = 3};
  EXPECT_EQ(ClassText(cls),
            "broadcast f32, 8 ranks, 4 on each host, host memory, out of place, root 3");
  cls = {.collective = Collective::kAllReduce, .reduction = Reduction::kMax};
  cls.buffer_class = BufferClass::kSymmetric;
  cls.in_place = true;
  EXPECT_EQ(ClassText(cls), "all_reduce max f32, 1 rank, host memory, symmetric buffers, in place");
}

TEST(BenchTableTest, RowsHaveTheColumnsOfNcclTests) {
  const std::vector<DatabaseEntry> entries = {EntryForTest(4096)};
  EXPECT_EQ(
      BenchTableText(entries, DispatchTable(), false),
      R"(bytes  count  dtype  redop  time_us  algbw  busbw  wrong  collective  choice                 outcome       tuned
16384   4096  f32    sum       35.0   0.47   0.70      0  all_reduce  host/ring?chunk=65536  timed
16384   4096  f32    sum       41.2   0.40   0.60      0  all_reduce  host/tree              timed         *
16384   4096  f32    sum       90.0   0.18   0.27      0  all_reduce  host/two_shot          outpaced
16384   4096  f32    sum          -      -      -     12  all_reduce  host/one_shot          wrong_result
)");
}

TEST(BenchTableTest, OnlyTunedKeepsWhatIsDispatched) {
  const std::vector<DatabaseEntry> entries = {EntryForTest(4096)};
  const DispatchKey key = DispatchKey::Of(entries[0].cell.problem.cls);
  const DispatchTable tuned =
      DispatchTable::Build({{key, {{0, UINT64_MAX, IdForTest("host/ring?chunk=65536")}}}}).value();
  std::vector<DatabaseEntry> kept = OnlyTuned(entries, tuned);
  ASSERT_EQ(kept[0].cell.verdicts.size(), 1u);
  EXPECT_EQ(kept[0].cell.verdicts[0].id.text(), "host/ring?chunk=65536");
  // Calls on symmetric buffers below the smallest size measured on them run by the plain row.
  std::vector<DatabaseEntry> symmetric = entries;
  symmetric[0].cell.problem.cls.buffer_class = BufferClass::kSymmetric;
  const DispatchRow larger{DispatchKey::Of(symmetric[0].cell.problem.cls),
                           {{0, UINT64_MAX, IdForTest("host/two_shot")}},
                           16385};
  kept = OnlyTuned(symmetric, DispatchTable::Build({larger, tuned.rows()[0]}).value());
  ASSERT_EQ(kept[0].cell.verdicts.size(), 1u);
  EXPECT_EQ(kept[0].cell.verdicts[0].id.text(), "host/ring?chunk=65536");
  EXPECT_THAT(NotMeasured(kept, tuned), IsEmpty());
  // A winner of another size, which no backend lists at this one.
  const DispatchTable other =
      DispatchTable::Build({{key, {{0, UINT64_MAX, IdForTest("host/other?chunk=1")}}}}).value();
  kept = OnlyTuned(entries, other);
  EXPECT_THAT(kept[0].cell.verdicts, IsEmpty());
  EXPECT_THAT(NotMeasured(kept, other),
              ElementsAre("all_reduce sum f32 out of place at 16384 bytes was not measured: the "
                          "database has host/other?chunk=1 for it, which is not listed at this "
                          "size; without --tuned the choices are measured that are"));
  // Without a row the default runs.
  kept = OnlyTuned(entries, DispatchTable());
  ASSERT_EQ(kept[0].cell.verdicts.size(), 1u);
  EXPECT_EQ(kept[0].cell.verdicts[0].id.text(), "host/tree");
  EXPECT_EQ(CountWrong(entries), 12u);
  EXPECT_EQ(CountWrong(kept), 0u);
}

}  // namespace
}  // namespace cotune::cli
