#include "integration/missing_database.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "core/database/tuned_database_lock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

class MissingDatabaseTest : public testing::Test {
 protected:
  MissingDatabaseTest() {
    std::string folder = testing::TempDir() + "missing.XXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder_ + "/t.tdb";
  }
  ~MissingDatabaseTest() override { std::filesystem::remove_all(folder_); }

  std::string Text(ErrorCode code = ErrorCode::kEnvironment) const {
    const Error error = {code, "there is no tuned database", path_, "no such file", "run it", {}};
    return ExplainMissing(error, path_).ToText();
  }

  const std::string plain_tail_ = "): no such file; run it";
  std::string folder_;
  std::string path_;
};

TEST_F(MissingDatabaseTest, WithoutATuneTheErrorIsUnchanged) {
  const std::string plain = "there is no tuned database (" + path_ + plain_tail_;
  EXPECT_EQ(Text(), plain);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".lock"));
  // The lock file stays when a tune has ended.
  { const DatabaseLock lock = DatabaseLock::Acquire(path_).value(); }
  ASSERT_TRUE(std::filesystem::exists(path_ + ".lock"));
  EXPECT_EQ(Text(), plain);
}

TEST_F(MissingDatabaseTest, ARunningTuneIsNamedWhetherItHasAJournalOrNot) {
  const DatabaseLock lock = DatabaseLock::Acquire(path_).value();
  const std::string expected = "there is no tuned database (" + path_ + "): process " +
                               std::to_string(getpid()) + " is writing to it; wait until it ends";
  EXPECT_EQ(Text(), expected);
  std::ofstream(path_ + ".journal") << "";
  EXPECT_EQ(Text(), expected);
  // A shared lock that the question has taken would be in the way of the next tune.
  EXPECT_EQ(Text(), expected);
}

TEST_F(MissingDatabaseTest, AJournalOfATuneThatWasEndedIsNamed) {
  std::ofstream(path_ + ".journal") << "";
  EXPECT_EQ(Text(), "there is no tuned database (" + path_ +
                        "): no such file; a tune that was ended has left " + path_ +
                        ".journal: run it again to go on from it");
}

TEST_F(MissingDatabaseTest, AnIdThatNoHolderHasWrittenIsNotNamed) {
  const std::string plain = "there is no tuned database (" + path_ + plain_tail_;
  // This process lives and holds no lock: its id was that of a tune that was killed.
  std::ofstream(path_ + ".lock") << getpid() << "\n";
  EXPECT_EQ(Text(), plain);
  EXPECT_TRUE(DatabaseLock::Acquire(path_).has_value());
  // A lock without an id, as in the moment before the holder writes it.
  const DatabaseLock lock = DatabaseLock::Acquire(path_).value();
  std::filesystem::resize_file(path_ + ".lock", 0);
  EXPECT_EQ(Text(), plain);
}

TEST_F(MissingDatabaseTest, OtherErrorsAndFilesThatAreThereKeepTheirText) {
  const DatabaseLock lock = DatabaseLock::Acquire(path_).value();
  const std::string plain = "there is no tuned database (" + path_ + plain_tail_;
  EXPECT_EQ(Text(ErrorCode::kDatabase), plain);
  std::ofstream(path_) << "";
  EXPECT_EQ(Text(), plain);
}

TEST_F(MissingDatabaseTest, ATuneIntoADatabaseThatIsThereIsNamedWhileItRuns) {
  std::ofstream(path_) << "";
  std::ofstream(path_ + ".journal") << "";
  EXPECT_EQ(RunningTuneText(path_, "shown"), "");
  {
    const DatabaseLock lock = DatabaseLock::Acquire(path_).value();
    EXPECT_EQ(RunningTuneText(path_, "shown"), "process " + std::to_string(getpid()) +
                                                   " is writing to " + path_ +
                                                   "; the results shown are from before that");
  }
  EXPECT_EQ(RunningTuneText(path_, "shown"), "");
}

}  // namespace
}  // namespace cotune
