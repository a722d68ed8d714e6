// Tunes of programs, mixed with plain collectives: both modes find the same winners, forms and
// regions race, and wrong choices never win.
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/testing/tune_on_ranks.h"
#include "core/testing/twin_recipes.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

constexpr char kNorm[] =
    "%x = input bf16 [R, 64]\n%r = input bf16 [R, 64] replicated\n"
    "%g = input bf16 [1, 64] replicated\n%s = all_reduce sum %x\n%t = add %s, %r\n"
    "%y = rms_norm %t, %g\nreturn %y, %t into %r\n";

TEST(ProgramTuneTest, ImmediateAndDeferredModeFindTheSameWinners) {
  Tune tune;
  tune.choices = LatencyAndBandwidth;
  tune.node_programs = {kSequence, "", kNorm};
  tune.node_sizes = {{4096, 6144, 65536}, {1024, 65536}, {1024, 32768}};
  int deferred_syncs = 0;
  const std::vector<RankView> deferred = RunTune(tune, &deferred_syncs);
  tune.settings.enable_collective_multitemplate = false;
  int immediate_syncs = 0;
  const std::vector<RankView> immediate = RunTune(tune, &immediate_syncs);
  EXPECT_EQ(deferred_syncs, 1);
  EXPECT_EQ(immediate_syncs, 3);
  for (const RankView& view : immediate) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(view.outcome->table.Serialize(), immediate[0].outcome->table.Serialize());
  }
  for (const RankView& view : deferred) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_TRUE(view.outcome->committed);
    EXPECT_EQ(view.outcome->table.Serialize(), immediate[0].outcome->table.Serialize());
    // By hand: latency is faster below 5555 bytes. The all_gather has twice the bytes.
    const auto winner = [&](size_t node, uint64_t bytes) {
      return WinnerOf(tune, *view.outcome, node, bytes);
    };
    EXPECT_EQ(winner(0, 6144), "scripted/bandwidth");
    EXPECT_EQ(winner(0, 4096), "scripted/latency+scripted/bandwidth");
    EXPECT_EQ(winner(1, 1024), "scripted/latency");
    EXPECT_EQ(winner(1, 65536), "scripted/bandwidth");
    EXPECT_EQ(winner(2, 1024), "scripted/latency");
    EXPECT_EQ(winner(2, 32768), "scripted/bandwidth");
  }
}

TEST(ProgramTuneTest, ASecondFormIsListedRacedKeptAndMadeReadyAgain) {
  const TwinRecipes recipes;
  Tune tune;
  tune.choices = LatencyAndBandwidth;
  tune.node_programs = {kTwins};
  tune.node_sizes = {{1024, 65536}};
  tune.recipes = &recipes;
  MemoryOfCells memory;
  tune.known = &memory;
  for (const bool is_known : {false, true}) {
    for (const RankView& view : RunTune(tune)) {
      ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
      EXPECT_EQ(view.outcome->measured_cells, is_known ? 0 : 2);
      EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 1024), "scripted/latency?via=once");
      EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 65536), "scripted/bandwidth?via=once");
      ASSERT_EQ(view.cells.size(), 2u);
      for (const CellResult& cell : view.cells) {
        std::set<std::string> raced;
        for (const Verdict& verdict : cell.verdicts) {
          EXPECT_TRUE(verdict.has_time()) << verdict.id.text() << ": " << verdict.reason;
          EXPECT_EQ(verdict.is_default, verdict.id.text() == "scripted/usual");
          raced.insert(verdict.id.text());
        }
        EXPECT_EQ(raced,
                  (std::set<std::string>{"scripted/usual", "scripted/latency", "scripted/bandwidth",
                                         "scripted/usual?via=once", "scripted/latency?via=once",
                                         "scripted/bandwidth?via=once"}));
      }
    }
  }
  // A job without that form cannot run the winners that are known, and leaves them out.
  tune.recipes = nullptr;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 1024), "");
  }
}

// Each all_reduce may absorb the operation that reads its value. Fused, it costs 8 us more than
// bare where it is small, and 8 us less where it is large; a part costs nothing.
std::vector<ScriptedChoice> FusesLarge(int) {
  std::vector<ScriptedChoice> choices = LatencyAndBandwidth(0);
  choices[2].fused_cost_ns = [](uint64_t bytes, size_t /*operations*/) {
    return 60'000 + static_cast<int64_t>(bytes) + (bytes > 5000 ? -8'000 : 8'000);
  };
  return choices;
}

TEST(ProgramTuneTest, ARegionIsListedRacedAndRunWhereItIsFaster) {
  const TwinRecipes recipes(/*with_regions=*/true);
  Tune tune;
  tune.choices = FusesLarge;
  tune.node_programs = {
      "%x = input f32 [R, 64]\n%g = input f32 [1, 64] replicated\n%s = all_reduce sum %x\n"
      "%n = neg %s\n%y = add %n, %g\n%z = all_reduce sum %y\n%o = relu %z\nreturn %o\n"};
  tune.node_sizes = {{1024, 65536}};
  tune.recipes = &recipes;
  MemoryOfCells memory;
  tune.known = &memory;
  for (const bool is_known : {false, true}) {
    for (const RankView& view : RunTune(tune)) {
      ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
      EXPECT_EQ(view.outcome->measured_cells, is_known ? 0 : 2);
      EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 1024), "scripted/latency");
      // The surroundings of the two differ, and their keys do not.
      EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 65536), "scripted/bandwidth?fuse=1");
    }
  }
  // A rule leaves all of it out.
  tune.known = nullptr;
  tune.settings.fusion.enabled = false;
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 65536), "scripted/bandwidth");
  }
}

// The last collective depends on none of the others and runs in front of the second.
TEST(ProgramTuneTest, ChoicesBelongToTheirCollectivesInWhateverOrderTheseRun) {
  Tune tune;
  tune.choices = LatencyAndBandwidth;
  tune.node_programs = {
      "%x = input f32 [R, 64]\n%z = input f32 [R, 1]\n"
      "%a = reduce_scatter sum %x\n%b = mul %a, 2\n%c = all_gather %b\n%d = all_reduce max %z\n"
      "return %c, %d\n"};
  tune.node_sizes = {{65536}};
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 65536),
              "scripted/bandwidth+scripted/bandwidth+scripted/latency");
  }
}

TEST(ProgramTuneTest, AChoiceThatIsWrongInOneCollectiveNeverWins) {
  Tune tune;
  tune.choices = [](int) {
    ScriptedChoice wrong = Linear("wrong", 1, 0);
    wrong.wrong_on_rank = 1;
    return std::vector<ScriptedChoice>{Linear("right", 50'000, 0), wrong};
  };
  tune.node_programs = {kSequence, kNorm};
  tune.node_sizes = {{4096}, {4096}};
  for (const RankView& view : RunTune(tune)) {
    ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 4096), "scripted/right");
    EXPECT_EQ(WinnerOf(tune, *view.outcome, 1, 4096), "scripted/right");
  }
}

// The first output is replicated by dataflow, the second is not.
constexpr char kNormAndStream[] =
    "%x = input f32 [R, 64]\n%g = input f32 [1, 64] replicated\n%s = all_reduce sum %x\n"
    "%y = rms_norm %s, %g\n%v = mul %y, %x\n"
    "%z = exp %v\nreturn %y, %z\n";

TEST(ProgramTuneTest, BitsThatDependOnTheRankAreWrongIfTheChoiceIsReproducibleElseANote) {
  for (const int ranks : {2, 3}) {
    for (const bool is_in_replicated : {true, false}) {
      Tune tune;
      tune.world_size = ranks;
      tune.choices = [](int) {
        std::vector<ScriptedChoice> choices = {Linear("reproducible", 10'000, 0),
                                               Linear("other", 50'000, 0)};
        choices[0].is_reproducible = true;
        choices[1].is_default = true;
        return choices;
      };
      tune.node_programs = {kNormAndStream};
      tune.node_sizes = {{4096}};
      tune.part_ulp_on_rank = ranks - 1;
      tune.part_ulp_is_in_replicated = is_in_replicated;
      const std::string difference =
          fmt::format("output 1 has other bits on rank {} than on rank{}", ranks - 1,
                      ranks == 2 ? " 0" : "s 0, 1");
      for (const RankView& view : RunTune(tune)) {
        ASSERT_TRUE(view.outcome.has_value()) << view.outcome.error().ToText();
        ASSERT_EQ(view.cells.size(), 1u);
        const Verdict& reproducible = VerdictOf(view.cells[0], "reproducible");
        const Verdict& other = VerdictOf(view.cells[0], "other");
        EXPECT_TRUE(other.has_time());
        if (!is_in_replicated) {
          EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 4096), "scripted/reproducible");
          EXPECT_EQ(reproducible.reason + other.reason, "");
          continue;
        }
        EXPECT_EQ(WinnerOf(tune, *view.outcome, 0, 4096), "scripted/other");
        EXPECT_EQ(reproducible.outcome, Outcome::kWrongResult);
        EXPECT_EQ(reproducible.wrong_elements, 1u);
        EXPECT_EQ(
            reproducible.reason,
            "its bits depend on the rank, although it is listed as reproducible: " + difference);
        EXPECT_EQ(other.reason, "its bits depend on the rank: " + difference);
      }
    }
  }
}

}  // namespace
}  // namespace cotune
