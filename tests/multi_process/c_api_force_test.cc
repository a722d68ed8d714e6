// Choices that a user forces, through the C API, in real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <functional>
#include <string>

#include "fmt/format.h"
#include "integration/capi/cotune.h"
#include "tests/multi_process/testing/c_api_ranks.h"
#include "tests/multi_process/testing/checked_program.h"
#include "tests/multi_process/testing/rank_processes.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The choice "wrong" gives wrong values on rank 1, so that a call shows that it has run.
constexpr char kScript[] =
    "choice usual default cost_us=20000; choice fast; choice wrong wrong_on=1 bytes_max=256; parts";

class CApiForce : public CApiRanks {
 protected:
  CApiForce() { SetFakeScript(kScript); }

  void RunRanks(const std::function<void(cotune_group*, int, TestLink&)>& work) {
    for (int rank = 0; rank < 2; ++rank) {
      ranks_.Start([this, rank, work](TestLink& link) {
        cotune_group* const group = Create(rank, 2, link, fake_plugins_);
        if (group == nullptr) return 1;
        work(group, rank, link);
        cotune_group_destroy(group);
        return 0;
      });
    }
    ASSERT_TRUE(ranks_.WaitForEnd({0, 1}, kPatienceNs)) << ranks_.Transcript();
  }

  RankProcesses ranks_;
};

std::string ReportText(const cotune_tune_report& report) {
  return fmt::format("{} measured, {} known, {} skipped", report.measured, report.known,
                     report.skipped);
}

std::string TuneText(cotune_group* group, uint64_t bytes, const char* database) {
  cotune_tune_report report{};
  report.struct_size = sizeof(report);
  const cotune_result result = Tune(group, bytes, database, &report);
  return result == COTUNE_SUCCESS ? ReportText(report) : cotune_last_error(group);
}

TEST_F(CApiForce, AForcedChoiceRunsBeforeAndAfterATuneAndALoad) {
  force_ = "all_reduce=fake/wrong";
  RunRanks([&](cotune_group* group, int, TestLink& link) {
    Say(link, "first", group, Reduce(group));
    link.Report("first_explained " + Explained(group));
    link.Report("tune " + TuneText(group, 256, database_.c_str()));
    link.Report("tune_beyond " + TuneText(group, 4096, database_.c_str()));
    Say(link, "tuned", group, Reduce(group));
    link.Report("beyond_explained " + Explained(group, 1024));
    Say(link, "beyond", group, Reduce(group, 1024));
    Say(link, "load", group, cotune_load(group, database_.c_str()));
    Say(link, "loaded", group, Reduce(group));
    cotune_group* const pair = Split(group, "pair", {1, 0}, link);
    Say(link, "pair", pair, Reduce(pair));
    cotune_group_destroy(pair);
  });
  for (const char* when : {"first ", "tuned ", "loaded "}) {
    EXPECT_THAT(ranks_.LinesOf(0, when), ElementsAre("0 ")) << ranks_.Transcript();
    EXPECT_THAT(ranks_.LinesOf(1, when), ElementsAre(fmt::format("{} ", COTUNE_ERROR_WRONG_RESULT)))
        << when << ranks_.Transcript();
  }
  // The fake backend takes the rank in the group of this rank that was made last.
  EXPECT_THAT(ranks_.LinesOf(0, "pair "),
              ElementsAre(fmt::format("{} ", COTUNE_ERROR_WRONG_RESULT)))
      << ranks_.Transcript();
  for (const size_t rank : {0, 1}) {
    SCOPED_TRACE(ranks_.Transcript());
    EXPECT_THAT(ranks_.LinesOf(rank, "first_explained "),
                ElementsAre(AllOf(HasSubstr("runs fake/wrong"))));
    EXPECT_THAT(ranks_.LinesOf(rank, "tune "), ElementsAre("0 measured, 0 known, 1 skipped"));
    EXPECT_THAT(ranks_.LinesOf(rank, "tune_beyond "),
                ElementsAre("1 measured, 0 known, 0 skipped"));
    EXPECT_THAT(ranks_.LinesOf(rank, "beyond "), ElementsAre("0 "));
    EXPECT_THAT(ranks_.LinesOf(rank, "beyond_explained "),
                ElementsAre(HasSubstr("runs fake/fast")));
    EXPECT_THAT(ranks_.LinesOf(rank, "load "), ElementsAre("0 "));
  }
  EXPECT_THAT(ranks_.LinesOf(0, "log 2 "),
              ElementsAre(AllOf(HasSubstr("of 4096 bytes does not run its forced choice"),
                                HasSubstr("option force of the group"))));
}

TEST_F(CApiForce, TheVariableForcesACollectiveOfAProgram) {
  setenv("COTUNE_FORCE_CHOICE", "all_reduce=fake/wrong", 1);
  RunRanks([&](cotune_group* group, int rank, TestLink& link) {
    constexpr char kText[] =
        "%x = input f32 [R, 1]\n%s = all_reduce sum %x\n%y = neg %s\nreturn %y\n";
    for (const uint64_t rows : {64, 65}) {
      CheckedProgram program(kText, rows, rank, 2, 1);
      link.Report(fmt::format("rows {} {}", rows, program.Run(group).empty() ? "right" : "wrong"));
      char text[4096] = "";
      cotune_explain_program_json(group, program.handle(), rows, text, sizeof(text), nullptr);
      link.Report(fmt::format("explained {}", text));
    }
  });
  unsetenv("COTUNE_FORCE_CHOICE");
  SCOPED_TRACE(ranks_.Transcript());
  EXPECT_THAT(ranks_.LinesOf(0, "rows "), ElementsAre("64 right", "65 right"));
  EXPECT_THAT(ranks_.LinesOf(1, "rows "), ElementsAre("64 wrong", "65 right"));
  for (const size_t rank : {0, 1}) {
    EXPECT_THAT(ranks_.LinesOf(rank, "explained "),
                ElementsAre(AllOf(HasSubstr("\"source\": \"forced\""), HasSubstr("\"fake/wrong\"")),
                            AllOf(HasSubstr("\"source\": \"default\""),
                                  HasSubstr("\"forced_refused\": \"fake/wrong: "))));
  }
}

TEST_F(CApiForce, RanksThatForceOtherChoicesAreNamed) {
  force_ = "all_reduce=fake/fast";
  for (int rank = 0; rank < 2; ++rank) {
    ranks_.Start([this, rank](TestLink& link) {
      if (rank == 1) force_ = "all_reduce=fake/usual";
      return Create(rank, 2, link, fake_plugins_) == nullptr ? 0 : 1;
    });
  }
  ASSERT_TRUE(ranks_.WaitForEnd({0, 1}, kPatienceNs)) << ranks_.Transcript();
  for (const size_t rank : {0, 1}) {
    EXPECT_THAT(
        ranks_.LinesOf(rank, "create "),
        ElementsAre(AllOf(StartsWith(fmt::format("{} ", COTUNE_ERROR_DISAGREEMENT)),
                          HasSubstr("'setting force_choice'"), HasSubstr("'all_reduce=fake/usual'"),
                          HasSubstr("'all_reduce=fake/fast'"))))
        << ranks_.Transcript();
  }
}

TEST_F(CApiForce, ANameThatNoBackendHasIsAnErrorOnAllRanks) {
  force_ = "all_reduce=fake/fats";
  for (int rank = 0; rank < 2; ++rank) {
    ranks_.Start([this, rank](TestLink& link) {
      return Create(rank, 2, link, fake_plugins_) == nullptr ? 0 : 1;
    });
  }
  ASSERT_TRUE(ranks_.WaitForEnd({0, 1}, kPatienceNs)) << ranks_.Transcript();
  for (const size_t rank : {0, 1}) {
    EXPECT_THAT(ranks_.LinesOf(rank, "create "),
                ElementsAre(AllOf(StartsWith(fmt::format("{} ", COTUNE_ERROR_USAGE)),
                                  HasSubstr("fake/fats cannot run all_reduce"),
                                  HasSubstr("option force of the group"),
                                  HasSubstr("did you mean fake/fast?"))))
        << ranks_.Transcript();
  }
}

}  // namespace
}  // namespace cotune
