#include "core/database/tuned_database.h"

#include <algorithm>
#include <map>
#include <random>
#include <tuple>

#include "core/database/cell_codec.h"
#include "core/testing/database_entries.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TunedDatabase DatabaseOf(const std::vector<DatabaseEntry>& entries) {
  TunedDatabase database;
  for (const DatabaseEntry& entry : entries) database.Put(entry);
  return database;
}

TunedDatabase Reloaded(const TunedDatabase& database) {
  return TunedDatabase::Parse(database.Serialize().value()).value();
}

// The oracle: a map by identity with the documented preference.
std::vector<DatabaseEntry> NaiveUnion(const std::vector<DatabaseEntry>& entries) {
  using Identity = std::tuple<Fingerprint, ProblemClass, uint64_t>;
  std::map<Identity, DatabaseEntry> kept;
  const auto rank = [](const DatabaseEntry& entry) {
    int64_t samples = 0;
    for (const Verdict& verdict : entry.cell.verdicts)
      samples += static_cast<int64_t>(verdict.samples_ns.size());
    return std::tuple(entry.cell.is_unsteady, -entry.measured_unix_s, -samples, EncodeCell(entry));
  };
  for (const DatabaseEntry& entry : entries) {
    const Identity identity(entry.fingerprint, entry.cell.problem.cls, entry.cell.problem.count);
    const auto [at, is_new] = kept.emplace(identity, entry);
    if (!is_new && rank(entry) < rank(at->second)) at->second = entry;
  }
  std::vector<DatabaseEntry> result;
  for (auto& [identity, entry] : kept) result.push_back(entry);
  return result;
}

std::vector<DatabaseEntry> RandomEntries(std::mt19937_64& random, size_t n) {
  std::vector<DatabaseEntry> entries;
  for (size_t i = 0; i < n; ++i) entries.push_back(RandomEntryForTest(random));
  return entries;
}

TEST(TunedDatabaseTest, EmptyDatabaseComesBackEmpty) {
  const TunedDatabase database = Reloaded(TunedDatabase());
  EXPECT_TRUE(database.empty());
  EXPECT_EQ(database.Find(EntryForTest(8).cell.problem, {}).error().reason, MissReason::kNoEntry);
  EXPECT_TRUE(database.BuildTable(4, 4, {}).value().rows().empty());
}

TEST(TunedDatabaseTest, EntriesComeBackWholeAndInCanonicalOrder) {
  std::mt19937_64 random(21);
  const std::vector<DatabaseEntry> entries = RandomEntries(random, 400);
  const TunedDatabase database = DatabaseOf(entries);
  const std::vector<DatabaseEntry> expected = NaiveUnion(entries);
  EXPECT_EQ(database.entries().value(), expected);
  EXPECT_EQ(Reloaded(database).entries().value(), expected);
  EXPECT_EQ(Reloaded(database).size(), expected.size());
}

TEST(TunedDatabaseTest, EqualContentHasEqualBytesWhateverTheOrderAndTheSource) {
  std::mt19937_64 random(22);
  std::vector<DatabaseEntry> entries = RandomEntries(random, 120);
  const std::string bytes = DatabaseOf(entries).Serialize().value();
  for (int round = 0; round < 10; ++round) {
    std::shuffle(entries.begin(), entries.end(), random);
    EXPECT_EQ(DatabaseOf(entries).Serialize().value(), bytes);
    // Half of it loaded from a file, half of it put.
    const auto middle = entries.begin() + static_cast<long>(entries.size() / 2);
    TunedDatabase half = Reloaded(DatabaseOf({entries.begin(), middle}));
    for (auto at = middle; at != entries.end(); ++at) half.Put(*at);
    EXPECT_EQ(half.Serialize().value(), bytes);
  }
  EXPECT_EQ(Reloaded(DatabaseOf(entries)).Serialize().value(), bytes);
}

TEST(TunedDatabaseTest, MergeIsCommutativeAssociativeAndIdempotent) {
  std::mt19937_64 random(23);
  const auto merged = [](TunedDatabase a, const TunedDatabase& b) {
    a.Merge(b);
    return a;
  };
  for (int round = 0; round < 30; ++round) {
    const std::vector<DatabaseEntry> entries_a = RandomEntries(random, random() % 60);
    const std::vector<DatabaseEntry> entries_b = RandomEntries(random, random() % 60);
    const std::vector<DatabaseEntry> entries_c = RandomEntries(random, random() % 60);
    const TunedDatabase a = DatabaseOf(entries_a);
    const TunedDatabase b = Reloaded(DatabaseOf(entries_b));
    const TunedDatabase c = DatabaseOf(entries_c);
    std::vector<DatabaseEntry> all = entries_a;
    all.insert(all.end(), entries_b.begin(), entries_b.end());
    all.insert(all.end(), entries_c.begin(), entries_c.end());
    const std::vector<DatabaseEntry> expected = NaiveUnion(all);
    EXPECT_EQ(merged(merged(a, b), c).entries().value(), expected);
    EXPECT_EQ(merged(a, merged(b, c)).entries().value(), expected);
    EXPECT_EQ(merged(c, merged(b, a)).entries().value(), expected);
    EXPECT_EQ(merged(merged(a, b), merged(b, a)).Serialize().value(),
              merged(b, a).Serialize().value());
    EXPECT_EQ(merged(a, a).Serialize().value(), a.Serialize().value());
  }
}

TEST(TunedDatabaseTest, ASteadyEntryIsKeptWhateverItsAge) {
  const DatabaseEntry steady = EntryForTest(8);
  DatabaseEntry unsteady = EntryForTest(8);
  unsteady.cell.is_unsteady = true;
  unsteady.measured_unix_s += 100;
  EXPECT_EQ(DatabaseOf({steady, unsteady}).entries().value(), std::vector{steady});
  EXPECT_EQ(DatabaseOf({unsteady, steady}).entries().value(), std::vector{steady});
  TunedDatabase merged = Reloaded(DatabaseOf({unsteady}));
  merged.Merge(Reloaded(DatabaseOf({steady})));
  EXPECT_EQ(merged.entries().value(), std::vector{steady});
  // Two unsteady ones: the newer one.
  DatabaseEntry later = unsteady;
  later.measured_unix_s += 1;
  EXPECT_EQ(DatabaseOf({later, unsteady}).entries().value(), std::vector{later});
  // A tune that has just measured the cell replaces it all the same.
  merged.Replace(DatabaseOf({unsteady}));
  EXPECT_EQ(merged.entries().value(), std::vector{unsteady});
  // The default has won an unsteady cell, and the table has it like any other.
  EXPECT_EQ(merged.Winners(4, 4, steady.fingerprint).size(), 1u);
  EXPECT_EQ(merged.BuildTable(4, 4, steady.fingerprint)->rows().size(), 1u);
}

TEST(TunedDatabaseTest, NewerThenMoreSamplesWins) {
  DatabaseEntry old_entry = EntryForTest(8);
  DatabaseEntry new_entry = EntryForTest(8);
  new_entry.measured_unix_s += 1;
  new_entry.cell.verdicts.clear();
  TunedDatabase database = DatabaseOf({new_entry, old_entry});
  ASSERT_EQ(database.size(), 1u);
  EXPECT_EQ(database.entries().value()[0], new_entry);
  old_entry.measured_unix_s += 1;  // as old, but with samples
  database.Put(old_entry);
  EXPECT_EQ(database.entries().value()[0], old_entry);
}

TEST(TunedDatabaseTest, ReplacingTakesTheOtherEntryHoweverOld) {
  DatabaseEntry here = EntryForTest(8);
  DatabaseEntry forced = EntryForTest(8);
  here.measured_unix_s += 1000;
  TunedDatabase database = DatabaseOf({here, EntryForTest(16)});
  TunedDatabase merged = database;
  merged.Merge(DatabaseOf({forced, EntryForTest(32)}));
  EXPECT_EQ(merged.entries().value()[0], here);
  database.Replace(DatabaseOf({forced, EntryForTest(32)}));
  EXPECT_EQ(database.entries().value(),
            (std::vector<DatabaseEntry>{forced, EntryForTest(16), EntryForTest(32)}));
}

TEST(TunedDatabaseTest, MoreElementsThanMemoryCanHoldAreRefused) {
  // 4 ranks and 4 bytes an element.
  constexpr uint64_t kElementsMax = INT64_MAX / 16;
  EXPECT_TRUE(TunedDatabase::Parse(DatabaseOf({EntryForTest(kElementsMax)}).Serialize().value()));
  for (const uint64_t count : {kElementsMax + 1, UINT64_MAX}) {
    const auto parsed = TunedDatabase::Parse(DatabaseOf({EntryForTest(count)}).Serialize().value());
    ASSERT_FALSE(parsed);
    EXPECT_EQ(parsed.error().code, ErrorCode::kDatabase);
    EXPECT_THAT(parsed.error().ToText(), HasSubstr("more than memory can hold"));
  }
}

TEST(TunedDatabaseTest, FindsOnlyWhatIsValidHereAndSaysWhyNot) {
  const DatabaseEntry entry = EntryForTest(8);
  const TunedDatabase database = Reloaded(DatabaseOf({entry, EntryForTest(16)}));
  const Problem& problem = entry.cell.problem;
  const Fingerprint here = entry.fingerprint;
  EXPECT_EQ(database.Find(problem, here).value(), entry);

  const auto miss = [&](const Fingerprint& other) {
    const auto found = database.Find(problem, other);
    return found ? "found"
                 : std::string(MissReasonName(found.error().reason)) + ": " + found.error().detail;
  };
  Fingerprint other = here;
  other.backends["fake"] = "7";  // did not take part: no matter
  EXPECT_EQ(miss(other), "found");
  other = here;
  other.machine["cpu_model"] = "model b";
  EXPECT_EQ(miss(other), "machine_differs: cpu_model: 'model a' in the file, 'model b' here");
  other = here;
  other.machine["gpu"] = "x";
  EXPECT_EQ(miss(other), "machine_differs: gpu: absent in the file, 'x' here");
  other = here;
  other.machine.erase("cores");
  EXPECT_EQ(miss(other), "machine_differs: cores: '2' in the file, absent here");
  other = here;
  other.measuring_mode = "graph";
  EXPECT_EQ(miss(other), "machine_differs: measuring_mode: 'eager' in the file, 'graph' here");
  other = here;
  other.backends.clear();
  EXPECT_EQ(miss(other),
            "backend_missing: winner host/ring?chunk=65536: backend host has version "
            "'1.0' in the file and is absent here");
  other = here;
  other.backends["host"] = "1.1";
  EXPECT_EQ(miss(other), "backend_version_differs: backend host: '1.0' in the file, '1.1' here");

  Problem other_problem = problem;
  other_problem.count = 9;
  EXPECT_EQ(database.Find(other_problem, here).error().reason, MissReason::kNoEntry);
  EXPECT_THAT(database.Find(other_problem, here).error().detail, HasSubstr("count9"));
  other_problem = problem;
  other_problem.cls.program_digest = 1;
  EXPECT_EQ(database.Find(other_problem, here).error().reason, MissReason::kNoEntry);
  other_problem = problem;
  other_problem.cls.in_place = true;
  EXPECT_EQ(database.Find(other_problem, here).error().reason, MissReason::kNoEntry);
}

// As when a program runs without the plugin that the tune was given.
TEST(TunedDatabaseTest, ABackendThatLostNeedNotBeHere) {
  DatabaseEntry entry = EntryForTest(8);
  const Fingerprint here = entry.fingerprint;
  entry.fingerprint.backends["tiny"] = "2.0";
  const TunedDatabase database = Reloaded(DatabaseOf({entry}));
  const Problem& problem = entry.cell.problem;
  const ProblemClass& cls = problem.cls;
  EXPECT_EQ(database.Find(problem, here).value(), entry);
  const auto table = database.BuildTable(cls.world_size, cls.ranks_per_node, here);
  ASSERT_TRUE(table);
  EXPECT_NE(table->Lookup(DispatchKey::Of(cls), problem.bytes()), DispatchTable::kNoChoice);
  // Another version of it might win.
  Fingerprint other = here;
  other.backends["tiny"] = "3.0";
  EXPECT_EQ(database.Find(problem, other).error().detail,
            "backend tiny: '2.0' in the file, '3.0' here");
  const auto none = database.BuildTable(cls.world_size, cls.ranks_per_node, other);
  ASSERT_TRUE(none);
  EXPECT_EQ(none->Lookup(DispatchKey::Of(cls), problem.bytes()), DispatchTable::kNoChoice);
}

// The ranks of a group on InfiniBand do not run by what was measured over TCP, nor two GPUs on PCIe
// by what two on NVLink measured; both measurements are kept.
TEST(TunedDatabaseTest, AnEntryCountsOnlyWhereRanksReachEachOtherInTheSameWays) {
  DatabaseEntry tcp = EntryForTest(8);
  tcp.fingerprint.backends["ucx"] = "1.0";
  tcp.fingerprint.connections = {{"ucx", "tcp/eth0 between all ranks"},
                                 {kGpuConnections, "performance rank 0 between all ranks"}};
  DatabaseEntry infiniband = tcp;
  infiniband.fingerprint.connections["ucx"] = "rc_mlx5/mlx5_0:1 between all ranks";
  infiniband.winner.id = IdForTest("host/tree");
  const Problem& problem = tcp.cell.problem;
  const TunedDatabase alone = Reloaded(DatabaseOf({tcp}));
  const auto miss = [&](const Fingerprint& here) {
    const auto found = alone.Find(problem, here);
    const bool is_in_table = !alone.BuildTable(4, 4, here).value().rows().empty();
    EXPECT_EQ(is_in_table, found.has_value());
    EXPECT_EQ(alone.Winners(4, 4, here).empty(), !found.has_value());
    return found ? "found"
                 : std::string(MissReasonName(found.error().reason)) + ": " + found.error().detail;
  };
  EXPECT_EQ(miss(tcp.fingerprint), "found");
  EXPECT_EQ(miss(infiniband.fingerprint),
            "connections_differ: connections of ucx: 'tcp/eth0 between all ranks' in the file, "
            "'rc_mlx5/mlx5_0:1 between all ranks' here");
  Fingerprint here = tcp.fingerprint;
  here.connections[kGpuConnections] = "performance rank 1 between all ranks";
  EXPECT_EQ(miss(here),
            "connections_differ: connections of GPUs: 'performance rank 0 between all ranks' in "
            "the file, 'performance rank 1 between all ranks' here");
  // Unknown connections are not compared: a job without groups explains any entry.
  here.connections.clear();
  EXPECT_EQ(miss(here), "found");
  // Nor are those of a backend that did not take part.
  here = tcp.fingerprint;
  here.backends["nccl"] = "1.0";
  here.connections["nccl"] = "NVLink between all ranks";
  EXPECT_EQ(miss(here), "found");

  const TunedDatabase both = Reloaded(DatabaseOf({tcp, infiniband}));
  EXPECT_EQ(both.size(), 2u);
  EXPECT_EQ(both.Find(problem, tcp.fingerprint).value(), tcp);
  EXPECT_EQ(both.Find(problem, infiniband.fingerprint).value(), infiniband);
}

TEST(TunedDatabaseTest, AnEntryWhoseWinnerHasNoVersionIsNotUsed) {
  DatabaseEntry entry = EntryForTest(8);
  entry.winner.id = IdForTest("fake/fast");
  const TunedDatabase database = DatabaseOf({entry});
  EXPECT_EQ(database.Find(entry.cell.problem, entry.fingerprint).error().reason,
            MissReason::kChoiceUnknown);
  EXPECT_TRUE(database.BuildTable(4, 4, entry.fingerprint).value().rows().empty());
}

TEST(TunedDatabaseTest, OneChangedBackendInvalidatesOnlyEntriesInWhichItTookPart) {
  DatabaseEntry alone = EntryForTest(8);
  DatabaseEntry both = EntryForTest(16);
  both.fingerprint.backends["fake"] = "0.1";
  const TunedDatabase database = DatabaseOf({alone, both});
  Fingerprint here = both.fingerprint;
  EXPECT_TRUE(database.Find(alone.cell.problem, here).has_value());
  EXPECT_TRUE(database.Find(both.cell.problem, here).has_value());
  here.backends["fake"] = "0.2";
  EXPECT_TRUE(database.Find(alone.cell.problem, here).has_value());
  EXPECT_EQ(database.Find(both.cell.problem, here).error().reason,
            MissReason::kBackendVersionDiffers);
}

TEST(TunedDatabaseTest, OfSeveralValidEntriesTheOneInWhichMostBackendsTookPartThenTheNewestCounts) {
  DatabaseEntry alone = EntryForTest(8);
  DatabaseEntry both = EntryForTest(8);
  both.fingerprint.backends["fake"] = "0.1";
  both.winner.id = IdForTest("fake/fast");
  Fingerprint here = both.fingerprint;
  const auto winner = [&] {
    const TunedDatabase database = DatabaseOf({alone, both});
    const std::string found = database.Find(alone.cell.problem, here).value().winner.id.text();
    const DispatchTable table = database.BuildTable(4, 4, here).value();
    EXPECT_EQ(table.rows().at(0).ranges.size(), 1u);
    EXPECT_EQ(table.rows().at(0).ranges.at(0).choice.text(), found);
    return found;
  };
  EXPECT_EQ(winner(), "fake/fast");
  // An entry that was measured without a backend that is here is worth less, however new.
  alone.measured_unix_s += 1;
  EXPECT_EQ(winner(), "fake/fast");
  EXPECT_THAT(BackendsThatDidNotRace(alone.fingerprint, here), ElementsAre("fake"));
  EXPECT_THAT(BackendsThatDidNotRace(both.fingerprint, here), IsEmpty());
  // The newest entry counts when that backend is not here.
  both.winner.id = IdForTest("host/tree");
  here = alone.fingerprint;
  EXPECT_EQ(winner(), "host/ring?chunk=65536");
  both.measured_unix_s += 2;
  EXPECT_EQ(winner(), "host/tree");
  EXPECT_THAT(BackendsThatDidNotRace(both.fingerprint, here), IsEmpty());
}

TEST(TunedDatabaseTest, AnEntryOfSizeZeroIsKeptAndDecidesNothing) {
  DatabaseEntry of_zero = EntryForTest(0);
  of_zero.winner.id = IdForTest("host/tree");
  const DatabaseEntry entry = EntryForTest(8);
  const Fingerprint& here = entry.fingerprint;
  const TunedDatabase alone = Reloaded(DatabaseOf({of_zero}));
  EXPECT_EQ(alone.size(), 1u);
  EXPECT_TRUE(alone.BuildTable(4, 4, here).value().rows().empty());
  EXPECT_TRUE(alone.Winners(4, 4, here).empty());
  const TunedDatabase both = Reloaded(DatabaseOf({of_zero, entry}));
  EXPECT_EQ(both.size(), 2u);
  EXPECT_EQ(both.BuildTable(4, 4, here).value(),
            DatabaseOf({entry}).BuildTable(4, 4, here).value());
  EXPECT_EQ(both.Winners(4, 4, here).Serialize(),
            DatabaseOf({entry}).Winners(4, 4, here).Serialize());
}

TEST(TunedDatabaseTest, EntriesOfAnotherMachineAreKept) {
  DatabaseEntry here = EntryForTest(8);
  DatabaseEntry there = EntryForTest(8);
  there.fingerprint.machine["cpu_model"] = "model b";
  TunedDatabase database = Reloaded(DatabaseOf({there}));
  database.Put(here);
  database = Reloaded(database);
  EXPECT_EQ(database.size(), 2u);
  EXPECT_EQ(database.Find(there.cell.problem, there.fingerprint).value(), there);
  EXPECT_EQ(database.Find(here.cell.problem, here.fingerprint).value(), here);
}

TEST(TunedDatabaseTest, BuildsTheTableOfThisShapeOnly) {
  const auto entry_of = [](uint64_t count, std::string_view winner, int32_t world_size) {
    DatabaseEntry entry = EntryForTest(count);
    entry.winner.id = IdForTest(winner);
    entry.cell.problem.cls.world_size = world_size;
    entry.cell.problem.cls.ranks_per_node = world_size;
    return entry;
  };
  DatabaseEntry program = entry_of(256, "host/fused", 4);
  program.cell.problem.cls.program_digest = 77;
  DatabaseEntry without_next_best = entry_of(4096, "host/ring", 4);
  without_next_best.winner.next_best.clear();
  const NextBest next_best({IdForTest("host/two_shot")});
  DatabaseEntry foreign = entry_of(512, "host/foreign", 4);
  foreign.fingerprint.machine["cpu_model"] = "model b";
  const TunedDatabase database =
      Reloaded(DatabaseOf({entry_of(256, "host/tree", 4), entry_of(1024, "host/ring", 4),
                           without_next_best, entry_of(256, "host/pair", 2), program, foreign}));
  const DispatchTable table = database.BuildTable(4, 4, EntryForTest(8).fingerprint).value();
  // f32: 256 elements are 1024 bytes, 1024 are 4096; the boundary is their geometric mean.
  const DispatchKey key = DispatchKey::Of(EntryForTest(8).cell.problem.cls);
  const DispatchKey program_key = DispatchKey::Of(program.cell.problem.cls);
  ASSERT_EQ(table.rows().size(), 2u);
  EXPECT_EQ(
      table.rows()[0],
      (DispatchRow{key,
                   {{0, 2048, IdForTest("host/tree")}, {2048, UINT64_MAX, IdForTest("host/ring")}},
                   1024,
                   {{1024, next_best}, {4096, next_best}, {16384, NextBest()}}}));
  EXPECT_EQ(
      table.rows()[1],
      (DispatchRow{
          program_key, {{0, UINT64_MAX, IdForTest("host/fused")}}, 1024, {{1024, next_best}}}));
  // A group gets the winners, and the same table from them.
  const MeasuredWinners winners = database.Winners(4, 4, EntryForTest(8).fingerprint);
  EXPECT_EQ(winners.rows().at(key).at(4096), (MeasuredWinner{IdForTest("host/ring"), next_best}));
  EXPECT_EQ(MeasuredWinners::Parse(winners.Serialize()).value().BuildTable().value(), table);
  EXPECT_EQ(database.BuildTable(2, 2, EntryForTest(8).fingerprint).value().choices().at(0).text(),
            "host/pair");
  EXPECT_TRUE(database.BuildTable(2, 1, EntryForTest(8).fingerprint).value().rows().empty());
}

TEST(TunedDatabaseTest, RootsShareARowAndTheSmallestCounts) {
  const auto entry_of = [](int32_t root, std::string_view winner) {
    DatabaseEntry entry = EntryForTest(256);
    entry.cell.problem.cls.collective = Collective::kBroadcast;
    entry.cell.problem.cls.reduction = Reduction::kNone;
    entry.cell.problem.cls.root = root;
    entry.measured_unix_s += root;  // the newer one has the larger root
    entry.winner.id = IdForTest(winner);
    return entry;
  };
  const TunedDatabase database = DatabaseOf({entry_of(3, "host/ring"), entry_of(0, "host/tree")});
  EXPECT_EQ(database.size(), 2u);
  const DispatchTable table = database.BuildTable(4, 4, EntryForTest(8).fingerprint).value();
  ASSERT_EQ(table.rows().size(), 1u);
  EXPECT_EQ(table.rows()[0].ranges,
            (std::vector<SizeRange>{{0, UINT64_MAX, IdForTest("host/tree")}}));
}

TEST(TunedDatabaseTest, FindAgreesWithAWalkOverRandomEntries) {
  std::mt19937_64 random(24);
  const std::vector<DatabaseEntry> kept = NaiveUnion(RandomEntries(random, 300));
  const TunedDatabase database = Reloaded(DatabaseOf(kept));
  for (int i = 0; i < 300; ++i) {
    const DatabaseEntry probe = RandomEntryForTest(random);
    Fingerprint here = probe.fingerprint;
    const DatabaseEntry* expected = nullptr;
    for (const DatabaseEntry& entry : kept) {
      bool valid = entry.cell.problem == probe.cell.problem &&
                   entry.fingerprint.machine == here.machine &&
                   entry.fingerprint.measuring_mode == here.measuring_mode &&
                   entry.fingerprint.backends.contains(std::string(entry.winner.id.backend())) &&
                   here.backends.contains(std::string(entry.winner.id.backend()));
      for (const auto& [name, version] : here.backends) {
        const auto& there = entry.fingerprint.backends;
        valid = valid && (!there.contains(name) || there.at(name) == version);
      }
      for (const auto& [name, text] : here.connections) {
        const auto& there = entry.fingerprint.connections;
        valid = valid && there.contains(name) && there.at(name) == text;
      }
      if (!valid) continue;
      const auto rank = [&](const DatabaseEntry& e) {
        int took_part = 0;
        for (const auto& [name, version] : here.backends) {
          took_part += static_cast<int>(e.fingerprint.backends.count(name));
        }
        return std::tuple(-took_part, -e.measured_unix_s,
                          -static_cast<int>(e.fingerprint.backends.size()));
      };
      if (expected == nullptr || rank(entry) < rank(*expected)) expected = &entry;
    }
    const auto found = database.Find(probe.cell.problem, here);
    ASSERT_EQ(found.has_value(), expected != nullptr);
    if (expected != nullptr) {
      EXPECT_EQ(*found, *expected);
    }
  }
}

}  // namespace
}  // namespace cotune
