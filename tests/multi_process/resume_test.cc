// The tuned database across processes: a tune that ends early goes on, a second one keeps out, and
// nobody measures twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "core/database/tuned_database.h"
#include "core/database/tuning_journal.h"
#include "fmt/format.h"
#include "tests/multi_process/testing/rank_body.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kPatienceNs = 120 * kSecondNs;
constexpr int kCells = 6;

JobScript SixCells(const PrivateFolder& folder) {
  JobScript script = DefaultScript(folder);
  script.collectives = {Collective::kAllReduce, Collective::kBroadcast};
  script.sizes_bytes = {256, 4096, 65536};
  script.database_path = folder.path() + "/tuned.db";
  script.calls = 0;
  return script;
}

// Cells that an interrupted tune has left in its journal.
int JournalCells(const JobScript& script) {
  const auto journal = TuningJournal::Open(script.database_path, JournalKind::kTune);
  return journal ? static_cast<int>((*journal)->replayed().size()) : -1;
}

// Both ranks end well; all of them measured and knew these numbers of cells.
void ExpectOutcome(RankProcesses& ranks, int measured, int known) {
  ASSERT_TRUE(ranks.WaitForEnd({0, 1}, kPatienceNs)) << ranks.Transcript();
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks.ExitOf(rank), 0) << ranks.Transcript();
    EXPECT_THAT(
        ranks.LinesOf(rank, "outcome "),
        ElementsAre(fmt::format("committed=true measured={} known={} late=", measured, known)));
  }
}

std::string BytesOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The file's entries are of a machine whose clock ran ahead.
TEST(Database, ForceReplacesWhateverTheClockSays) {
  constexpr int64_t kFarAheadUnixS = 32'503'680'000;  // the year 3000
  const PrivateFolder folder;
  JobScript script = SixCells(folder);
  RankProcesses first;
  StartJob(first, script);
  ExpectOutcome(first, kCells, 0);
  const Result<TunedDatabase> database = TunedDatabase::Load(script.database_path);
  ASSERT_TRUE(database) << database.error().ToText();
  TunedDatabase ahead;
  std::vector<DatabaseEntry> entries = database->entries().value();
  for (DatabaseEntry& entry : entries) {
    entry.measured_unix_s = kFarAheadUnixS;
    ahead.Put(std::move(entry));
  }
  ASSERT_TRUE(ahead.Save(script.database_path));

  script.force = true;
  RankProcesses forced;
  StartJob(forced, script);
  ExpectOutcome(forced, kCells, 0);
  const Result<TunedDatabase> after = TunedDatabase::Load(script.database_path);
  ASSERT_TRUE(after) << after.error().ToText();
  EXPECT_EQ(after->size(), static_cast<size_t>(kCells));
  for (const DatabaseRow& row : after->rows()) EXPECT_LT(row.measured_unix_s, kFarAheadUnixS);
}

TEST(Database, OfAFinishedTuneLeavesNothingToMeasure) {
  const PrivateFolder folder;
  const JobScript script = SixCells(folder);
  RankProcesses first;
  StartJob(first, script);
  ExpectOutcome(first, kCells, 0);
  const std::string bytes = BytesOf(script.database_path);
  const Result<TunedDatabase> database = TunedDatabase::Load(script.database_path);
  ASSERT_TRUE(database) << database.error().ToText();
  EXPECT_EQ(database->size(), static_cast<size_t>(kCells));

  RankProcesses second;
  StartJob(second, script);
  ExpectOutcome(second, 0, kCells);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(second.LinesOf(rank, "table "), first.LinesOf(0, "table "));
    EXPECT_EQ(second.LinesOf(rank, "winner "), first.LinesOf(0, "winner "));
    EXPECT_THAT(second.LinesOf(rank, "cell done"), SizeIs(0));
  }
  EXPECT_EQ(BytesOf(script.database_path), bytes);
}

TEST(Database, IsMeasuredAnewByForce) {
  const PrivateFolder folder;
  JobScript script = SixCells(folder);
  script.sizes_bytes = {1024};
  RankProcesses first;
  StartJob(first, script);
  ExpectOutcome(first, 2, 0);
  script.force = true;
  RankProcesses second;
  StartJob(second, script);
  ExpectOutcome(second, 2, 0);
}

TEST(Database, GrowsByWhatIsNew) {
  const PrivateFolder folder;
  JobScript script = SixCells(folder);
  RankProcesses first;
  StartJob(first, script);
  ExpectOutcome(first, kCells, 0);
  script.sizes_bytes.push_back(1 << 20);
  RankProcesses second;
  StartJob(second, script);
  ExpectOutcome(second, 2, kCells);
}

// Killed without warning after `cells` cells were reported.
void KillInTheMiddle(const JobScript& script, size_t victim, int cells) {
  RankProcesses ranks;
  StartJob(ranks, script);
  ASSERT_TRUE(ranks.WaitForLine(0, fmt::format("cell done {}", cells - 1), kPatienceNs))
      << ranks.Transcript();
  ranks.Signal(victim, SIGKILL);
  ASSERT_TRUE(ranks.WaitForEnd({0, 1}, kPatienceNs)) << ranks.Transcript();
  EXPECT_EQ(ranks.ExitOf(victim), -SIGKILL);
  EXPECT_EQ(ranks.ExitOf(1 - victim), 5) << ranks.Transcript();
  EXPECT_THAT(ranks.LinesOf(1 - victim, "error "),
              ElementsAre(HasSubstr(fmt::format("rank_lost ranks={} ", victim))));
}

class Killed : public ::testing::TestWithParam<size_t> {};

TEST_P(Killed, TuneGoesOnWhereItWas) {
  const PrivateFolder folder;
  const JobScript script = SixCells(folder);
  constexpr int kReported = 2;
  ASSERT_NO_FATAL_FAILURE(KillInTheMiddle(script, GetParam(), kReported));
  EXPECT_FALSE(TunedDatabase::Load(script.database_path)) << "nothing was committed yet";
  const int kept = JournalCells(script);
  EXPECT_GE(kept, kReported) << "a cell that was done was lost";
  EXPECT_LT(kept, kCells);

  RankProcesses resumed;
  StartJob(resumed, script);
  ExpectOutcome(resumed, kCells - kept, kept);
  const Result<TunedDatabase> database = TunedDatabase::Load(script.database_path);
  ASSERT_TRUE(database) << database.error().ToText();
  EXPECT_EQ(database->size(), static_cast<size_t>(kCells));
  EXPECT_EQ(JournalCells(script), 0);
}

INSTANTIATE_TEST_SUITE_P(Victims, Killed, ::testing::Values(0, 1));

TEST(Database, ForceMeasuresAnewWhatATuneWithoutForceHadBegun) {
  const PrivateFolder folder;
  JobScript script = SixCells(folder);
  ASSERT_NO_FATAL_FAILURE(KillInTheMiddle(script, 1, 2));
  const int kept = JournalCells(script);
  ASSERT_GE(kept, 2);
  script.force = true;
  // Nothing of it is lost when the forced tune ends early too, and that one's own cells count.
  ASSERT_NO_FATAL_FAILURE(KillInTheMiddle(script, 1, 1));
  const Result<TunedDatabase> database = TunedDatabase::Load(script.database_path);
  ASSERT_TRUE(database) << database.error().ToText();
  EXPECT_EQ(database->size(), static_cast<size_t>(kept));
  const int again = JournalCells(script);
  ASSERT_GE(again, 1);
  ASSERT_LT(again, kCells);
  RankProcesses resumed;
  StartJob(resumed, script);
  ExpectOutcome(resumed, kCells - again, again);
}

class Interrupted : public ::testing::TestWithParam<int> {};

TEST_P(Interrupted, TuneKeepsWhatItHas) {
  const PrivateFolder folder;
  const JobScript script = SixCells(folder);
  RankProcesses ranks;
  StartJob(ranks, script, [](int rank, JobScript& own) {
    if (rank == GetParam()) own.interrupt_after_cells = 2;
  });
  ASSERT_TRUE(ranks.WaitForEnd({0, 1}, kPatienceNs)) << ranks.Transcript();
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks.ExitOf(rank), 130) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "error "), ElementsAre(HasSubstr("interrupted")));
    EXPECT_THAT(ranks.LinesOf(rank, "cell done "), SizeIs(2));
  }
  EXPECT_EQ(JournalCells(script), 2);
  RankProcesses resumed;
  StartJob(resumed, script);
  ExpectOutcome(resumed, kCells - 2, 2);
}

INSTANTIATE_TEST_SUITE_P(Ranks, Interrupted, ::testing::Values(0, 1));

TEST(Database, IsForOneTuneAtATime) {
  const PrivateFolder folder;
  const PrivateFolder other_folder;
  JobScript script = SixCells(folder);
  RankProcesses first;
  JobScript pausing = script;
  pausing.pauses_after_first_cell = true;
  StartJob(first, pausing);
  ASSERT_TRUE(first.WaitForLine(0, "cell done 0", kPatienceNs)) << first.Transcript();

  RankProcesses second;
  script.folder = other_folder.path();  // its own control channel, the same database
  StartJob(second, script);
  ASSERT_TRUE(second.WaitForEnd({0, 1}, kPatienceNs)) << second.Transcript();
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(second.ExitOf(rank), 7) << second.Transcript();
    EXPECT_THAT(second.LinesOf(rank, "error "),
                AllOf(SizeIs(1), Each(HasSubstr(script.database_path))));
  }
  first.Say(0);
  ExpectOutcome(first, kCells, 0);
  const Result<TunedDatabase> database = TunedDatabase::Load(script.database_path);
  ASSERT_TRUE(database) << database.error().ToText();
  EXPECT_EQ(database->size(), static_cast<size_t>(kCells));
}

TEST(Database, ThatIsCorruptEndsEveryRankAndStaysAsItIs) {
  const PrivateFolder folder;
  const JobScript script = SixCells(folder);
  std::ofstream(script.database_path) << "this is no database";
  const std::string before = BytesOf(script.database_path);
  RankProcesses ranks;
  StartJob(ranks, script);
  ASSERT_TRUE(ranks.WaitForEnd({0, 1}, kPatienceNs)) << ranks.Transcript();
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks.ExitOf(rank), 7) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "error "),
                AllOf(SizeIs(1), Each(HasSubstr(script.database_path))));
    EXPECT_THAT(ranks.LinesOf(rank, "cell done"), SizeIs(0));
  }
  EXPECT_EQ(BytesOf(script.database_path), before);
}

TEST(Database, ThatCannotBeWrittenEndsEveryRank) {
  const PrivateFolder folder;
  JobScript script = SixCells(folder);
  script.database_path = folder.path() + "/missing/tuned.db";
  RankProcesses ranks;
  StartJob(ranks, script);
  ASSERT_TRUE(ranks.WaitForEnd({0, 1}, kPatienceNs)) << ranks.Transcript();
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(ranks.ExitOf(rank), 3) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank, "error "), AllOf(SizeIs(1), Each(HasSubstr(folder.path()))));
  }
}

}  // namespace
}  // namespace cotune
