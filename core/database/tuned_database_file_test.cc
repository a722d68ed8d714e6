// The file form of the tuned database: what it refuses, that it never crashes, that it never
// damages an old file.
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "core/database/tuned_database.h"
#include "core/database/tuned_database.pb.h"
#include "core/database/tuned_database_lock.h"
#include "core/testing/database_entries.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::HasSubstr;

class TunedDatabaseFileTest : public ::testing::Test {
 protected:
  TunedDatabaseFileTest() {
    std::string name = ::testing::TempDir() + "/database_XXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = folder_ + "/t.tdb";
  }
  ~TunedDatabaseFileTest() override { std::filesystem::remove_all(folder_); }

  static TunedDatabase DatabaseOf(std::initializer_list<uint64_t> counts) {
    TunedDatabase database;
    for (uint64_t count : counts) database.Put(EntryForTest(count));
    return database;
  }
  void WriteBytes(std::string_view bytes) const {
    std::ofstream(path_, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  std::string ReadBytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<std::string> NamesInFolder() const {
    std::vector<std::string> names;
    for (const auto& item : std::filesystem::directory_iterator(folder_))
      names.push_back(item.path().filename());
    return names;
  }
  mode_t ModeOfFile() const {
    struct stat status {};
    EXPECT_EQ(stat(path_.c_str(), &status), 0);
    return status.st_mode & 07777u;
  }
  // The error of loading these bytes as a file; its text is never empty and its code kDatabase.
  std::string RefusalOf(std::string_view bytes) const {
    WriteBytes(bytes);
    const Result<TunedDatabase> database = TunedDatabase::Load(path_);
    if (database) return "loaded";
    EXPECT_EQ(database.error().code, ErrorCode::kDatabase);
    EXPECT_THAT(database.error().where, HasSubstr(path_));
    EXPECT_FALSE(database.error().cause.empty());
    EXPECT_FALSE(database.error().next_step.empty());
    return database.error().what;
  }

  std::string folder_;
  std::string path_;
};

TEST_F(TunedDatabaseFileTest, SavesAndLoads) {
  const TunedDatabase database = DatabaseOf({8, 16, 32});
  ASSERT_TRUE(database.Save(path_).has_value());
  EXPECT_EQ(TunedDatabase::Load(path_).value().entries().value(), database.entries().value());
  EXPECT_EQ(ReadBytes(), database.Serialize().value());
  EXPECT_THAT(NamesInFolder(), ::testing::ElementsAre("t.tdb"));
}

TEST_F(TunedDatabaseFileTest, RelativePathsWork) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  EXPECT_TRUE(DatabaseOf({8}).Save("t.tdb").has_value());
  EXPECT_EQ(TunedDatabase::Load("t.tdb").value().size(), 1u);
  std::filesystem::current_path(before);
}

TEST_F(TunedDatabaseFileTest, HeaderIsAsDocumented) {
  const std::string bytes = DatabaseOf({8}).Serialize().value();
  EXPECT_EQ(bytes.substr(0, 8), "COTUNEDB");
  EXPECT_EQ(bytes.substr(8, 4), std::string("\7\0\0\0", 4));
  uint64_t payload_bytes = 0;
  for (int i = 7; i >= 0; --i)
    payload_bytes =
        payload_bytes << 8 | static_cast<unsigned char>(bytes[12 + static_cast<size_t>(i)]);
  EXPECT_EQ(payload_bytes, bytes.size() - 36);
}

TEST_F(TunedDatabaseFileTest, EachDamageHasItsOwnError) {
  const std::string good = DatabaseOf({8, 16}).Serialize().value();
  EXPECT_EQ(RefusalOf(""), "the file is empty, not a tuned database");
  EXPECT_EQ(RefusalOf("hello, this is some text"), "not a cotune database");
  EXPECT_EQ(RefusalOf("COTUNE"), "the tuned database is truncated: 36 bytes needed, 6 there");
  EXPECT_EQ(RefusalOf(good.substr(0, 100)),
            "the tuned database is truncated: " + std::to_string(good.size()) +
                " bytes needed, 100 there");
  std::string bytes = good;
  bytes[8] = 1;
  EXPECT_EQ(RefusalOf(bytes), "loaded");
  bytes[8] = 2;
  EXPECT_EQ(RefusalOf(bytes), "loaded");
  bytes[8] = 3;
  EXPECT_EQ(RefusalOf(bytes), "loaded");
  bytes[8] = 4;
  EXPECT_EQ(RefusalOf(bytes), "loaded");
  bytes[8] = 5;
  EXPECT_EQ(RefusalOf(bytes), "loaded");
  bytes[8] = 6;
  EXPECT_EQ(RefusalOf(bytes), "loaded");
  bytes[8] = 8;
  EXPECT_EQ(RefusalOf(bytes), "the tuned database has schema 8, this cotune reads up to 7");
  bytes[8] = 0;
  EXPECT_EQ(RefusalOf(bytes), "field schema version is 0");
  bytes = good;
  bytes[19] = '\xff';  // a length near 2^64
  EXPECT_THAT(RefusalOf(bytes), HasSubstr("truncated"));
  bytes = good;
  bytes.back() ^= 1;
  EXPECT_EQ(RefusalOf(bytes), "the checksum of the tuned database does not match");
  EXPECT_EQ(RefusalOf(good + "xyz"), "the tuned database has 3 bytes behind its end");
  EXPECT_EQ(RefusalOf(good), "loaded");
}

TEST_F(TunedDatabaseFileTest, RandomDamageIsAlwaysRefused) {
  const std::string good = DatabaseOf({8, 16, 32}).Serialize().value();
  for (size_t length = 0; length < good.size(); ++length) {
    const Result<TunedDatabase> database =
        TunedDatabase::Parse(std::string_view(good).substr(0, length));
    ASSERT_FALSE(database.has_value()) << length;
    ASSERT_EQ(database.error().code, ErrorCode::kDatabase);
  }
  std::mt19937_64 random(31);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (uint64_t n = 1 + random() % 3; n > 0; --n)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    const Result<TunedDatabase> database = TunedDatabase::Parse(bytes);
    if (bytes == good) {
      ASSERT_EQ(database->Serialize().value(), good);
    } else {
      ASSERT_FALSE(database.has_value());
      ASSERT_EQ(database.error().code, ErrorCode::kDatabase);
    }
  }
}

TEST_F(TunedDatabaseFileTest, DamageUnderARightChecksumNeverCrashes) {
  const std::string good = DatabaseOf({8, 16, 32}).Serialize().value();
  std::mt19937_64 random(32);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string payload = good.substr(kDatabaseHeaderBytes);
    if (random() % 8 == 0) payload.resize(random() % payload.size());
    for (uint64_t n = 1 + random() % 3; n > 0 && !payload.empty(); --n) {
      payload[random() % payload.size()] = static_cast<char>(random());
    }
    const Result<TunedDatabase> database = TunedDatabase::Parse(WithDatabaseHeader(payload));
    if (!database) {
      ASSERT_EQ(database.error().code, ErrorCode::kDatabase);
      ++refused;
      continue;
    }
    // A file that was accepted must be usable, or report that it is not, at every entry point.
    const DatabaseEntry wanted = EntryForTest(16);
    (void)database->Find(wanted.cell.problem, wanted.fingerprint);
    ASSERT_TRUE(database->BuildTable(4, 4, wanted.fingerprint).has_value());
    const Result<std::string> bytes = database->Serialize();
    if (bytes) {
      ASSERT_EQ(TunedDatabase::Parse(*bytes)->entries().value(), database->entries().value());
    } else {
      ASSERT_EQ(bytes.error().code, ErrorCode::kDatabase);
    }
  }
  EXPECT_GT(refused, 1000);
}

// A file with one entry whose index was spoilt on purpose and whose checksum is right.
std::string WithSpoiltIndex(const std::string& good,
                            const std::function<void(proto::DatabaseIndex&)>& spoil) {
  const std::string payload = good.substr(kDatabaseHeaderBytes);
  uint64_t index_bytes = 0;
  for (size_t i = 8; i > 0; --i)
    index_bytes = index_bytes << 8 | static_cast<unsigned char>(payload[i - 1]);
  proto::DatabaseIndex index;
  EXPECT_TRUE(index.ParseFromString(payload.substr(8, index_bytes)));
  spoil(index);
  const std::string spoilt = index.SerializeAsString();
  std::string length;
  for (int i = 0; i < 8; ++i) length += static_cast<char>(spoilt.size() >> (8 * i));
  return WithDatabaseHeader(length + spoilt + payload.substr(8 + index_bytes));
}

TEST_F(TunedDatabaseFileTest, BadFieldsUnderARightChecksumAreNamed) {
  const std::string good = DatabaseOf({8, 16}).Serialize().value();
  const auto refusal = [&](const std::function<void(proto::DatabaseIndex&)>& spoil) {
    return RefusalOf(WithSpoiltIndex(good, spoil));
  };
  EXPECT_EQ(refusal([](auto&) {}), "loaded");
  EXPECT_EQ(refusal([](auto& i) { i.add_count(3); }), "bad field 'count' in tuned data");
  EXPECT_EQ(refusal([](auto& i) { i.set_count(1, 8); }), "bad field 'count' in tuned data");
  EXPECT_EQ(refusal([](auto& i) { i.set_fingerprint(0, 1); }),
            "bad field 'fingerprint' in tuned data");
  EXPECT_EQ(refusal([](auto& i) { i.set_problem_class(1, 9); }),
            "bad field 'problem_class' in tuned data");
  EXPECT_EQ(refusal([](auto& i) { i.set_winner(0, 0); }), "bad field 'winner' in tuned data");
  EXPECT_EQ(refusal([](auto& i) { i.set_winner(0, 4000); }), "bad field 'winner' in tuned data");
  EXPECT_EQ(refusal([](auto& i) { i.set_problem_classes(0, "x"); }),
            "bad field 'problem_classes' in tuned data");
  EXPECT_EQ(refusal([](auto& i) { i.add_problem_classes(i.problem_classes(0)); }),
            "bad field 'problem_classes' in tuned data");
  EXPECT_EQ(refusal([](auto& i) { *i.add_fingerprints() = proto::FingerprintRecord(); }),
            "bad field 'fingerprints' in tuned data");
  EXPECT_EQ(refusal([](auto& i) { i.set_text_bytes(0, 0xffffffff); }),
            "bad field 'text_bytes' in tuned data");
  EXPECT_EQ(refusal([](auto& i) { i.set_detail_bytes(0, 0xffffffff); }),
            "bad field 'detail_bytes' in tuned data");
  EXPECT_EQ(refusal([](auto& i) { i.set_next_best(0, 4000); }),
            "bad field 'next_best' in tuned data");
  EXPECT_EQ(refusal([](auto& i) { i.set_next_best_counts(1, 2); }),
            "bad field 'next_best_counts' in tuned data");
  EXPECT_EQ(refusal([](auto& i) { i.set_next_best_counts(1, 0); }),
            "bad field 'next_best' in tuned data");
  EXPECT_EQ(refusal([](auto& i) { i.clear_is_unsteady(); }),
            "bad field 'is_unsteady' in tuned data");
  EXPECT_EQ(refusal([](auto& i) { i.add_program_texts("no program"); }),
            "bad field 'program_texts' in tuned data");
  EXPECT_EQ(refusal([](auto& i) {
              i.add_program_texts("# a comment\n" + std::string(kProgramTextForTest));
            }),
            "bad field 'program_texts' in tuned data");
  EXPECT_EQ(refusal([](auto& i) {
              for (int n = 0; n < 2; ++n) i.add_program_texts(std::string(kProgramTextForTest));
            }),
            "bad field 'program_texts' in tuned data");
  EXPECT_EQ(RefusalOf(WithDatabaseHeader("abc")), "bad field 'index length' in tuned data");
  EXPECT_EQ(RefusalOf(WithDatabaseHeader(std::string(8, '\xff'))),
            "bad field 'index length' in tuned data");
  EXPECT_EQ(RefusalOf(WithDatabaseHeader(std::string("\2\0\0\0\0\0\0\0\xff\xff", 10))),
            "bad field 'index' in tuned data");
}

DatabaseEntry EntryOfProgram(uint64_t count) {
  DatabaseEntry entry = EntryForTest(count);
  entry.cell.problem.cls.program_digest = ProgramDigestForTest();
  entry.program_text = kProgramTextForTest;
  return entry;
}

TEST_F(TunedDatabaseFileTest, AProgramComesBackWithItsText) {
  TunedDatabase database = DatabaseOf({8});
  database.Put(EntryOfProgram(8));
  database.Put(EntryOfProgram(16));
  ASSERT_TRUE(database.Save(path_).has_value());
  const TunedDatabase loaded = TunedDatabase::Load(path_).value();
  EXPECT_EQ(loaded.entries().value(), database.entries().value());
  const Fingerprint here = EntryForTest(8).fingerprint;
  const MeasuredWinners winners = loaded.Winners(4, 4, here);
  EXPECT_EQ(winners.program_texts(),
            (std::map<uint64_t, std::string>{
                {ProgramDigestForTest(), std::string(kProgramTextForTest)}}));
  // The text is there once.
  const std::string bytes = ReadBytes();
  const size_t at = bytes.find(kProgramTextForTest);
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(bytes.find(kProgramTextForTest, at + 1), std::string::npos);
}

// Older cotunes knew no next best choices, and not that a cell is unsteady.
DatabaseEntry WithoutNextBest(DatabaseEntry entry) {
  entry.winner.next_best.clear();
  return entry;
}
void ClearSchema7(proto::DatabaseIndex& index) {
  index.clear_next_best();
  index.clear_next_best_counts();
  index.clear_is_unsteady();
}

TEST_F(TunedDatabaseFileTest, NextBestChoicesAndUnsteadyCellsComeBackFromTheIndex) {
  DatabaseEntry several = EntryForTest(16);
  several.winner.next_best = {IdForTest("host/one_shot"), IdForTest("host/two_shot"),
                              IdForTest("fake/other")};
  DatabaseEntry unsteady = EntryForTest(32);
  unsteady.cell.is_unsteady = true;
  TunedDatabase database;
  const std::vector<DatabaseEntry> entries = {WithoutNextBest(EntryForTest(8)), several, unsteady};
  for (const DatabaseEntry& entry : entries) database.Put(entry);
  ASSERT_TRUE(database.Save(path_).has_value());
  const TunedDatabase loaded = TunedDatabase::Load(path_).value();
  ASSERT_EQ(loaded.size(), 3u);
  EXPECT_TRUE(loaded.rows()[0].next_best.empty());
  EXPECT_EQ(loaded.rows()[1].next_best.choices(), several.winner.next_best);
  EXPECT_EQ(loaded.rows()[2].next_best.choices(), std::vector{IdForTest("host/two_shot")});
  EXPECT_FALSE(loaded.rows()[1].is_unsteady);
  EXPECT_TRUE(loaded.rows()[2].is_unsteady);
  EXPECT_EQ(loaded.entries().value(), entries);
}

// A file as a cotune with schema 6 wrote it.
TEST_F(TunedDatabaseFileTest, AFileOfSchema6HasNoNextBestChoices) {
  TunedDatabase database;
  database.Put(WithoutNextBest(EntryForTest(8)));
  database.Put(WithoutNextBest(EntryForTest(16)));
  const std::string now = database.Serialize().value();
  std::string bytes = WithSpoiltIndex(now, ClearSchema7);
  EXPECT_EQ(RefusalOf(bytes), "bad field 'next_best_counts' in tuned data") << "schema 7 has them";
  bytes[8] = 6;
  WriteBytes(bytes);
  const TunedDatabase old = TunedDatabase::Load(path_).value();
  EXPECT_EQ(old.entries().value(), database.entries().value());
  const DispatchTable table = old.BuildTable(4, 4, EntryForTest(8).fingerprint).value();
  ASSERT_EQ(table.rows().size(), 1u);
  ASSERT_FALSE(table.rows()[0].next_best.empty()) << "the measured sizes are known";
  for (const NextBestOfSize& each : table.rows()[0].next_best) {
    EXPECT_TRUE(each.next_best.empty()) << each.bytes;
  }
  EXPECT_EQ(old.Serialize().value(), now) << "written again, it has schema 7";
}

// A file as a cotune with schema 2 wrote it: the digest of a program, and no text.
TEST_F(TunedDatabaseFileTest, AProgramOfSchema2HasNoTextUntilItIsMeasuredAgain) {
  TunedDatabase database;
  database.Put(WithoutNextBest(EntryOfProgram(8)));
  std::string bytes = WithSpoiltIndex(database.Serialize().value(), [](auto& index) {
    ClearSchema7(index);
    index.clear_program_texts();
  });
  bytes[8] = 2;
  WriteBytes(bytes);
  TunedDatabase old = TunedDatabase::Load(path_).value();
  DatabaseEntry without_text = WithoutNextBest(EntryOfProgram(8));
  without_text.program_text.clear();
  EXPECT_EQ(old.entries().value(), std::vector{without_text});
  EXPECT_TRUE(old.Winners(4, 4, without_text.fingerprint).program_texts().empty());
  // Whichever of the two counts.
  for (const int64_t later_s : {-1, 0, 1}) {
    DatabaseEntry entry = EntryOfProgram(8);
    entry.measured_unix_s += later_s;
    TunedDatabase merged = old;
    TunedDatabase measured;
    measured.Put(entry);
    merged.Merge(measured);
    EXPECT_EQ(merged.entries()->at(0).program_text, kProgramTextForTest) << later_s;
    measured.Put(without_text);
    EXPECT_EQ(measured.entries()->at(0).program_text, kProgramTextForTest) << later_s;
  }
  ASSERT_TRUE(old.Save(path_).has_value());
  EXPECT_EQ(TunedDatabase::Load(path_).value().entries().value(), std::vector{without_text});
}

// A file as a cotune with schema 5 wrote it: its fingerprints lack the connections
// of ranks.
TEST_F(TunedDatabaseFileTest, AnEntryOfSchema5CountsOnlyWhereConnectionsAreNotKnown) {
  TunedDatabase written;
  written.Put(WithoutNextBest(EntryForTest(8)));
  std::string bytes = WithSpoiltIndex(written.Serialize().value(), [](auto& index) {
    ClearSchema7(index);
    index.mutable_fingerprints(0)->clear_connections();
  });
  bytes[8] = 5;
  WriteBytes(bytes);
  const TunedDatabase old = TunedDatabase::Load(path_).value();
  const DatabaseEntry entry = EntryForTest(8);
  Fingerprint here = entry.fingerprint;
  EXPECT_EQ(old.Find(entry.cell.problem, here).error().detail,
            "connections of nccl: not known in the file, 'NVLink between all ranks' here");
  EXPECT_TRUE(old.Winners(4, 4, here).empty());
  here.connections.clear();
  EXPECT_TRUE(old.Find(entry.cell.problem, here).has_value());
}

TEST_F(TunedDatabaseFileTest, UnreadableDetailsAreAnErrorWhenAskedForAndNeverDropped) {
  const std::string good = DatabaseOf({8, 16}).Serialize().value();
  WriteBytes(WithSpoiltIndex(good, [](auto& index) { index.set_samples(0, 1); }));
  TunedDatabase database = TunedDatabase::Load(path_).value();
  const DatabaseEntry bad = EntryForTest(8);
  EXPECT_EQ(database.Find(bad.cell.problem, bad.fingerprint).error().reason,
            MissReason::kUnreadable);
  const auto row = database.FindRow(bad.cell.problem, bad.fingerprint);
  ASSERT_TRUE(row.has_value()) << "the index can be read";
  EXPECT_EQ(*(*row)->fingerprint, bad.fingerprint);
  EXPECT_EQ((*row)->Decode().error().code, ErrorCode::kDatabase);
  EXPECT_EQ(database.Find(EntryForTest(16).cell.problem, bad.fingerprint).value(),
            EntryForTest(16));
  EXPECT_EQ(database.entries().error().code, ErrorCode::kDatabase);
  const std::string before = ReadBytes();
  const Status saved = database.Save(path_);
  ASSERT_FALSE(saved.has_value());
  EXPECT_EQ(saved.error().code, ErrorCode::kDatabase);
  EXPECT_EQ(saved.error().where, path_);
  EXPECT_EQ(ReadBytes(), before);
  // The index and the details contradict each other.
  for (const auto& spoil : std::vector<std::function<void(proto::DatabaseIndex&)>>{
           [](auto& index) { index.set_next_best(0, index.winner(0)); },
           [](auto& index) { index.set_is_unsteady(0, true); }}) {
    WriteBytes(WithSpoiltIndex(good, spoil));
    const auto other = TunedDatabase::Load(path_).value().Find(bad.cell.problem, bad.fingerprint);
    EXPECT_EQ(other.error().reason, MissReason::kUnreadable);
  }
  WriteBytes(before);
  database.Put(bad);  // measured again: heals it
  EXPECT_TRUE(database.Save(path_).has_value());
}

TEST_F(TunedDatabaseFileTest, RefusesPathsThatAreNoSafeFiles) {
  const auto error_of = [](const std::string& path) {
    const Result<TunedDatabase> database = TunedDatabase::Load(path);
    return database ? Error{} : database.error();
  };
  EXPECT_EQ(error_of(path_).code, ErrorCode::kEnvironment);
  EXPECT_THAT(error_of(path_).what, HasSubstr("there is no tuned database"));
  ASSERT_TRUE(DatabaseOf({8}).Save(path_).has_value());

  const std::string link = folder_ + "/link";
  ASSERT_EQ(symlink(path_.c_str(), link.c_str()), 0);
  EXPECT_EQ(error_of(link).code, ErrorCode::kDatabase);
  EXPECT_THAT(error_of(link).what, HasSubstr("symbolic link"));
  EXPECT_THAT(DatabaseOf({8}).Save(link).error().what, HasSubstr("symbolic link"));

  EXPECT_THAT(error_of(folder_).what, HasSubstr("not a regular file"));
  EXPECT_THAT(DatabaseOf({8}).Save(folder_).error().what, HasSubstr("not a regular file"));
  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_of(pipe).what, HasSubstr("not a regular file"));  // and does not hang

  ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  ASSERT_EQ(truncate(path_.c_str(), static_cast<off_t>(TunedDatabase::kFileBytesMax + 1)),
            0);  // sparse
  EXPECT_EQ(error_of(path_).code, ErrorCode::kDatabase);
  EXPECT_THAT(error_of(path_).cause, HasSubstr("at most 268435456"));
}

// Owners are a matter of file_trust_test: only root gives files to other users.
TEST_F(TunedDatabaseFileTest, RefusesWhatSomebodyElseCanChange) {
  ASSERT_TRUE(DatabaseOf({8}).Save(path_).has_value());
  const auto cause = [this]() -> std::string {
    const Result<TunedDatabase> database = TunedDatabase::Load(path_);
    if (database) return "loaded";
    EXPECT_EQ(database.error().code, ErrorCode::kDatabase);
    EXPECT_EQ(database.error().what, "the tuned database is not trusted");
    EXPECT_EQ(database.error().where, path_);
    EXPECT_THAT(database.error().next_step, HasSubstr("copy it"));
    return database.error().cause;
  };
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  EXPECT_EQ(cause(), "everybody may write to it");
  ASSERT_EQ(chmod(path_.c_str(), 0664), 0);
  EXPECT_THAT(cause(), ::testing::MatchesRegex("group [0-9]+ may write to it"));
  ASSERT_EQ(chmod(path_.c_str(), 0444), 0);
  EXPECT_EQ(cause(), "loaded");

  const std::string of_folder = "folder " + std::filesystem::canonical(folder_).string() + ": ";
  ASSERT_EQ(chmod(folder_.c_str(), 0777), 0);
  EXPECT_EQ(cause(), of_folder + "everybody may write to it");
  ASSERT_EQ(chmod(folder_.c_str(), 01777), 0);
  EXPECT_EQ(cause(), "loaded") << "as /tmp: only an owner replaces a file";
  ASSERT_EQ(chmod(folder_.c_str(), 0770), 0);
  EXPECT_EQ(cause(), "loaded") << "the user's own group";
  ASSERT_EQ(chmod(folder_.c_str(), 0700), 0);
}

TEST_F(TunedDatabaseFileTest, WhatAWriterThatDiedLeftBehindGoesWithTheNextLock) {
  std::ofstream(path_ + ".tmp.4711.0") << "half a fi";
  std::ofstream(path_ + ".tmp.4711.3") << "";
  const std::vector<std::string> others = {"other.tdb.tmp.4711.0", "t.tdb", "t.tdb.lock",
                                           "t.tdb.tmp.kept"};
  for (const std::string& name : others) std::ofstream(folder_ + "/" + name) << "";
  { const auto lock = DatabaseLock::Acquire(path_).value(); }
  EXPECT_THAT(NamesInFolder(), ::testing::UnorderedElementsAreArray(others));
}

TEST_F(TunedDatabaseFileTest, OtherUsersCannotHoldTheLock) {
  std::ofstream(path_ + ".lock") << "";
  ASSERT_EQ(chmod((path_ + ".lock").c_str(), 0644), 0);
  const auto lock = DatabaseLock::Acquire(path_).value();
  struct stat status {};
  ASSERT_EQ(stat((path_ + ".lock").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0600u);
}

TEST_F(TunedDatabaseFileTest, AFileKeepsItsModeAndANewOneFollowsTheUmask) {
  const mode_t umask_before = umask(027);
  ASSERT_TRUE(DatabaseOf({8}).Save(path_).has_value());
  EXPECT_EQ(ModeOfFile(), 0640u);
  umask(umask_before);
  for (mode_t mode : {0600u, 0644u, 0400u}) {
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    ASSERT_TRUE(DatabaseOf({8}).Save(path_).has_value());
    EXPECT_EQ(ModeOfFile(), mode);
  }
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  ASSERT_TRUE(DatabaseOf({8}).Save(path_).has_value());
  EXPECT_EQ(ModeOfFile(), 0644u);
}

// Root no longer passes over file modes afterwards.
bool DropCapabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  return syscall(SYS_capset, &header, none) == 0;
}

// Runs `body` in a child; its return value is the child's exit status.
int ExitStatusOfChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(TunedDatabaseFileTest, AFailedWriteLeavesTheOldFileAndNoOther) {
  ASSERT_TRUE(DatabaseOf({8}).Save(path_).has_value());
  const std::string before = ReadBytes();
  // The file system "is full" after 1000 bytes.
  const int status = ExitStatusOfChild([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    const Status saved = DatabaseOf({8, 16, 32, 64}).Save(path_);
    if (saved) return 3;
    return saved.error().code == ErrorCode::kEnvironment &&
                   saved.error().next_step.find("old file is intact") != std::string::npos
               ? 0
               : 4;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ReadBytes(), before);
  EXPECT_THAT(NamesInFolder(), ::testing::ElementsAre("t.tdb"));
}

TEST_F(TunedDatabaseFileTest, AFailedFirstWriteSpeaksOfNoOldFile) {
  const int status = ExitStatusOfChild([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100, 100};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    const Status saved = DatabaseOf({8, 16, 32, 64}).Save(path_);
    if (saved) return 3;
    return saved.error().next_step == "check free space and permissions" ? 0 : 4;
  });
  EXPECT_EQ(status, 0);
  EXPECT_THAT(NamesInFolder(), ::testing::IsEmpty());
}

TEST_F(TunedDatabaseFileTest, AFolderThatMayNotBeWrittenLeavesTheOldFile) {
  ASSERT_TRUE(DatabaseOf({8}).Save(path_).has_value());
  const std::string before = ReadBytes();
  ASSERT_EQ(chmod(folder_.c_str(), 0555), 0);
  const int status = ExitStatusOfChild([&] {
    if (!DropCapabilities()) return 2;
    const Status saved = DatabaseOf({16}).Save(path_);
    return !saved && saved.error().code == ErrorCode::kEnvironment ? 0 : 3;
  });
  ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ReadBytes(), before);
  EXPECT_THAT(NamesInFolder(), ::testing::ElementsAre("t.tdb"));
}

TEST_F(TunedDatabaseFileTest, AStaleTemporaryFileIsNotInTheWay) {
  WriteBytes("");
  std::filesystem::rename(path_, path_ + ".tmp." + std::to_string(getpid()) + ".0");
  ASSERT_TRUE(DatabaseOf({8}).Save(path_).has_value());
  EXPECT_EQ(TunedDatabase::Load(path_).value().size(), 1u);
}

}  // namespace
}  // namespace cotune
