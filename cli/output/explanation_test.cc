#include "cli/output/explanation.h"

#include "core/testing/database_entries.h"
#include "gtest/gtest.h"

namespace cotune::cli {
namespace {

Problem Asked(uint64_t count) {
  Problem problem = EntryForTest(count).cell.problem;
  problem.topology_digest = 0;
  return problem;
}

TunedDatabase Database() {
  TunedDatabase database;
  database.Put(EntryForTest(1024));
  DatabaseEntry large = EntryForTest(65536);
  large.winner.id = IdForTest("host/tree");
  large.winner.why = "the default is as fast";
  database.Put(large);
  return database;
}

Explanation Explained(const Problem& asked, const Fingerprint& here) {
  return Explain(Database(), "/db/x.tdb", asked, here).value();
}

TEST(ExplanationTest, ShowsWinnerLosersAndRefusals) {
  const Fingerprint here = EntryForTest(1).fingerprint;
  EXPECT_EQ(ExplanationText(Explained(Asked(1024), here)),
            R"(all_reduce sum f32, 4 ranks, host memory, out of place: 4K
  runs: host/ring?chunk=65536 (sizes below 32K)
  measured at 4K: 35.0 us, algbw 0.12 GB/s, busbw 0.18 GB/s
  why: 15.0 % faster than the default host/tree (41.2 us); 99 % interval 35.0-35.0 us
  samples: 50, each of 10 calls on 5 copies of the buffers, start window, median skew 0.10 us
  with buffers in the cache: 31.0 us
  clocks: SM at 1980 MHz or more, throttled: hw_thermal,sw_power_cap
  connections of nccl: NVLink between all ranks
  connections of ucx: tcp/eth0 between all ranks
  when: 2023-11-14 22:13 UTC, cotune 0.1.0, host 1.0
  from: /db/x.tdb

  other choices
    host/tree (default)
      17.7 % slower: 41.2 us (41.2-41.2 us, 50 rounds)
    host/two_shot
      left the race after 3 rounds, 2.57x the winner's time: 90.0 us (90.0-90.0 us, 3 rounds)
    host/one_shot
      wrong_result, 12 wrong elements: rank 2: element 7 is 3, not 4

  refused
    host/hierarchy
      one host only
    cuda
      no device
)");
}

TEST(ExplanationTest, RefusalsOfOneReasonAreListedTogetherWithTheCountOfTheOthers) {
  DatabaseEntry entry = EntryForTest(1024);
  entry.cell.refusals.clear();
  for (int i = 0; i < 25; ++i) {
    entry.cell.refusals.push_back({"host/ring?chunk=" + std::to_string(i), "others were faster"});
    if (i == 1) entry.cell.refusals.push_back({"cuda", "no device"});
  }
  for (const char* name : {"a", "b", "c", "d"}) {
    entry.cell.refusals.push_back({name, "four of one reason"});
  }
  entry.cell.refusals.push_back(
      {"host/slow", "not raced: 3.1 and 2.7 times the winner's time at 512 and 2048 bytes"});
  TunedDatabase database;
  database.Put(entry);
  const std::string text =
      ExplanationText(Explain(database, "/db/x.tdb", Asked(1024), entry.fingerprint).value());
  EXPECT_EQ(text.substr(std::min(text.size(), text.find("  refused"))), R"(  refused
    host/ring?chunk=0, host/ring?chunk=1, host/ring?chunk=2 and 22 more (25 in all)
      others were faster
    cuda
      no device
    a, b, c and 1 more (4 in all)
      four of one reason
    host/slow
      not raced: 3.1 and 2.7 times the winner's time at 512 and 2048 bytes
)");
}

TEST(ExplanationTest, ABackendThatDidNotTakePartIsNoted) {
  Fingerprint here = EntryForTest(1).fingerprint;
  here.backends["ucx"] = "1.0.0";
  EXPECT_EQ(Explained(Asked(1024), here).notes,
            std::vector<std::string>{
                "this was measured without ucx; a tune measures it again where that can run"});
}

// The backend's name sorts behind that of the winner.
TEST(ExplanationTest, OfTwoEntriesWithOneWinnerTheOneThatCountsIsShown) {
  TunedDatabase database = Database();
  DatabaseEntry again = EntryForTest(1024);
  again.fingerprint.backends["ucx"] = "1.0.0";
  again.winner.why = "measured beside ucx";
  database.Put(again);
  const Explanation explanation =
      Explain(database, "/db/x.tdb", Asked(1024), again.fingerprint).value();
  ASSERT_TRUE(explanation.entry.has_value());
  EXPECT_EQ(explanation.entry->winner.why, "measured beside ucx");
  EXPECT_TRUE(explanation.notes.empty());
}

TEST(ExplanationTest, OneTextForAllCellsThatWereThrottled) {
  std::vector<DatabaseEntry> entries = {EntryForTest(1), EntryForTest(2), EntryForTest(3)};
  entries[0].cell.throttle_reasons = "";
  entries[2].cell.throttle_reasons = "hw_slowdown";
  EXPECT_TRUE(ThrottlingText(entries).starts_with(
      "a GPU was throttled while 2 of 3 cells were measured (hw_slowdown; "
      "hw_thermal,sw_power_cap): "))
      << ThrottlingText(entries);
  EXPECT_EQ(ThrottlingText({entries[0]}), "");
}

TEST(ExplanationTest, ASizeBetweenTheMeasuredOnesGetsItsRange) {
  const Fingerprint here = EntryForTest(1).fingerprint;
  const Explanation explanation = Explained(Asked(4096), here);
  ASSERT_TRUE(explanation.range.has_value());
  EXPECT_EQ(explanation.range->choice.text(), "host/ring?chunk=65536");
  EXPECT_EQ(explanation.range->first_bytes, 0u);
  EXPECT_EQ(explanation.range->end_bytes, 32768u);  // geometric mean of 4K and 256K
  ASSERT_TRUE(explanation.entry.has_value());
  EXPECT_EQ(explanation.entry->cell.problem.count, 1024u);
  EXPECT_EQ(Explained(Asked(1 << 20), here).entry->cell.problem.count, 65536u);
}

TEST(ExplanationTest, ASizeBeyondTheMeasuredOnesSaysSo) {
  const Fingerprint here = EntryForTest(1).fingerprint;
  EXPECT_TRUE(Explained(Asked(1024), here).notes.empty());
  EXPECT_TRUE(Explained(Asked(65536), here).notes.empty());
  const std::string above = ExplanationText(Explained(Asked(1 << 28), here));
  EXPECT_NE(above.find("  note: nothing above 256K was measured"), std::string::npos) << above;
  EXPECT_NE(above.find("if its backend refuses or does not list it at 1G, the next best choice of "
                       "that size runs"),
            std::string::npos)
      << above;
  const std::string below = ExplanationText(Explained(Asked(1023), here));
  EXPECT_NE(below.find("  note: nothing below 4K was measured"), std::string::npos) << below;
}

TEST(ExplanationTest, AnEntryOfSizeZeroExplainsNoOtherSize) {
  const DatabaseEntry of_zero = EntryForTest(0);
  TunedDatabase database;
  database.Put(of_zero);
  const Explanation alone = Explain(database, "x", Asked(1024), of_zero.fingerprint).value();
  EXPECT_FALSE(alone.range.has_value());
  EXPECT_EQ(alone.misses,
            std::vector<std::string>{
                "an entry is for calls of 0 bytes, which shows nothing about other sizes"});
  database.Put(EntryForTest(1024));
  const Explanation beside = Explain(database, "x", Asked(512), of_zero.fingerprint).value();
  ASSERT_TRUE(beside.entry.has_value());
  EXPECT_EQ(beside.entry->cell.problem.count, 1024u);
  ASSERT_EQ(beside.notes.size(), 1u);
  EXPECT_TRUE(beside.notes[0].starts_with("nothing below 4K was measured")) << beside.notes[0];
}

TEST(ExplanationTest, SymmetricBuffersAreExplainedAsTheyAreDispatched) {
  const Fingerprint here = EntryForTest(1).fingerprint;
  const auto symmetric = [](uint64_t count) {
    Problem problem = Asked(count);
    problem.cls.buffer_class = BufferClass::kSymmetric;
    return problem;
  };
  Explanation explanation = Explained(symmetric(1024), here);
  ASSERT_TRUE(explanation.range.has_value());
  EXPECT_EQ(explanation.range->choice.text(), "host/ring?chunk=65536");
  EXPECT_EQ(explanation.entry->cell.problem.cls.buffer_class, BufferClass::kPlain);
  EXPECT_EQ(explanation.notes,
            std::vector<std::string>{
                "this is the choice for plain buffers: nothing was measured on symmetric ones"});

  TunedDatabase database = Database();
  DatabaseEntry registered = EntryForTest(65536);
  registered.cell.problem.cls.buffer_class = BufferClass::kSymmetric;
  database.Put(registered);
  explanation = Explain(database, "/db/x.tdb", symmetric(1024), here).value();
  EXPECT_EQ(explanation.entry->cell.problem.count, 1024u);
  EXPECT_EQ(explanation.notes,
            std::vector<std::string>{
                "this is the choice for plain buffers: symmetric ones were measured from 256K up"});
  explanation = Explain(database, "/db/x.tdb", symmetric(65536), here).value();
  EXPECT_EQ(explanation.entry->cell.problem.cls.buffer_class, BufferClass::kSymmetric);
  EXPECT_TRUE(explanation.notes.empty());
}

TEST(ExplanationTest, ACallWithoutARowIsExplainedByItsRelative) {
  const Fingerprint here = EntryForTest(1).fingerprint;
  Problem asked = Asked(512);
  asked.cls.dtype = Dtype::kF64;
  asked.cls.in_place = true;
  asked.cls.reduction = Reduction::kMax;
  const Explanation explanation = Explained(asked, here);
  ASSERT_TRUE(explanation.range.has_value());
  EXPECT_EQ(explanation.range->choice.text(), "host/ring?chunk=65536");
  EXPECT_EQ(explanation.relative, DispatchKey::Of(Asked(1).cls));
  ASSERT_TRUE(explanation.entry.has_value());
  EXPECT_EQ(explanation.entry->cell.problem.count, 1024u) << "as many bytes";
  EXPECT_EQ(
      explanation.notes,
      std::vector<std::string>{
          "this call was not measured: it runs by the row of all_reduce sum f32 out of "
          "place; if its backend refuses or does not list the choice for it, the next best choice "
          "of that row does, and if "
          "there is none, the default"});
  const std::string text = ExplanationText(explanation);
  EXPECT_NE(text.find("  to tune this call: cotune tune --ranks 4 --collective all_reduce --dtype "
                      "f64 --reduction max --in-place --db /db/x.tdb\n"),
            std::string::npos)
      << text;
  // The default tune measures 1, 2 and 4 KB, and not what is between them.
  asked.count = 500;
  EXPECT_NE(ExplanationText(Explained(asked, here))
                .find("--reduction max --in-place --sizes 4000 --db /db/x.tdb\n"),
            std::string::npos);
  // 8 bytes an element: beyond what was measured at 64K elements of f32.
  asked.count = 65536;
  EXPECT_EQ(Explained(asked, here).notes.size(), 2u);
  EXPECT_EQ(Explained(asked, here).range->choice.text(), "host/tree");
  EXPECT_FALSE(Explained(Asked(512), here).relative);
}

TEST(ExplanationTest, SymmetricBuffersOfARelativeAreExplainedAsTheyAreDispatched) {
  const Fingerprint here = EntryForTest(1).fingerprint;
  Problem asked = Asked(1024);
  asked.cls.in_place = true;
  asked.cls.buffer_class = BufferClass::kSymmetric;
  Explanation explanation = Explained(asked, here);
  EXPECT_EQ(explanation.relative, DispatchKey::Of(Asked(1).cls));
  EXPECT_EQ(explanation.notes.size(), 2u) << "it is a relative's row, and that of plain buffers";
  TunedDatabase database = Database();
  DatabaseEntry registered = EntryForTest(1024);
  registered.cell.problem.cls.buffer_class = BufferClass::kSymmetric;
  database.Put(registered);
  explanation = Explain(database, "/db/x.tdb", asked, here).value();
  EXPECT_EQ(explanation.relative, DispatchKey::Of(registered.cell.problem.cls));
  EXPECT_EQ(explanation.notes.size(), 1u);
}

TEST(ExplanationTest, AnotherMachineGetsTheDefaultAndTheReason) {
  Fingerprint here = EntryForTest(1).fingerprint;
  here.machine["cpu_model"] = "model b";
  Explanation explanation = Explained(Asked(1024), here);
  const std::string text = ExplanationText(explanation);
  EXPECT_NE(text.find("runs: the default choice of the first backend"), std::string::npos);
  explanation.fallback = IdForTest("host/two_shot");
  EXPECT_NE(ExplanationText(explanation)
                .find("runs: host/two_shot, the default choice of the first backend; nothing"),
            std::string::npos);
  EXPECT_NE(text.find("cpu_model"), std::string::npos) << text;
  EXPECT_NE(text.find("model a"), std::string::npos) << text;
  EXPECT_NE(text.find("model b"), std::string::npos) << text;
  EXPECT_NE(text.find("cotune tune --ranks 4 --collective all_reduce --dtype f32 --db /db/x.tdb"),
            std::string::npos)
      << text;
}

TEST(ExplanationTest, AnotherShapeOrClassSaysWhatThereIs) {
  const Fingerprint here = EntryForTest(1).fingerprint;
  Problem asked = Asked(1024);
  asked.cls.world_size = asked.cls.ranks_per_node = 2;
  EXPECT_EQ(Explained(asked, here).misses,
            std::vector<std::string>{"an entry is for a group of 4 ranks"});
  asked = Asked(1024);
  asked.cls.memory = MemoryKind::kCuda;
  EXPECT_EQ(Explained(asked, here).misses,
            std::vector<std::string>{
                "an entry is for all_reduce sum f32, 4 ranks, host memory, out of place"});
  asked.cls.collective = Collective::kAllGather;
  asked.cls.reduction = Reduction::kNone;
  EXPECT_EQ(Explained(asked, here).misses, std::vector<std::string>{"no entry is for all_gather"});
  EXPECT_EQ(Explain(TunedDatabase(), "x", asked, here)->misses,
            std::vector<std::string>{"the database is empty"});
}

TEST(ExplanationTest, AnEntryOfAProgramIsNamedWithItsOperations) {
  DatabaseEntry entry = EntryForTest(1024);
  entry.cell.problem.cls.program_digest = 0xabc;
  const std::string tail = ", by its all_reduce sum f32, 4 ranks, host memory, out of place";
  TunedDatabase database;
  database.Put(entry);
  EXPECT_EQ(Explain(database, "x", Asked(1024), entry.fingerprint)->misses,
            std::vector<std::string>{"an entry is for program 0000000000000abc" + tail});
  const ProgramGraph graph =
      ProgramGraph::Parse("%x = input f32 [R, 8]; %s = all_reduce sum %x; %y = relu %s; return %y")
          .value();
  entry.cell.problem.cls.program_digest = graph.digest();
  entry.program_text = graph.ToText();
  TunedDatabase of_known;
  of_known.Put(entry);
  const std::vector<std::string> misses =
      Explain(of_known, "x", Asked(1024), entry.fingerprint)->misses;
  ASSERT_EQ(misses.size(), 1u);
  EXPECT_TRUE(misses[0].ends_with(": all_reduce + relu" + tail)) << misses[0];
}

TEST(ExplanationTest, EachFateHasItsReason) {
  const DatabaseEntry entry = EntryForTest(1024);
  const std::vector<Verdict>& verdicts = entry.cell.verdicts;
  EXPECT_EQ(WhyItLost(entry, verdicts[1]), "17.7 % slower: 41.2 us (41.2-41.2 us, 50 rounds)");
  EXPECT_EQ(
      WhyItLost(entry, verdicts[2]),
      "left the race after 3 rounds, 2.57x the winner's time: 90.0 us (90.0-90.0 us, 3 rounds)");
  DatabaseEntry unsteady = entry;
  unsteady.cell.is_unsteady = true;
  EXPECT_EQ(WhyItLost(unsteady, verdicts[2]),
            "left the race after 3 rounds, 2.57x the time of the choice that runs (unsteady): 90.0 "
            "us (90.0-90.0 us, 3 rounds)");
  EXPECT_EQ(WhyItLost(entry, verdicts[3]),
            "wrong_result, 12 wrong elements: rank 2: element 7 is 3, not 4");
  Verdict noted = verdicts[1];
  noted.reason = "its bits depend on the rank";
  EXPECT_EQ(WhyItLost(entry, noted),
            "17.7 % slower: 41.2 us (41.2-41.2 us, 50 rounds); its bits depend on the rank");
  Verdict of_first_heat = verdicts[2];
  of_first_heat.outcome = Outcome::kLostHeat;
  EXPECT_EQ(WhyItLost(entry, of_first_heat),
            "lost the first of two heats: 90.0 us (90.0-90.0 us, 3 rounds)");
  Verdict faster = verdicts[1];
  faster.median_ns = 34'650;
  DatabaseEntry kept_default = entry;
  kept_default.winner.fallback = kept_default.winner.id;
  EXPECT_EQ(WhyItLost(kept_default, faster),
            "1.0 % faster, which is inside the noise of the default: 34.6 us (41.2-41.2 us, 50 "
            "rounds)");
  Verdict fused = faster;
  fused.id = IdForTest("host/ring?fuse=1");
  EXPECT_EQ(WhyItLost(kept_default, fused),
            "1.0 % faster, which is too little, or too unsure, for a fused form: 34.6 us "
            "(41.2-41.2 us, 50 rounds)");
  kept_default.cell.is_unsteady = true;
  EXPECT_EQ(WhyItLost(kept_default, fused),
            "1.0 % faster, but the times of this size are unsteady: 34.6 us (41.2-41.2 us, 50 "
            "rounds)");
  faster.warm_median_ns = 33'000;
  DatabaseEntry tied = entry;
  tied.winner.fallback.reset();
  EXPECT_EQ(WhyItLost(tied, faster),
            "1.0 % faster, which is inside the noise: 34.6 us (41.2-41.2 us, 50 rounds; 33.0 us "
            "with buffers in the cache)");
}

TEST(ExplanationTest, RangesReadWell) {
  const ChoiceId id = IdForTest("host/ring");
  EXPECT_EQ(RangeText({0, UINT64_MAX, id}), "all sizes");
  EXPECT_EQ(RangeText({1536, UINT64_MAX, id}), "sizes from 1536 up");
  EXPECT_EQ(RangeText({0, 2048, id}), "sizes below 2K");
}

}  // namespace
}  // namespace cotune::cli
