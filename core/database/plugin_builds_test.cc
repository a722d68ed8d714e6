// Results of a plugin that was rebuilt with the same version.
#include <string>
#include <vector>

#include "core/database/cell_codec.h"
#include "core/database/tuned_database.h"
#include "core/testing/database_entries.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

DatabaseEntry BuiltEntry(uint64_t count, const PluginBuilds& builds) {
  DatabaseEntry entry = EntryForTest(count);
  entry.fingerprint.backends["tiny"] = "2.0";
  entry.fingerprint.builds = builds;
  return entry;
}

TunedDatabase DatabaseOf(const std::vector<DatabaseEntry>& entries) {
  TunedDatabase database;
  for (const DatabaseEntry& entry : entries) database.Put(entry);
  return database;
}

TEST(PluginBuildsTest, ComeBackFromAFileAndFromACell) {
  const DatabaseEntry entry = BuiltEntry(8, {{"host", "111"}, {"tiny", "aaa"}});
  EXPECT_EQ(DecodeCell(EncodeCell(entry)).value(), entry);
  const TunedDatabase read = TunedDatabase::Parse(DatabaseOf({entry}).Serialize().value()).value();
  EXPECT_EQ(read.entries().value(), std::vector<DatabaseEntry>{entry});
}

struct Judged {
  std::string name;
  PluginBuilds there;
  PluginBuilds here;
  std::string miss;  // "": valid
};

class PluginBuildsMissTest : public testing::TestWithParam<Judged> {};

TEST_P(PluginBuildsMissTest, IsSaidAndKeepsTheEntryOutOfTheTable) {
  const DatabaseEntry entry = BuiltEntry(8, GetParam().there);
  Fingerprint here = entry.fingerprint;
  here.builds = GetParam().here;
  const TunedDatabase database = DatabaseOf({entry});
  const auto found = database.Find(entry.cell.problem, here);
  const std::string miss =
      found ? "" : std::string(MissReasonName(found.error().reason)) + ": " + found.error().detail;
  EXPECT_EQ(miss, GetParam().miss);
  EXPECT_EQ(database.Winners(4, 4, here).empty(), !found);
}

INSTANTIATE_TEST_SUITE_P(
    Builds, PluginBuildsMissTest,
    testing::Values(
        Judged{"Same", {{"tiny", "aaa"}}, {{"tiny", "aaa"}}, ""},
        Judged{"Other",
               {{"tiny", "aaa"}},
               {{"tiny", "bbb"}},
               "backend_build_differs: measured with another build of plugin tiny (version 2.0)"},
        Judged{
            "Unknown",
            {},
            {{"tiny", "bbb"}},
            "backend_build_differs: measured with an unknown build of plugin tiny (version 2.0)"},
        Judged{"TwoOther",
               {{"host", "111"}, {"tiny", "aaa"}},
               {{"host", "222"}, {"tiny", "bbb"}},
               "backend_build_differs: measured with other builds of plugins host (version 1.0), "
               "tiny (version 2.0)"},
        Judged{"TwoUnknown",
               {},
               {{"host", "222"}, {"tiny", "bbb"}},
               "backend_build_differs: measured with unknown builds of plugins host (version 1.0), "
               "tiny (version 2.0)"},
        Judged{"OtherAndUnknown",
               {{"tiny", "aaa"}},
               {{"host", "222"}, {"tiny", "bbb"}},
               "backend_build_differs: measured with another build of plugin tiny (version 2.0) "
               "and an unknown build of plugin host (version 1.0)"},
        // Its table is registered in this process.
        Judged{"NoneHere", {{"tiny", "aaa"}}, {}, ""},
        // It took no part, and changes nothing.
        Judged{"OfANewcomer", {{"tiny", "aaa"}}, {{"tiny", "aaa"}, {"ucx", "555"}}, ""}),
    [](const testing::TestParamInfo<Judged>& info) { return info.param.name; });

TEST(PluginBuildsTest, ABackendThatLostAndIsNotHereIsNotCompared) {
  const DatabaseEntry entry = BuiltEntry(8, {{"host", "111"}, {"tiny", "aaa"}});
  Fingerprint here = entry.fingerprint;
  here.backends.erase("tiny");
  here.builds = {{"host", "111"}};
  EXPECT_EQ(WhyNotValid(entry.fingerprint, entry.winner.id, here), std::nullopt);
}

TEST(PluginBuildsTest, AnotherVersionIsNamedBeforeAnotherBuild) {
  const DatabaseEntry entry = BuiltEntry(8, {{"tiny", "aaa"}});
  Fingerprint here = BuiltEntry(8, {{"tiny", "bbb"}}).fingerprint;
  here.backends["tiny"] = "2.1";
  EXPECT_EQ(WhyNotValid(entry.fingerprint, entry.winner.id, here)->detail,
            "backend tiny: '2.0' in the file, '2.1' here");
}

TEST(PluginBuildsTest, ARebuiltBackendIsNearerThanOneOfAnotherVersion) {
  DatabaseEntry other_version = BuiltEntry(8, {{"tiny", "bbb"}});
  other_version.fingerprint.backends["tiny"] = "1.0";
  const DatabaseEntry other_build = BuiltEntry(8, {{"tiny", "aaa"}});
  const Fingerprint here = BuiltEntry(8, {{"tiny", "bbb"}}).fingerprint;
  EXPECT_EQ(
      DatabaseOf({other_version, other_build}).Find(other_build.cell.problem, here).error().reason,
      MissReason::kBackendBuildDiffers);
}

TEST(PluginBuildsTest, OnlyRowsThatDifferInBuildsAloneAreSuperseded) {
  const PluginBuilds old_builds = {{"host", "111"}, {"tiny", "aaa"}};
  const PluginBuilds new_builds = {{"host", "111"}, {"tiny", "bbb"}};
  const DatabaseEntry fresh = BuiltEntry(8, new_builds);
  const DatabaseEntry other_cell = BuiltEntry(16, old_builds);
  DatabaseEntry other_version = BuiltEntry(8, old_builds);
  other_version.fingerprint.backends["tiny"] = "1.0";
  DatabaseEntry other_machine = BuiltEntry(8, old_builds);
  other_machine.fingerprint.machine["cores"] = "3";
  DatabaseEntry other_mode = BuiltEntry(8, old_builds);
  other_mode.fingerprint.measuring_mode = "graph";
  DatabaseEntry other_connections = BuiltEntry(8, old_builds);
  other_connections.fingerprint.connections["ucx"] = "posix between all ranks";
  DatabaseEntry without = BuiltEntry(8, {{"host", "111"}});
  without.fingerprint.backends.erase("tiny");
  const std::vector<DatabaseEntry> stay = {
      fresh, other_cell, other_version, other_machine, other_mode, other_connections, without};
  std::vector<DatabaseEntry> all = stay;
  all.push_back(BuiltEntry(8, old_builds));
  all.push_back(BuiltEntry(8, {}));
  // Rows of a file share their fingerprints, and single entries have one each.
  const TunedDatabase read = TunedDatabase::Parse(DatabaseOf(all).Serialize().value()).value();
  for (TunedDatabase database : {DatabaseOf(all), read}) {
    database.DropOtherBuilds(DatabaseOf({fresh}));
    EXPECT_EQ(database.entries().value(), DatabaseOf(stay).entries().value());
    database.DropOtherBuilds(TunedDatabase());
    EXPECT_EQ(database.size(), stay.size());
  }
}

}  // namespace
}  // namespace cotune
