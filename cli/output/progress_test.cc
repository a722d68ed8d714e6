#include "cli/output/progress.h"

#include <string>
#include <utility>

#include "core/problem/program.h"
#include "core/problem/program_graph.h"
#include "core/testing/database_entries.h"
#include "gtest/gtest.h"

namespace cotune::cli {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class ManualClock final : public Clock {
 public:
  int64_t now_ns() const override { return time_ns; }
  int64_t time_ns = 100 * kSecond;
};

TunePlan Plan() {
  TunePlan plan;
  plan.nodes = 1;
  plan.cells = 5;
  plan.known_cells = 1;
  plan.choices_to_measure = 48;
  plan.refusals = 3;
  plan.estimated_ns = 40 * kSecond;
  plan.buffer_bytes_per_rank = 8 << 20;
  plan.workspace_bytes_per_rank = 1 << 20;
  return plan;
}

TEST(ProgressTest, PlanSaysHowMuchThereIs) {
  EXPECT_EQ(PlanText(Plan(), "x.tdb"),
            "4 cells to measure, 1 known from x.tdb: 48 choices (3 refused), about 40 s, 9.0 MiB "
            "per rank");
  TunePlan on_gpus = Plan();
  on_gpus.group_bytes_per_rank = 230 << 20;
  EXPECT_THAT(PlanText(on_gpus, "x.tdb"),
              testing::EndsWith(", 9.0 MiB per rank beside 230.0 MiB that the backends hold"));
  TunePlan known;
  known.cells = known.known_cells = 35;
  EXPECT_EQ(PlanText(known, "x.tdb"), "0 cells to measure, 35 known from x.tdb");
  TunePlan fresh = Plan();
  fresh.cells = 1;
  fresh.known_cells = 0;
  EXPECT_TRUE(PlanText(fresh, "x.tdb").starts_with("1 cell to measure: 48 choices"));
}

TEST(ProgressTest, ALineNamesEachReductionButSums) {
  DatabaseEntry entry = EntryForTest(256);
  entry.cell.problem.cls.reduction = Reduction::kMax;
  ProgressState state;
  state.FinishCell(0, 1, entry.cell, entry.winner, 1);
  EXPECT_TRUE(state.last_done_text().starts_with("[1/1] all_reduce max f32 1K: "))
      << state.last_done_text();
}

TEST(ProgressTest, LineShowsShareCountTimeLeftCellAndLastWinner) {
  const DatabaseEntry entry = EntryForTest(256);
  ProgressState state;
  state.Begin(Plan(), 0);
  state.StartCell(0, 4, entry.cell.problem);
  EXPECT_EQ(state.Line(10 * kSecond, 200), "[ 0 %  0/4  ETA 0:30 ] all_reduce f32 1K");
  state.FinishCell(0, 4, entry.cell, entry.winner, 12 * kSecond);
  EXPECT_EQ(state.last_done_text(),
            "[1/4] all_reduce f32 1K: host/ring?chunk=65536 35.0 us, 1.18x the default");
  Problem next = entry.cell.problem;
  next.count = 1024;
  state.StartCell(1, 4, next);
  EXPECT_EQ(state.Line(12 * kSecond, 200),
            "[ 25 %  1/4  ETA 0:36 ] all_reduce f32 4K  last best host/ring?chunk=65536 35.0 us");
  EXPECT_EQ(state.Line(12 * kSecond, 20), "[ 25 %  1/4  ETA 0:3");
}

TEST(ProgressTest, ADefaultThatWinsIsCalledSo) {
  DatabaseEntry entry = EntryForTest(256);
  entry.winner.id = IdForTest("host/tree");
  ProgressState state;
  state.FinishCell(0, 1, entry.cell, entry.winner, 1);
  EXPECT_EQ(state.last_done_text(), "[1/1] all_reduce f32 1K: host/tree 35.0 us, the default");
}

TEST(ProgressTest, CellsOfProgramsAreNamedByProgramAndRows) {
  const auto bound = [](const std::string& text) {
    Result<ProgramGraph> graph = ProgramGraph::Parse(text);
    EXPECT_TRUE(graph) << graph.error().ToText();
    return *Program::Bind(std::move(*graph), {MemoryKind::kHost, 2, 2, BufferClass::kPlain});
  };
  const Program rows = bound(
      "program linear\n%x = input bf16 [R, 64]\n%s = all_reduce sum %x\n%y = relu %s\nreturn %y\n");
  const Program one = bound(
      "program fixed\n%x = input bf16 [1, 64]\n%s = all_reduce sum %x\n%y = relu %s\nreturn %y\n");
  DatabaseEntry entry = EntryForTest(256);
  ProgressState state;
  state.set_programs({rows, one});
  entry.cell.problem = rows.ProblemAtRows(64, 0);
  state.FinishCell(0, 3, entry.cell, entry.winner, 1);
  EXPECT_THAT(state.last_done_text(), testing::StartsWith("[1/3] program linear, 64 rows: host/"));
  state.StartCell(1, 3, rows.ProblemAtRows(1, 0));
  EXPECT_THAT(state.Line(1, 200), testing::HasSubstr("] program linear, 1 row  last best"));
  entry.cell.problem = one.ProblemAtRows(1, 0);
  state.FinishCell(1, 3, entry.cell, entry.winner, 1);
  EXPECT_THAT(state.last_done_text(), testing::StartsWith("[2/3] program fixed: host/"));
}

// Runs one cell through a Progress with these options.
std::string Shown(bool redraw, bool quiet, bool verbose) {
  Progress::Options options;
  options.redraw = redraw;
  options.quiet = quiet;
  options.verbose = verbose;
  options.columns = 41;
  std::string shown;
  ManualClock clock;
  const DatabaseEntry entry = EntryForTest(256);
  options.database = "x.tdb";
  Progress progress(clock, options, [&](std::string_view text) { shown += text; });
  MarkStage(progress, Stage::kChoices);
  progress.OnPlan(Plan());
  progress.OnCellStart(0, 4, entry.cell.problem);
  MarkStage(progress, Stage::kBenchmark);
  progress.OnCellDone(0, 4, entry.cell, entry.winner);
  EmitLine(progress, Severity::kWarning, "late");
  progress.Clear();
  EXPECT_EQ(progress.warnings(), 1);
  return shown;
}

TEST(ProgressTest, APipeGetsPlainLines) {
  EXPECT_EQ(Shown(false, false, false),
            "4 cells to measure, 1 known from x.tdb: 48 choices (3 refused), about 40 s, 9.0 MiB "
            "per rank\n"
            "[1/4] all_reduce f32 1K: host/ring?chunk=65536 35.0 us, 1.18x the default\n"
            "cotune: warning: late\n");
}

TEST(ProgressTest, ATerminalGetsOneRedrawnLine) {
  const std::string shown = Shown(true, false, false);
  EXPECT_EQ(shown,
            "4 cells to measure, 1 known from x.tdb: 48 choices (3 refused), about 40 s, 9.0 MiB "
            "per rank\n"
            "\r\x1b[K[ 0 %  0/4  ETA 0:40 ] all_reduce f32 1K"
            "\r\x1b[K[ 25 %  1/4  ETA 0:00 ] all_reduce f32 1"
            "\r\x1b[Kcotune: warning: late\n");
}

TEST(ProgressTest, QuietKeepsWarningsOnlyAndVerboseNamesStages) {
  EXPECT_EQ(Shown(false, true, false), "cotune: warning: late\n");
  EXPECT_TRUE(Shown(false, false, true).starts_with("stage choices\n4 cells"));
  EXPECT_EQ(Shown(false, false, true).find("benchmark"), std::string::npos);
}

TEST(ProgressTest, WarningsOfRefusedCellsAreHiddenOnRequestUnlessVerbose) {
  const auto shown = [](bool hides, bool verbose) {
    std::string text;
    ManualClock clock;
    Progress progress(clock, {.verbose = verbose, .hides_refused_cells = hides, .database = ""},
                      [&](std::string_view line) { text += line; });
    EmitRefusedCells(progress, "refused");
    EmitLine(progress, Severity::kWarning, "no choice could be timed (all_reduce): it failed");
    return text;
  };
  const std::string failed = "cotune: warning: no choice could be timed (all_reduce): it failed\n";
  EXPECT_EQ(shown(true, false), failed);
  EXPECT_EQ(shown(true, true), "cotune: warning: refused\n" + failed);
  EXPECT_EQ(shown(false, false), "cotune: warning: refused\n" + failed);
}

}  // namespace
}  // namespace cotune::cli
