#include "integration/database_cells.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/parallel_for.h"
#include "core/testing/database_entries.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Tunes of one machine by builds of the plugins host and tiny.
class DatabaseCellsTest : public ::testing::Test {
 protected:
  DatabaseCellsTest() {
    std::string name = ::testing::TempDir() + "/cells_XXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ + "/t.tdb";
  }
  ~DatabaseCellsTest() override { std::filesystem::remove_all(folder_); }

  static Fingerprint MachineWith(const PluginBuilds& builds) {
    Fingerprint machine = EntryForTest(8).fingerprint;
    machine.backends["tiny"] = "1.0.0";
    machine.builds = builds;
    return machine;
  }
  std::unique_ptr<DatabaseCells> Open(const Fingerprint& here) const {
    auto cells = std::make_unique<DatabaseCells>(
        DatabaseCells::Place{.path = path_, .force = false, .cotune_version = "0.1.0"}, here);
    const Status opened = cells->Open();
    EXPECT_TRUE(opened) << opened.error().ToText();
    return cells;
  }
  // A tune of these counts; without `saves` it is interrupted.
  void Measure(const Fingerprint& here, const std::vector<uint64_t>& counts, bool saves) const {
    const auto cells = Open(here);
    cells->Begin();
    for (const uint64_t count : counts) {
      const DatabaseEntry entry = EntryForTest(count);
      ASSERT_TRUE(cells->Record(entry.cell, entry.winner));
    }
    if (saves) {
      ASSERT_TRUE(cells->Save().value());
    }
  }
  std::vector<Fingerprint> SavedFingerprints() const {
    std::vector<Fingerprint> fingerprints;
    const TunedDatabase saved = TunedDatabase::Load(path_).value();
    for (const DatabaseRow& row : saved.rows()) fingerprints.push_back(*row.fingerprint);
    return fingerprints;
  }
  // A tune that ends by the choice, in a crash that is noted or without a cause.
  void EndTune(const Fingerprint& here, const std::string& choice, bool has_cause) const {
    const auto cells = Open(here);
    cells->Begin();
    const ChoiceId id = IdForTest(choice);
    cells->NoteAttempt(ProblemOf(8), &id);
    if (!has_cause) return;
    ASSERT_TRUE(AppendBlame((path_ + ".journal").c_str(),
                            {ToText(ProblemOf(8).cls), 32, choice, 1, "SIGSEGV in", "launch"}));
  }
  std::vector<std::string> LeftOut(const Fingerprint& here) const {
    std::vector<std::string> choices;
    for (const LeftOutChoice& each : Open(here)->Begin()) choices.push_back(each.choice);
    return choices;
  }
  static Problem ProblemOf(uint64_t count) { return EntryForTest(count).cell.problem; }

  std::string folder_;
  std::string path_;
  const Fingerprint old_ = MachineWith({{"host", "111"}, {"tiny", "aaa"}});
  const Fingerprint rebuilt_ = MachineWith({{"host", "111"}, {"tiny", "bbb"}});
};

TEST_F(DatabaseCellsTest, SeveralThreadsFindCellsAtOnce) {
  std::vector<uint64_t> counts;
  for (uint64_t count = 1; count <= 64; ++count) counts.push_back(count);
  Measure(old_, counts, true);
  const auto cells = Open(old_);
  ASSERT_TRUE(cells->FindsOnAnyThread());
  std::vector<std::optional<CellResult>> found(counts.size());
  ParallelFor(counts.size(), 4, [&](size_t i) { found[i] = cells->Find(ProblemOf(counts[i])); });
  for (size_t i = 0; i < counts.size(); ++i) {
    ASSERT_TRUE(found[i].has_value()) << counts[i];
    EXPECT_EQ(*found[i], EntryForTest(counts[i]).cell);
  }
}

// The only text about what is kept is that of WhatIsKept: an error beside it cannot contradict it.
TEST_F(DatabaseCellsTest, AFullDiskGivesOneTextAboutWhatIsKept) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const auto cells = Open(old_);
    cells->Begin();
    const rlimit full{0, 0};
    if (setrlimit(RLIMIT_FSIZE, &full) != 0) _exit(2);
    const DatabaseEntry entry = EntryForTest(8);
    const Status recorded = cells->Record(entry.cell, entry.winner);
    if (recorded || recorded.error().ToText().find("kept") != std::string::npos) _exit(3);
    const Result<bool> saved = cells->Save();
    if (saved || saved.error().ToText().find("kept") != std::string::npos) _exit(4);
    _exit(cells->WhatIsKept() == "nothing of what was measured is kept" ? 0 : 5);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(DatabaseCellsTest, ATuneThatIsThereForItsCellsEndsAtAFullDisk) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    DatabaseCells cells({.path = path_, .cotune_version = "0.1.0", .ends_unless_kept = true}, old_);
    if (!cells.Open()) _exit(2);
    cells.Begin();
    const DatabaseEntry kept = EntryForTest(8);
    if (!cells.Record(kept.cell, kept.winner) || cells.why_not_kept()) _exit(3);
    const rlimit full{0, 0};
    if (setrlimit(RLIMIT_FSIZE, &full) != 0) _exit(4);
    const DatabaseEntry lost = EntryForTest(16);
    // The error that ends the tune has it.
    if (!cells.Record(lost.cell, lost.winner) || !cells.why_not_kept()) _exit(5);
    const std::string text = cells.why_not_kept()->ToText();
    _exit(text.find("1 of 2 measured cells are kept in") != std::string::npos ? 0 : 6);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(DatabaseCellsTest, CellsOfAnotherBuildAreMeasuredAgainAndReplaced) {
  Measure(old_, {8, 16, 32}, true);
  EXPECT_TRUE(Open(old_)->Find(ProblemOf(8)));
  const std::vector<Problem> problems = {ProblemOf(8), ProblemOf(16), ProblemOf(64)};
  {
    const auto cells = Open(rebuilt_);
    EXPECT_FALSE(cells->Find(ProblemOf(8)));
    EXPECT_THAT(cells->WhatIsMeasuredAgain(problems),
                ElementsAre("2 cells of the database were measured with another build of plugin "
                            "tiny (version 1.0.0): measured again"));
  }
  Measure(rebuilt_, {8, 16}, true);
  EXPECT_TRUE(Open(rebuilt_)->Find(ProblemOf(8)));
  EXPECT_THAT(Open(rebuilt_)->WhatIsMeasuredAgain(problems), IsEmpty());
  EXPECT_THAT(SavedFingerprints(), ElementsAre(old_, rebuilt_, rebuilt_))
      << "of the cell that was not measured the old row stays";
}

TEST_F(DatabaseCellsTest, CellsOfAnUnknownBuildAreMeasuredAgain) {
  const Fingerprint unknown = MachineWith({});
  Measure(unknown, {8}, true);
  EXPECT_TRUE(Open(unknown)->Find(ProblemOf(8))) << "tables of the process have no build";
  const auto cells = Open(old_);
  EXPECT_FALSE(cells->Find(ProblemOf(8)));
  EXPECT_THAT(cells->WhatIsMeasuredAgain({ProblemOf(8)}),
              ElementsAre("1 cell of the database was measured with unknown builds of plugins host "
                          "(version 1.0), tiny (version 1.0.0): measured again"));
}

TEST_F(DatabaseCellsTest, TunesThatWereInterruptedLeaveOneRowOfACell) {
  Measure(old_, {8, 16}, false);
  Measure(rebuilt_, {8}, false);
  const Fingerprint newest = MachineWith({{"host", "111"}, {"tiny", "ccc"}});
  Measure(newest, {32}, true);
  EXPECT_THAT(SavedFingerprints(), ElementsAre(old_, rebuilt_, newest));
  Measure(newest, {8, 16}, true);
  EXPECT_THAT(SavedFingerprints(), ElementsAre(newest, newest, newest));
}

TEST_F(DatabaseCellsTest, ACellThatIsInterruptedAndMeasuredByTheNextBuildHasTheNewRow) {
  Measure(old_, {8}, false);
  Measure(rebuilt_, {8}, true);
  EXPECT_THAT(SavedFingerprints(), ElementsAre(rebuilt_));
}

TEST_F(DatabaseCellsTest, AChoiceIsLeftOutOnlyWithTheBuildThatWasBlamed) {
  EndTune(old_, "tiny/x", true);
  EXPECT_THAT(LeftOut(rebuilt_), IsEmpty());
  EXPECT_THAT(LeftOut(old_), ElementsAre("tiny/x"));
  EndTune(rebuilt_, "tiny/x", true);
  const std::vector<LeftOutChoice> left_out = Open(rebuilt_)->Begin();
  ASSERT_EQ(left_out.size(), 1u) << "once, although two builds were blamed";
  EXPECT_THAT(left_out[0].reason, HasSubstr("it has ended a tune at 32 bytes: SIGSEGV in launch on "
                                            "rank 1; use --force or remove " +
                                            path_ + ".journal to try it again"));
}

TEST_F(DatabaseCellsTest, AChoiceOfSeveralBackendsIsTriedAgainWhenOneOfThemIsRebuilt) {
  EndTune(old_, "host/ring+tiny/x", true);
  EndTune(old_, "host/ring", true);
  EXPECT_THAT(LeftOut(old_), ElementsAre("host/ring+tiny/x", "host/ring"));
  EXPECT_THAT(LeftOut(rebuilt_), ElementsAre("host/ring"));
}

TEST_F(DatabaseCellsTest, EndsWithoutACauseCountByBuild) {
  EndTune(old_, "tiny/x", false);
  EndTune(rebuilt_, "tiny/x", false);
  EXPECT_THAT(LeftOut(rebuilt_), IsEmpty()) << "once for each build";
  EndTune(rebuilt_, "tiny/x", false);
  EXPECT_THAT(LeftOut(rebuilt_), ElementsAre("tiny/x"));
  EXPECT_THAT(LeftOut(old_), IsEmpty());
}

TEST_F(DatabaseCellsTest, ABlameWithoutABuildHoldsForAnyBuild) {
  EndTune(MachineWith({}), "tiny/x", true);
  EXPECT_THAT(LeftOut(old_), ElementsAre("tiny/x"));
  EXPECT_THAT(LeftOut(rebuilt_), ElementsAre("tiny/x"));
}

TEST_F(DatabaseCellsTest, AChoiceThatCannotRunHereIsNotSaidToBeLeftOut) {
  EndTune(old_, "tiny/x", true);
  Fingerprint without = old_;
  without.backends.erase("tiny");
  without.builds.erase("tiny");
  EXPECT_THAT(LeftOut(without), IsEmpty());
  EXPECT_THAT(LeftOut(old_), ElementsAre("tiny/x")) << "the blame is kept";
}

}  // namespace
}  // namespace cotune
