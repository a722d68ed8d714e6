#include "core/database/tuning_journal.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "core/database/tuned_database_lock.h"
#include "core/database/tuning_journal_format.h"
#include "core/testing/database_entries.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::HasSubstr;

class TuningJournalTest : public ::testing::Test {
 protected:
  TuningJournalTest() {
    std::string name = ::testing::TempDir() + "/journal_XXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ + "/t.tdb";
    journal_path_ = path_ + ".journal";
  }
  ~TuningJournalTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<TuningJournal> Open() const {
    auto journal = TuningJournal::Open(path_, JournalKind::kTune);
    EXPECT_TRUE(journal.has_value()) << journal.error().ToText();
    return std::move(*journal);
  }
  std::string OpenError(ErrorCode code) const {
    const auto journal = TuningJournal::Open(path_, JournalKind::kTune);
    if (journal) return "opened";
    EXPECT_EQ(journal.error().code, code);
    EXPECT_FALSE(journal.error().next_step.empty());
    return journal.error().what;
  }
  void WriteBytes(std::string_view bytes) const {
    std::ofstream(journal_path_, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  std::string ReadBytes() const {
    std::ifstream file(journal_path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_;
  std::string path_;
  std::string journal_path_;
};

TEST_F(TuningJournalTest, ReplaysWhatWasAppendedUntilCleared) {
  {
    const auto journal = Open();
    EXPECT_TRUE(journal->replayed().empty());
    EXPECT_FALSE(std::filesystem::exists(journal_path_));
    ASSERT_TRUE(journal->Append(EntryForTest(8)).has_value());
    ASSERT_TRUE(journal->Append(EntryForTest(16)).has_value());
  }
  {
    const auto journal = Open();
    EXPECT_EQ(journal->replayed(), (std::vector<DatabaseEntry>{EntryForTest(8), EntryForTest(16)}));
    EXPECT_EQ(journal->lost_bytes(), 0u);
    ASSERT_TRUE(journal->Append(EntryForTest(32)).has_value());
  }
  {
    const auto journal = Open();
    EXPECT_EQ(journal->replayed(),
              (std::vector<DatabaseEntry>{EntryForTest(8), EntryForTest(16), EntryForTest(32)}));
    ASSERT_TRUE(journal->Clear().has_value());
    EXPECT_FALSE(std::filesystem::exists(journal_path_));
    ASSERT_TRUE(journal->Clear().has_value());  // nothing left: fine
    ASSERT_TRUE(journal->Append(EntryForTest(64)).has_value());
  }
  EXPECT_EQ(Open()->replayed(), std::vector<DatabaseEntry>{EntryForTest(64)});
  EXPECT_TRUE(std::filesystem::exists(path_ + ".lock"));
}

TEST_F(TuningJournalTest, EveryTruncationPointKeepsTheWholeRecordsAndTakesMore) {
  const std::vector<DatabaseEntry> entries = {EntryForTest(8), EntryForTest(16), EntryForTest(32)};
  std::string bytes = JournalHeader(JournalKind::kTune);
  std::vector<size_t> record_ends = {bytes.size()};
  for (const DatabaseEntry& entry : entries) {
    bytes += EncodeJournalRecord(entry);
    record_ends.push_back(bytes.size());
  }
  for (size_t length = 0; length <= bytes.size(); ++length) {
    WriteBytes(std::string_view(bytes).substr(0, length));
    std::vector<DatabaseEntry> expected;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (record_ends[i + 1] <= length) expected.push_back(entries[i]);
    }
    const size_t lost_bytes = length < record_ends[0] ? 0 : length - record_ends[expected.size()];
    {
      const auto journal = Open();
      ASSERT_EQ(journal->replayed(), expected) << length;
      ASSERT_EQ(journal->lost_bytes(), lost_bytes) << length;
      // Appending costs two syncs; at some points is enough.
      if (length % 37 != 0 && length > record_ends[0]) continue;
      ASSERT_TRUE(journal->Append(EntryForTest(64)).has_value());
    }
    expected.push_back(EntryForTest(64));
    ASSERT_EQ(Open()->replayed(), expected) << length;
    ASSERT_EQ(Open()->lost_bytes(), lost_bytes) << length;
  }
}

TEST_F(TuningJournalTest, ADamagedRecordIsLeftOutAndThoseBehindItCount) {
  const std::string header = JournalHeader(JournalKind::kTune);
  const std::string damaged = EncodeJournalRecord(EntryForTest(16));
  for (size_t at = 0; at < damaged.size(); ++at) {
    for (const char flips : {'\x01', '\x20', '\xFF'}) {
      std::string middle = damaged;
      middle[at] ^= flips;
      const std::string bytes = header + EncodeJournalRecord(EntryForTest(8)) + middle +
                                EncodeJournalRecord(EntryForTest(32));
      WriteBytes(bytes);
      const auto journal = Open();
      ASSERT_EQ(journal->replayed(),
                (std::vector<DatabaseEntry>{EntryForTest(8), EntryForTest(32)}))
          << at;
      ASSERT_EQ(journal->lost_bytes(), middle.size()) << at;
      ASSERT_EQ(ReadBytes(), bytes);
    }
  }
}

TEST_F(TuningJournalTest, AFileOfZerosBehindItsHeaderIsReadToItsEnd) {
  // As some file systems leave a file whose machine lost power.
  const std::string record = EncodeJournalRecord(EntryForTest(8));
  WriteBytes(JournalHeader(JournalKind::kTune) + std::string(1 << 20, '\0') + record);
  EXPECT_EQ(Open()->replayed(), std::vector<DatabaseEntry>{EntryForTest(8)});
  EXPECT_EQ(Open()->lost_bytes(), 1u << 20);
}

JournalAttempt AttemptForTest(const std::string& choice = "host/ring?chunk=65536") {
  return {ToText(EntryForTest(8).cell.problem.cls), 4096, choice};
}

TEST_F(TuningJournalTest, AnAttemptThatIsLeftOpenIsABlameThatIsNotCertain) {
  {
    const auto journal = Open();
    ASSERT_TRUE(journal->Begin({}));
    ASSERT_TRUE(journal->NoteAttempt(AttemptForTest("host/tree")));
    ASSERT_TRUE(journal->NoteAttempt(AttemptForTest("fake/x")));
  }
  for (size_t times = 1; times <= 2; ++times) {
    const auto journal = Open();
    EXPECT_EQ(journal->blames().size(), times - 1);
    ASSERT_TRUE(journal->Begin({}));
    EXPECT_EQ(journal->blames(),
              std::vector<JournalBlame>(times, {AttemptForTest("fake/x"), 0, ""}));
    EXPECT_FALSE(journal->blames().front().is_certain());
    ASSERT_TRUE(journal->NoteAttempt(AttemptForTest("fake/x")));
  }
}

TEST_F(TuningJournalTest, PlansThatWereBeingMadeWhenTheTuneVanishedAreBlamedOnceAChoice) {
  JournalAttempt larger = AttemptForTest("fake/x");
  larger.bytes *= 2;
  for (size_t times = 1; times <= 2; ++times) {
    {
      const auto journal = Open();
      ASSERT_TRUE(journal->Begin({}));
      EXPECT_EQ(journal->blames().size(), times - 1);
      AppendPrepare(journal_path_, {AttemptForTest("fake/done"), 0, false});
      AppendPrepare(journal_path_, {AttemptForTest("fake/x"), 0, false});
      AppendPrepare(journal_path_, {AttemptForTest("fake/done"), 1, false});
      AppendPrepare(journal_path_, {larger, 1, false});
      AppendPrepare(journal_path_, {AttemptForTest("fake/done"), 0, true});
      AppendPrepare(journal_path_, {AttemptForTest("fake/done"), 1, true});
    }
    const auto journal = Open();
    ASSERT_TRUE(journal->Begin({}));
    EXPECT_EQ(journal->blames(),
              std::vector<JournalBlame>(times, {AttemptForTest("fake/x"), 0, ""}));
    EXPECT_EQ(SuspectsOf(journal_path_),
              std::vector<JournalAttempt>(times, AttemptForTest("fake/x")));
  }
}

TEST_F(TuningJournalTest, PlansOfATuneThatSaysWhyItEndsAreNotBlamed) {
  const JournalAttempt attempt = AttemptForTest("fake/innocent");
  const std::string stop = EncodeJournalRecord(JournalAttempt());
  const std::function<void()> ends[] = {
      [&] { AppendStop(journal_path_.c_str(), stop); },
      [&] {
        AppendBlame(journal_path_.c_str(), {"c", 1, "fake/x", 1, "SIGSEGV in", "prepare"});
      }};
  for (const auto& end : ends) {
    {
      const auto journal = Open();
      ASSERT_TRUE(journal->Begin({}));
      AppendPrepare(journal_path_, {attempt, 0, false});
      end();
    }
    const auto journal = Open();
    ASSERT_TRUE(journal->Begin({}));
    for (const JournalBlame& blame : journal->blames()) EXPECT_TRUE(blame.is_certain());
    EXPECT_TRUE(SuspectsOf(journal_path_).empty());
  }
}

TEST_F(TuningJournalTest, AttemptsThatAreOverAndMeasuredCellsLeaveNothing) {
  {
    const auto journal = Open();
    ASSERT_TRUE(journal->Begin({}));
    ASSERT_TRUE(journal->NoteAttempt(AttemptForTest()));
    ASSERT_TRUE(journal->NoteAttempt({"", 0, ""}));
  }
  {
    const auto journal = Open();
    ASSERT_TRUE(journal->Begin({}));
    EXPECT_TRUE(journal->blames().empty());
    ASSERT_TRUE(journal->NoteAttempt(AttemptForTest()));
    ASSERT_TRUE(journal->Append(EntryForTest(8)));
  }
  EXPECT_TRUE(Open()->blames().empty());
  EXPECT_EQ(Open()->replayed(), std::vector<DatabaseEntry>{EntryForTest(8)});
}

TEST_F(TuningJournalTest, ABlameOfAnotherProcessIsKeptUntilItsChoiceIsMeasured) {
  const JournalAttempt attempt = AttemptForTest();
  const BlameText blame{attempt.problem_class, attempt.bytes, attempt.choice, 3,
                        "SIGSEGV in",          "launch"};
  AppendBlame(journal_path_.c_str(), blame);
  EXPECT_FALSE(std::filesystem::exists(journal_path_))
      << "only a journal that is there is added to";
  const JournalBlame known{attempt, 3, "SIGSEGV in launch"};
  {
    const auto journal = Open();
    ASSERT_TRUE(journal->Begin({}));
    ASSERT_TRUE(journal->Append(EntryForTest(16)));
    AppendBlame(journal_path_.c_str(), blame);
    AppendBlame(journal_path_.c_str(), blame);
    ASSERT_TRUE(journal->NoteAttempt(AttemptForTest("host/tree")));
  }
  {
    const auto journal = Open();
    EXPECT_EQ(journal->blames(), std::vector<JournalBlame>{known});
    EXPECT_EQ(journal->replayed(), std::vector<DatabaseEntry>{EntryForTest(16)});
    EXPECT_EQ(journal->lost_bytes(), 0u);
    ASSERT_TRUE(journal->Clear());
  }
  {
    const auto journal = Open();
    EXPECT_EQ(journal->blames(), std::vector<JournalBlame>{known})
        << "outlives the tune that saved";
    EXPECT_EQ(journal->kind(), JournalKind::kTune);
    // A cell of this class with that choice in it.
    ASSERT_TRUE(journal->Append(EntryForTest(32)));
    EXPECT_TRUE(journal->blames().empty());
  }
  EXPECT_TRUE(Open()->blames().empty());
}

TEST_F(TuningJournalTest, BlamesAreForgottenWhenTheyAreToldToBe) {
  {
    const auto journal = Open();
    ASSERT_TRUE(journal->Begin({}));
    AppendBlame(journal_path_.c_str(), {"c", 1, "fake/x", 0, "SIGSEGV in", "launch"});
  }
  const auto journal = Open();
  EXPECT_EQ(journal->blames().size(), 1u);
  journal->ForgetBlames();
  ASSERT_TRUE(journal->Clear());
  EXPECT_FALSE(std::filesystem::exists(journal_path_));
}

// A rank that is stuck outlives the others, and adds its blame when rank 0 has gone.
TEST_F(TuningJournalTest, AJournalThatWasBegunTakesABlameAfterItsWriterHasGone) {
  {
    const auto journal = Open();
    ASSERT_TRUE(journal->Begin({}));
  }
  AppendBlame(journal_path_.c_str(), {"c", 1, "fake/x", 1, "prepare", "did not return"});
  EXPECT_EQ(Open()->blames(),
            (std::vector<JournalBlame>{{{"c", 1, "fake/x"}, 1, "prepare did not return"}}));
}

TEST_F(TuningJournalTest, ABlameIsWrittenOrSaidNotToBe) {
  {
    const auto journal = Open();
    ASSERT_TRUE(journal->Begin({}));
  }
  const std::string long_name(1500, 'x');
  EXPECT_TRUE(AppendBlame(journal_path_.c_str(), {"c", 1, long_name, 1, "SIGSEGV in", "launch"}));
  const std::string endless(8000, 'x');
  EXPECT_FALSE(AppendBlame(journal_path_.c_str(), {"c", 1, endless, 1, "SIGSEGV in", "launch"}));
  EXPECT_EQ(Open()->blames(),
            (std::vector<JournalBlame>{{{"c", 1, long_name}, 1, "SIGSEGV in launch"}}));
}

// A tune that ends by the choice, as a crash of one rank and without a cause.
void EndTune(TuningJournal& journal, const std::string& journal_path, const PluginBuilds& builds,
             const std::string& choice, bool has_cause) {
  ASSERT_TRUE(journal.Begin(builds));
  const JournalAttempt attempt = AttemptForTest(choice);
  ASSERT_TRUE(journal.NoteAttempt(attempt));
  if (!has_cause) return;
  ASSERT_TRUE(AppendBlame(journal_path.c_str(), {attempt.problem_class, attempt.bytes,
                                                 attempt.choice, 1, "SIGSEGV in", "launch"}));
}

TEST_F(TuningJournalTest, ABlameIsOfTheBuildsOfItsTune) {
  const PluginBuilds old_builds = {{"fake", "aaa"}, {"host", "111"}, {"ucx", "555"}};
  const PluginBuilds new_builds = {{"fake", "bbb"}, {"host", "111"}, {"ucx", "666"}};
  const std::string both = "fake/x+host/ring";
  EndTune(*Open(), journal_path_, old_builds, "fake/x", true);
  EndTune(*Open(), journal_path_, new_builds, "fake/x", true);
  EndTune(*Open(), journal_path_, new_builds, both, false);
  JournalAttempt of_old = AttemptForTest("fake/x");
  JournalAttempt of_new = of_old;
  JournalAttempt of_both = AttemptForTest(both);
  of_old.builds = {{"fake", "aaa"}};
  of_new.builds = {{"fake", "bbb"}};
  of_both.builds = {{"fake", "bbb"}, {"host", "111"}};
  const std::vector<JournalBlame> blames = {
      {of_old, 1, "SIGSEGV in launch"}, {of_new, 1, "SIGSEGV in launch"}, {of_both, 0, ""}};
  {
    // The blame of what was left open keeps the builds of its own tune.
    const auto journal = Open();
    ASSERT_TRUE(journal->Begin(old_builds));
    EXPECT_EQ(journal->blames(), blames);
    EXPECT_TRUE(SuspectsOf(journal_path_).empty()) << "they are of the other build";
  }
  {
    const auto journal = Open();
    EXPECT_EQ(journal->blames(), blames);
    ASSERT_TRUE(journal->Begin(new_builds));
    EXPECT_EQ(SuspectsOf(journal_path_), std::vector<JournalAttempt>{of_both});
    ASSERT_TRUE(journal->Clear());
  }
  EXPECT_EQ(Open()->blames(), blames) << "each with its builds in the new file";
}

TEST_F(TuningJournalTest, NotesAfterAClearAreOfTheBuildsOfTheirTune) {
  const PluginBuilds builds = {{"fake", "aaa"}};
  {
    const auto journal = Open();
    ASSERT_TRUE(journal->Begin(builds));
    ASSERT_TRUE(journal->Clear());
    ASSERT_TRUE(journal->NoteAttempt(AttemptForTest("fake/x")));
  }
  const auto journal = Open();
  ASSERT_TRUE(journal->Begin({{"fake", "bbb"}}));
  ASSERT_EQ(journal->blames().size(), 1u);
  EXPECT_EQ(journal->blames()[0].attempt.builds, builds);
}

TEST(JournalFormatTest, OnlyABuildThatIsKnownOnBothSidesIsAnotherOne) {
  JournalAttempt attempt = AttemptForTest("fake/x+host/ring");
  EXPECT_FALSE(attempt.IsOfOtherBuild({{"fake", "aaa"}}));
  attempt.builds = {{"fake", "aaa"}, {"host", "111"}};
  EXPECT_FALSE(attempt.IsOfOtherBuild({}));
  EXPECT_FALSE(attempt.IsOfOtherBuild({{"fake", "aaa"}, {"host", "111"}, {"ucx", "5"}}));
  EXPECT_FALSE(attempt.IsOfOtherBuild({{"host", "111"}}));
  EXPECT_TRUE(attempt.IsOfOtherBuild({{"fake", "aaa"}, {"host", "222"}}));
  EXPECT_TRUE(attempt.IsOfOtherBuild({{"fake", "bbb"}}));
}

// Version 9 is the last one without builds.
TEST_F(TuningJournalTest, ABlameOfAnOldJournalIsOfNoBuild) {
  std::string header = JournalHeader(JournalKind::kTune);
  header[8] = 9;
  const JournalBlame blame{AttemptForTest("fake/x"), 1, "SIGSEGV in launch"};
  WriteBytes(header + EncodeJournalRecord(blame));
  {
    const auto journal = Open();
    EXPECT_EQ(journal->blames(), std::vector<JournalBlame>{blame});
    ASSERT_TRUE(journal->Begin({{"fake", "aaa"}}));
  }
  EXPECT_EQ(Open()->blames(), std::vector<JournalBlame>{blame});
}

TEST_F(TuningJournalTest, ALineOfBuildsWithoutANameIsRefused) {
  WriteBytes(JournalHeader(JournalKind::kTune) +
             EncodeJournalRecord(JournalBuilds{{{"fake\nhost", "aaa"}}}));
  EXPECT_EQ(OpenError(ErrorCode::kDatabase), "a record of the journal cannot be read");
}

TEST(JournalFormatTest, ABlameThatDoesNotFitIsNone) {
  const JournalBlame blame{{"all_reduce", 64, "fake/x"}, 12, "SIGSEGV in launch"};
  const BlameText text{"all_reduce", 64, "fake/x", 12, "SIGSEGV in", "launch"};
  const std::string record = EncodeJournalRecord(blame);
  std::string out(record.size(), ' ');
  EXPECT_EQ(EncodeBlameRecord(text, out), record.size());
  EXPECT_EQ(out, record);
  for (size_t size = 0; size < record.size(); ++size) {
    EXPECT_EQ(EncodeBlameRecord(text, std::span(out).first(size)), 0u) << size;
  }
}

TEST_F(TuningJournalTest, ForeignAndNewerFilesAreRefusedAndLeftAlone) {
  WriteBytes("this is somebody's file");
  EXPECT_EQ(OpenError(ErrorCode::kDatabase), "not a cotune journal");
  EXPECT_EQ(ReadBytes(), "this is somebody's file");
  std::string newer = JournalHeader(JournalKind::kTune);
  newer[8] = 11;
  WriteBytes(newer + "more");
  EXPECT_EQ(OpenError(ErrorCode::kDatabase),
            "the journal has version 11, this cotune reads 5 to 10");
  WriteBytes("X");
  EXPECT_EQ(OpenError(ErrorCode::kDatabase), "not a cotune journal");
  std::filesystem::remove(journal_path_);
  ASSERT_EQ(symlink("/nowhere/at/all", journal_path_.c_str()), 0);
  EXPECT_EQ(OpenError(ErrorCode::kDatabase), "the path of the journal is a symbolic link");
}

TEST_F(TuningJournalTest, ASecondTuneIsToldWhoHoldsTheDatabase) {
  const auto journal = Open();
  EXPECT_EQ(OpenError(ErrorCode::kDatabase),
            "the tuned database is in use by process " + std::to_string(getpid()));
}

TEST_F(TuningJournalTest, TheLockFileStaysAndTheNextTuneTakesIt) {
  Open();
  EXPECT_TRUE(std::filesystem::exists(path_ + ".lock"));
  EXPECT_EQ(std::filesystem::file_size(path_ + ".lock"), 0u);
  Open();
}

TEST_F(TuningJournalTest, AProcessIdThatIsNoLongerAliveIsNotNamed) {
  const DatabaseLock lock = DatabaseLock::Acquire(path_).value();
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  std::ofstream(path_ + ".lock") << child << "\n";
  EXPECT_EQ(OpenError(ErrorCode::kDatabase), "the tuned database is in use by another process");
}

TEST_F(TuningJournalTest, TheLockDiesWithItsProcessAndWhatItAppendedStays) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto journal = TuningJournal::Open(path_, JournalKind::kTune);
    const bool appended = journal && (*journal)->Append(EntryForTest(8)).has_value();
    const char byte = appended ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    while (true) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  EXPECT_EQ(OpenError(ErrorCode::kDatabase),
            "the tuned database is in use by process " + std::to_string(child));
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_EQ(Open()->replayed(), std::vector<DatabaseEntry>{EntryForTest(8)});
  close(ready[0]);
  close(ready[1]);
}

TEST_F(TuningJournalTest, AFailedAppendLeavesTheRecordsBefore) {
  const auto entry_bytes = EncodeJournalRecord(EntryForTest(8)).size();
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    auto journal = TuningJournal::Open(path_, JournalKind::kTune);
    if (!journal || !(*journal)->Append(EntryForTest(8))) _exit(2);
    // Room for half a record more.
    const rlim_t room = JournalHeader(JournalKind::kTune).size() + entry_bytes * 3 / 2;
    const rlimit small{room, RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &small) != 0) _exit(3);
    const Status failed = (*journal)->Append(EntryForTest(16));
    if (failed || failed.error().code != ErrorCode::kEnvironment) _exit(4);
    // The journal does not know what else is kept.
    if (failed.error().next_step != "check free space and permissions") _exit(7);
    const rlimit large{RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &large) != 0) _exit(5);
    _exit((*journal)->Append(EntryForTest(32)) ? 0 : 6);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(Open()->replayed(), (std::vector<DatabaseEntry>{EntryForTest(8), EntryForTest(32)}));
}

// Between a write of rank 0 that fails and its next one.
TEST_F(TuningJournalTest, WhatAnotherRankAddsBehindAFailedAppendIsKept) {
  const JournalAttempt attempt = AttemptForTest("fake/x");
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    auto journal = TuningJournal::Open(path_, JournalKind::kTune);
    if (!journal || !(*journal)->Begin({})) _exit(2);
    const rlimit small{JournalHeader(JournalKind::kTune).size() + 20, RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &small) != 0) _exit(3);
    if ((*journal)->Append(EntryForTest(8))) _exit(4);
    const rlimit large{RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &large) != 0) _exit(5);
    AppendBlame(journal_path_.c_str(),
                {attempt.problem_class, attempt.bytes, attempt.choice, 1, "SIGSEGV in", "launch"});
    _exit((*journal)->Append(EntryForTest(32)) ? 0 : 6);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0);
  const auto journal = Open();
  EXPECT_EQ(journal->lost_bytes(), 20u);
  EXPECT_EQ(journal->replayed(), std::vector<DatabaseEntry>{EntryForTest(32)});
  EXPECT_EQ(journal->blames(), (std::vector<JournalBlame>{{attempt, 1, "SIGSEGV in launch"}}));
}

// A rank of the last tune that is about to end adds to the file while the next tune reads it.
TEST_F(TuningJournalTest, WhatAnotherRankAddsAfterTheNextTuneHasReadIsKept) {
  WriteBytes(JournalHeader(JournalKind::kTune) + EncodeJournalRecord(EntryForTest(8)) + "cut off");
  {
    const auto journal = Open();
    AppendBlame(journal_path_.c_str(), {"c", 1, "fake/x", 1, "SIGSEGV in", "launch"});
    ASSERT_TRUE(journal->Append(EntryForTest(16)));
  }
  const auto journal = Open();
  EXPECT_EQ(journal->lost_bytes(), 7u);
  EXPECT_EQ(journal->replayed(), (std::vector<DatabaseEntry>{EntryForTest(8), EntryForTest(16)}));
  EXPECT_EQ(journal->blames(),
            (std::vector<JournalBlame>{{{"c", 1, "fake/x"}, 1, "SIGSEGV in launch"}}));
}

TEST_F(TuningJournalTest, AFolderThatDoesNotExistIsNamed) {
  path_ = folder_ + "/absent/t.tdb";
  const auto journal = TuningJournal::Open(path_, JournalKind::kTune);
  ASSERT_FALSE(journal.has_value());
  EXPECT_EQ(journal.error().code, ErrorCode::kEnvironment);
  EXPECT_EQ(journal.error().ToText(), "the folder of the tuned database is not there (" + folder_ +
                                          "/absent); make it, or name another");
}

}  // namespace
}  // namespace cotune
