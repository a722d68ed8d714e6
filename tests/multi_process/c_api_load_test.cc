// Tables and plugins that one rank cannot use: all ranks hear so, and groups go on where nothing
// has changed. Real processes, only cotune.h, the shared library and plugins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "integration/capi/cotune.h"
#include "tests/multi_process/testing/c_api_ranks.h"
#include "tests/multi_process/testing/rank_processes.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CApiLoad : public CApiRanks {};

// The fake backend takes its rank in the group that was made last for that of its script: rank 1 of
// the job loses a choice when it becomes the third of a group.
TEST_F(CApiLoad, ALoadedWinnerThatOneRankLacksIsNamedAndTheGroupGoesOn) {
  SetFakeScript("choice usual default cost_us=100000; choice fast missing_on=2");
  RankProcesses ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, 3, link, fake_plugins_);
      if (group == nullptr) return 1;
      if (rank < 2) {
        cotune_group* const tuned = Split(group, "tuned", {0, 1}, link);
        if (tuned == nullptr) return 1;
        Say(link, "tune", tuned, Tune(tuned, 256));
        Say(link, "save", tuned, cotune_save(tuned, database_.c_str()));
        cotune_group* const pair = Split(group, "pair", {0, 1}, link);
        if (pair == nullptr) return 1;
        cotune_group* const turned = Split(group, "turned", {0, 2, 1}, link);
        if (turned == nullptr) return 1;
        Say(link, "load", pair, cotune_load(pair, database_.c_str()));
        Say(link, "call", pair, Reduce(pair));
        link.Report("explained " + Explained(pair));
        cotune_group_destroy(turned);
        cotune_group_destroy(pair);
        cotune_group_destroy(tuned);
      } else {
        cotune_group_destroy(Split(group, "turned", {0, 2, 1}, link));
      }
      cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  for (size_t rank : {0, 1}) {
    SCOPED_TRACE(ranks.Transcript());
    EXPECT_THAT(ranks.LinesOf(rank, "tune "), ElementsAre("0 "));
    EXPECT_THAT(ranks.LinesOf(rank, "save "), ElementsAre("0 "));
    EXPECT_THAT(
        ranks.LinesOf(rank, "load "),
        ElementsAre(AllOf(StartsWith("12 "), HasSubstr("rank 0 lists fake/fast, rank 1 does not"),
                          HasSubstr("all_reduce/sum/f32"))));
    EXPECT_THAT(ranks.LinesOf(rank, "call "), ElementsAre("0 "));
    EXPECT_THAT(ranks.LinesOf(rank, "explained "), ElementsAre(HasSubstr("not tuned")));
  }
}

// A choice that was measured and saved by a group in which every rank can make it ready. In the
// group that loads it one rank cannot, and all of them hear so before anybody says yes.
void ExpectNamedAndNotLoaded(const RankProcesses& ranks, const std::string& reason) {
  SCOPED_TRACE(ranks.Transcript());
  for (size_t rank : {0, 1}) {
    EXPECT_THAT(ranks.LinesOf(rank, "tune "), ElementsAre("0 "));
    EXPECT_THAT(ranks.LinesOf(rank, "save "), ElementsAre("0 "));
    EXPECT_THAT(ranks.LinesOf(rank, "load "),
                ElementsAre(AllOf(StartsWith("12 "), HasSubstr("rank 1 cannot run fake/fast"),
                                  HasSubstr("all_reduce/sum/f32"), HasSubstr(reason))));
    EXPECT_THAT(ranks.LinesOf(rank, "call "), ElementsAre("0 "));
    EXPECT_THAT(ranks.LinesOf(rank, "explained "), ElementsAre(HasSubstr("not tuned")));
    EXPECT_THAT(ranks.LinesOf(rank, "tuned "), ElementsAre(HasSubstr("tuned for sizes")));
  }
}

TEST_F(CApiLoad, ALoadedWinnerThatOneRankCannotPrepareIsNamedAndTheGroupGoesOn) {
  for (const std::string how : {"refused", "fails"}) {
    SetFakeScript("choice usual default cost_us=100000; choice fast prepare_only_in=pair prepare_" +
                  how + "_on=1");
    RankProcesses ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.Start([this, rank](TestLink& link) {
        cotune_group* const group = Create(rank, 2, link, fake_plugins_);
        if (group == nullptr) return 1;
        Say(link, "tune", group, Tune(group, 256));
        Say(link, "save", group, cotune_save(group, database_.c_str()));
        cotune_group* const pair = Split(group, "pair", {0, 1}, link);
        if (pair == nullptr) return 1;
        Say(link, "load", pair, cotune_load(pair, database_.c_str()));
        Say(link, "call", pair, Reduce(pair));
        link.Report("explained " + Explained(pair));
        link.Report("tuned " + Explained(group));
        cotune_group_destroy(pair);
        cotune_group_destroy(group);
        return 0;
      });
    }
    ASSERT_TRUE(ranks.WaitForEnd({0, 1}, kPatienceNs)) << ranks.Transcript();
    ExpectNamedAndNotLoaded(ranks, how == "fails" ? "prepare fails" : "prepare refuses");
  }
}

// Two builds of a plugin with one version: the id that the linker wrote tells them apart.
TEST_F(CApiLoad, AnotherBuildOfAPluginIsNotTakenForTheSame) {
  const std::string other = folder_.path() + "/other";
  CopyPlugin("host", other);
  const std::string path = other + "/cotune_host.so";
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  // The head of the note: sizes of name and id, its type, its name.
  constexpr std::string_view kNote("\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0", 16);
  const size_t note = bytes.find(kNote);
  if (note != std::string::npos) {
    bytes[note + kNote.size()] ^= 1;
  } else {
    bytes += '\0';  // without a note the whole file counts
  }
  std::ofstream(path, std::ios::binary) << bytes;
  RankProcesses ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.Start([&, rank](TestLink& link) {
      return Create(rank, 2, link, rank == 1 ? other : plugins_) == nullptr ? 0 : 1;
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd({0, 1}, kPatienceNs)) << ranks.Transcript();
  for (size_t rank : {0, 1}) {
    EXPECT_THAT(ranks.LinesOf(rank, "create "),
                ElementsAre(AllOf(StartsWith("3 "), HasSubstr("no backend can be used"),
                                  HasSubstr("rank 1 has 'host"), HasSubstr(" build "))))
        << ranks.Transcript();
  }
}

// The differences are larger than what a busy processor and a sanitizer add to a call.
constexpr char kOrders[] =
    "choice ring default cost_us=90000 numerics=ring; choice tree cost_us=20 numerics=tree; "
    "choice order cost_us=30000 numerics=rank_order_f32";

cotune_result TuneBy(cotune_group* group, cotune_numerics numerics, uint64_t bytes,
                     const char* database = nullptr) {
  cotune_tune_options options{};
  options.struct_size = sizeof(options);
  options.collectives = 1u << COTUNE_COLLECTIVE_ALL_REDUCE;
  options.sizes_bytes = &bytes;
  options.size_count = 1;
  options.database_path = database;
  options.numerics = numerics;
  return cotune_tune(group, &options, nullptr);
}

TEST_F(CApiLoad, ATuneBySameNumericsDropsWinnersOfAnyAndCallsFollowIt) {
  SetFakeScript(kOrders);
  RankProcesses ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_group* const group = Create(rank, 2, link, fake_plugins_);
      if (group == nullptr) return 1;
      link.Report("before " + Explained(group));
      Say(link, "wrong_value", group, TuneBy(group, 3, 256));
      Say(link, "any", group, TuneBy(group, COTUNE_NUMERICS_ANY, 256, database_.c_str()));
      link.Report("after_any " + Explained(group));
      Say(link, "differing", group,
          TuneBy(group, rank == 0 ? COTUNE_NUMERICS_ANY : COTUNE_NUMERICS_SAME, 256));
      link.Report("after_differing " + Explained(group));
      // Another size: the row that `any` had won at 256 bytes would stay beside it.
      Say(link, "same", group, TuneBy(group, COTUNE_NUMERICS_SAME, 1 << 20, database_.c_str()));
      Say(link, "call", group, Reduce(group));
      link.Report("after_same " + Explained(group));
      Say(link, "default", group, TuneBy(group, COTUNE_NUMERICS_DEFAULT, 512));
      link.Report("after_default " + Explained(group, 128));
      cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd({0, 1}, kPatienceNs)) << ranks.Transcript();
  for (size_t rank : {0, 1}) {
    SCOPED_TRACE(ranks.Transcript());
    EXPECT_THAT(ranks.LinesOf(rank, "before "), ElementsAre(HasSubstr("runs fake/ring")));
    EXPECT_THAT(
        ranks.LinesOf(rank, "wrong_value "),
        ElementsAre(AllOf(StartsWith("2 "), HasSubstr("there is no numerics 3"),
                          HasSubstr("cotune_tune_options"), HasSubstr("COTUNE_NUMERICS_SAME"))));
    EXPECT_THAT(ranks.LinesOf(rank, "any "), ElementsAre("0 "));
    EXPECT_THAT(ranks.LinesOf(rank, "after_any "), ElementsAre(HasSubstr("runs fake/tree")));
    EXPECT_THAT(
        ranks.LinesOf(rank, "differing "),
        ElementsAre(AllOf(StartsWith("12 "), HasSubstr("disagrees about 'setting numerics'"))));
    EXPECT_THAT(ranks.LinesOf(rank, "after_differing "), ElementsAre(HasSubstr("runs fake/tree")));
    EXPECT_THAT(ranks.LinesOf(rank, "same "), ElementsAre("0 "));
    EXPECT_THAT(ranks.LinesOf(rank, "call "), ElementsAre("0 "));
    EXPECT_THAT(ranks.LinesOf(rank, "after_same "), ElementsAre(HasSubstr("runs fake/order")));
    EXPECT_THAT(ranks.LinesOf(rank, "after_default "), ElementsAre(HasSubstr("runs fake/order")));
  }
}

TEST_F(CApiLoad, AGroupBySameNumericsTakesNoTableThatAnyHasMade) {
  SetFakeScript(kOrders);
  const auto run = [&](const std::function<void(cotune_group*, TestLink&)>& body) {
    RankProcesses ranks;
    for (int rank = 0; rank < 2; ++rank) {
      ranks.Start([&, rank](TestLink& link) {
        cotune_group* const group = Create(rank, 2, link, fake_plugins_);
        if (group == nullptr) return 1;
        body(group, link);
        cotune_group_destroy(group);
        return 0;
      });
    }
    EXPECT_TRUE(ranks.WaitForEnd({0, 1}, kPatienceNs)) << ranks.Transcript();
    std::vector<std::vector<std::string>> lines;
    for (const size_t rank : {0, 1}) lines.push_back(ranks.LinesOf(rank, "said "));
    return lines;
  };
  run([&](cotune_group* group, TestLink& link) {
    Say(link, "said", group, TuneBy(group, COTUNE_NUMERICS_ANY, 256, database_.c_str()));
  });
  setenv("COTUNE_NUMERICS", "same", 1);
  const auto loaded = run([&](cotune_group* group, TestLink& link) {
    Say(link, "said load", group, cotune_load(group, database_.c_str()));
    link.Report("said " + Explained(group));
    Say(link, "said call", group, Reduce(group));
  });
  unsetenv("COTUNE_NUMERICS");
  for (const auto& lines : loaded) {
    EXPECT_THAT(lines, ElementsAre(AllOf(StartsWith("load 7 "), HasSubstr("measuring_mode")),
                                   HasSubstr("runs fake/order"), "call 0 "));
  }
}

}  // namespace
}  // namespace cotune
