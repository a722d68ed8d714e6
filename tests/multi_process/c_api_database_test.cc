// The tuned database that a group of the C API begins with, or is asked to load: real processes,
// only cotune.h, the shared library and plugins.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "integration/capi/cotune.h"
#include "tests/multi_process/testing/c_api_ranks.h"
#include "tests/multi_process/testing/rank_processes.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class CApiDatabase : public CApiRanks {
 protected:
  using Work = std::function<void(cotune_group*, int rank, TestLink&)>;

  void RunRanks(int world_size, const Work& work) {
    reports_.clear();
    RankProcesses ranks;
    std::vector<size_t> all;
    for (int rank = 0; rank < world_size; ++rank) {
      all.push_back(rank);
      ranks.Start([&, rank](TestLink& link) {
        cotune_group* const group = Create(rank, world_size, link);
        if (group == nullptr) return 1;
        work(group, rank, link);
        cotune_group_destroy(group);
        return 0;
      });
    }
    ASSERT_TRUE(ranks.WaitForEnd(all, kPatienceNs)) << ranks.Transcript();
    for (const size_t rank : all) {
      EXPECT_EQ(ranks.ExitOf(rank), 0) << ranks.Transcript();
      reports_.push_back(ranks.LinesOf(rank));
    }
  }

  // Two calls, of which the first says which table there is, and what is explained.
  static void CallAndExplain(cotune_group* group, TestLink& link) {
    Say(link, "call", group, Reduce(group));
    Say(link, "call", group, Reduce(group));
    const std::string text = Explained(group);
    const bool is_tuned = text.find("tuned for sizes") != std::string::npos;
    link.Report(is_tuned ? "tuned" : "default");
  }

  void TuneInto(const std::string& path) {
    RunRanks(2, [&](cotune_group* group, int, TestLink& link) {
      const cotune_result tuned = Tune(group, 256, path.c_str());
      if (tuned != COTUNE_SUCCESS) Say(link, "tune", group, tuned);
    });
    EXPECT_THAT(reports_, Each(IsEmpty()));
  }

  std::vector<std::vector<std::string>> reports_;  // by rank
};

TEST_F(CApiDatabase, IsTakenFromWhereTheUserNamesItBySubgroupsToo) {
  TuneInto(database_);
  setenv("COTUNE_DATABASE", database_.c_str(), 1);
  RunRanks(2, [](cotune_group* group, int, TestLink& link) { CallAndExplain(group, link); });
  EXPECT_THAT(reports_[0],
              ElementsAre(AllOf(StartsWith("log 1 calls run by the tuned database " + database_),
                                HasSubstr("1 measured size for 2 ranks")),
                          "call 0 ", "call 0 ", "tuned"));
  EXPECT_THAT(reports_[1], ElementsAre("call 0 ", "call 0 ", "tuned"));
  // Three ranks have no entries, which is a warning, and a pair of them has.
  RunRanks(3, [](cotune_group* group, int rank, TestLink& link) {
    if (rank != 1) {
      cotune_group* const pair = Split(group, "pair", {2, 0}, link);
      if (pair != nullptr) CallAndExplain(pair, link);
      cotune_group_destroy(pair);
    }
    CallAndExplain(group, link);
  });
  EXPECT_THAT(reports_[2],
              ElementsAre(StartsWith("log 1 calls run by the tuned database"), "call 0 ", "call 0 ",
                          "tuned", "call 0 ", "call 0 ", "default"));
  EXPECT_THAT(reports_[0],
              ElementsAre("call 0 ", "call 0 ", "tuned",
                          AllOf(StartsWith("log 2 calls run the default choices: nothing is tuned "
                                           "for 3 ranks, only for groups of 2 ("),
                                HasSubstr(database_)),
                          "call 0 ", "call 0 ", "default"));
}

TEST_F(CApiDatabase, OfOtherSettingsOfABackendIsAWarningThatBeginsWithThem) {
  TuneInto(database_);
  setenv("COTUNE_DATABASE", database_.c_str(), 1);
  const std::string config = folder_.path() + "/config.toml";
  std::ofstream(config) << "[host]\nslot_bytes = \"1M\"\n";
  setenv("COTUNE_CONFIG", config.c_str(), 1);
  RunRanks(2, [](cotune_group* group, int, TestLink& link) { CallAndExplain(group, link); });
  EXPECT_THAT(
      reports_[0],
      ElementsAre(AllOf(StartsWith("log 2 calls run the default choices: what was tuned "
                                   "for 2 ranks is not valid here: backend host: '"),
                        HasSubstr("slot_bytes=1M"), HasSubstr(database_),
                        HasSubstr("tune here, or give the settings, backends and libraries")),
                  "call 0 ", "call 0 ", "default"));
}

TEST_F(CApiDatabase, IsLookedForInTheUsualPlace) {
  const auto call = [](cotune_group* group, int, TestLink& link) { CallAndExplain(group, link); };
  RunRanks(2, call);
  const std::string start = "log 1 calls run the default choices: there is no tuned database (";
  EXPECT_THAT(reports_[0], ElementsAre(StartsWith(start), "call 0 ", "call 0 ", "default"));
  // The line names the place.
  const std::string line = reports_[0].front();
  const std::string place = line.substr(start.size(), line.find(')') - start.size());
  ASSERT_THAT(place, StartsWith(folder_.path() + "/cache/cotune/"));
  std::filesystem::create_directories(std::filesystem::path(place).parent_path());
  {
    // Holds the lock as a tune does.
    const int lock = open((place + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_EQ(flock(lock, LOCK_EX), 0);
    ASSERT_GT(dprintf(lock, "%d\n", getpid()), 0);
    RunRanks(2, call);
    close(lock);
  }
  EXPECT_THAT(reports_[0].front(),
              AllOf(StartsWith(start), HasSubstr("process " + std::to_string(getpid()) +
                                                 " is writing to it; wait until it ends")));
  TuneInto(place);
  RunRanks(2, call);
  EXPECT_THAT(reports_[0], Contains("tuned"));
  EXPECT_THAT(reports_[1], Contains("tuned"));
  {
    const int lock = open((place + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_EQ(flock(lock, LOCK_EX), 0);
    ASSERT_GT(dprintf(lock, "%d\n", getpid()), 0);
    RunRanks(2, call);
    close(lock);
  }
  EXPECT_THAT(reports_[0].front(),
              AllOf(StartsWith("log 2 calls run by the tuned database " + place),
                    HasSubstr("; process " + std::to_string(getpid()) + " is writing to " + place +
                              "; the results used are from before that")));
  EXPECT_THAT(reports_[0], Contains("tuned"));
}

// The group's own database is read and written by a tune that names "".
TEST_F(CApiDatabase, IsTheGroupsOwnForATuneThatAsksForIt) {
  const auto tune_and_call = [](cotune_group* group, int, TestLink& link) {
    cotune_tune_report report{};
    report.struct_size = sizeof(report);
    Say(link, "tune", group, Tune(group, 256, "", &report));
    link.Report("measured " + std::to_string(report.measured) + " known " +
                std::to_string(report.known));
    CallAndExplain(group, link);
  };
  RunRanks(2, tune_and_call);
  EXPECT_THAT(reports_[1],
              ElementsAre("tune 0 ", "measured 1 known 0", "call 0 ", "call 0 ", "tuned"));
  RunRanks(2, tune_and_call);
  EXPECT_THAT(reports_[1],
              ElementsAre("tune 0 ", "measured 0 known 1", "call 0 ", "call 0 ", "tuned"));
}

TEST_F(CApiDatabase, IsNoConditionOfATuneThatAsksForTheGroupsOwn) {
  // Even root cannot make a file in a folder that is a file.
  const std::string blocked = folder_.path() + "/blocked";
  std::ofstream(blocked) << "a file";
  setenv("COTUNE_DATABASE", (blocked + "/tuned.tdb").c_str(), 1);
  RunRanks(2, [](cotune_group* group, int, TestLink& link) {
    Say(link, "tune", group, Tune(group, 256, ""));
    CallAndExplain(group, link);
  });
  EXPECT_THAT(reports_[0],
              Contains(AllOf(StartsWith("log 2 what is tuned is not kept"), HasSubstr(blocked))));
  EXPECT_THAT(reports_[1], ElementsAre("tune 0 ", "call 0 ", "call 0 ", "tuned"));
  EXPECT_THAT(reports_[0], Contains("tuned"));
}

// Lets the tunes of two groups run side by side: each measures while the other one does.
class SideBySide {
 public:
  SideBySide()
      : measure_(static_cast<sem_t*>(mmap(nullptr, 2 * sizeof(sem_t), PROT_READ | PROT_WRITE,
                                          MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {
    for (int tune = 0; tune < 2; ++tune) sem_init(&measure_[tune], 1, 0);
  }
  // By the first rank of the tune, when it begins to measure.
  void FirstMeasures() {
    if (std::exchange(has_met_, true)) return;  // a cell that takes long is reported again
    sem_post(&measure_[0]);
    sem_wait(&measure_[1]);
  }
  void AwaitFirst() { sem_wait(&measure_[0]); }
  void SecondMeasures() { sem_post(&measure_[1]); }

 private:
  sem_t* const measure_;
  bool has_met_ = false;  // if this process has met the others
};

// Groups of one job tune into one file at the same time, as those of a mesh do.
TEST_F(CApiDatabase, KeepsWhatTwoGroupsTuneSideBySide) {
  SideBySide order;
  const auto tune = [&](cotune_group* pair, int rank, bool is_together, TestLink& link) {
    const uint64_t bytes = rank < 2 ? 256 : 1024;
    cotune_tune_options options{};
    options.struct_size = sizeof(options);
    options.collectives = 1u << COTUNE_COLLECTIVE_ALL_REDUCE;
    options.sizes_bytes = &bytes;
    options.size_count = 1;
    options.database_path = database_.c_str();
    options.progress_context = &order;
    if (is_together && rank == 2) order.AwaitFirst();
    if (is_together && rank == 0) {
      options.progress = [](void* context, int32_t, int32_t, const char*) {
        static_cast<SideBySide*>(context)->FirstMeasures();
        return 0;
      };
    } else if (is_together && rank == 2) {
      options.progress = [](void* context, int32_t, int32_t, const char*) {
        static_cast<SideBySide*>(context)->SecondMeasures();
        return 0;
      };
    }
    cotune_tune_report report{};
    report.struct_size = sizeof(report);
    Say(link, "tune", pair, cotune_tune(pair, &options, &report));
    link.Report("measured " + std::to_string(report.measured) + " known " +
                std::to_string(report.known));
  };
  for (const bool is_together : {true, false}) {
    RunRanks(4, [&](cotune_group* group, int rank, TestLink& link) {
      cotune_group* const pair =
          rank < 2 ? Split(group, "low", {0, 1}, link) : Split(group, "high", {2, 3}, link);
      if (pair != nullptr) tune(pair, rank, is_together, link);
      cotune_group_destroy(pair);
    });
    EXPECT_THAT(reports_, Each(ElementsAre("tune 0 ", is_together ? "measured 1 known 0"
                                                                  : "measured 0 known 1")));
  }
}

// One rank ends the tune in front of its third cell of five. The next one measures three.
TEST_F(CApiDatabase, GoesOnFromATuneThatACallerHasStopped) {
  RunRanks(2, [&](cotune_group* group, int rank, TestLink& link) {
    constexpr uint64_t kBytes[] = {256, 512, 1024, 2048, 4096};
    cotune_tune_options options{};
    options.struct_size = sizeof(options);
    options.collectives = 1u << COTUNE_COLLECTIVE_ALL_REDUCE;
    options.sizes_bytes = kBytes;
    options.size_count = 5;
    options.database_path = database_.c_str();
    const int32_t last = rank == 1 ? 3 : 5;
    options.progress_context = const_cast<int32_t*>(&last);
    options.progress = [](void* context, int32_t cell, int32_t, const char*) {
      return cell == *static_cast<const int32_t*>(context) ? 1 : 0;
    };
    cotune_tune_report report{};
    report.struct_size = sizeof(report);
    Say(link, "stopped", group, cotune_tune(group, &options, &report));
    CallAndExplain(group, link);
    options.progress = nullptr;
    Say(link, "tune", group, cotune_tune(group, &options, &report));
    link.Report("measured " + std::to_string(report.measured) + " known " +
                std::to_string(report.known));
  });
  for (const auto& of_rank : reports_) {
    ASSERT_GE(of_rank.size(), 3u);
    EXPECT_THAT(of_rank.front(), AllOf(StartsWith("stopped 11 "), HasSubstr("interrupted")));
    EXPECT_THAT(of_rank, Contains("call 0 "));
    EXPECT_THAT(of_rank.back(), "measured 3 known 2");
  }
  EXPECT_THAT(reports_[0].front(), HasSubstr("the next tune continues from there"));
}

// The folder is gone when the ranks have measured. What they have agreed on is in force.
TEST_F(CApiDatabase, ThatCannotBeSavedLeavesTheTunedTableInForce) {
  const std::string folder = folder_.path() + "/gone";
  std::filesystem::create_directory(folder);
  RunRanks(2, [&](cotune_group* group, int rank, TestLink& link) {
    constexpr uint64_t kBytes = 256;
    const std::string path = folder + "/tuned.tdb";
    cotune_tune_options options{};
    options.struct_size = sizeof(options);
    options.collectives = 1u << COTUNE_COLLECTIVE_ALL_REDUCE;
    options.sizes_bytes = &kBytes;
    options.size_count = 1;
    options.database_path = path.c_str();
    options.progress_context = const_cast<std::string*>(&folder);
    if (rank == 0) {
      options.progress = [](void* context, int32_t, int32_t, const char*) {
        std::filesystem::remove_all(*static_cast<std::string*>(context));
        return 0;
      };
    }
    cotune_tune_report report{};
    report.struct_size = sizeof(report);
    Say(link, "tune", group, cotune_tune(group, &options, &report));
    link.Report("is_tuned " + std::to_string(report.is_tuned));
    CallAndExplain(group, link);
    Say(link, "save", group, cotune_save(group, database_.c_str()));
  });
  const auto failed = AllOf(StartsWith("tune 3 "), HasSubstr(folder));
  EXPECT_THAT(reports_[0],
              ElementsAre(failed, "is_tuned 1", StartsWith("log 1 calls run by what this program"),
                          "call 0 ", "call 0 ", "tuned", "save 0 "));
  EXPECT_THAT(reports_[1],
              ElementsAre(failed, "is_tuned 1", "call 0 ", "call 0 ", "tuned", "save 0 "));
}

TEST_F(CApiDatabase, IsTakenFromWhereTheSettingsFileNamesIt) {
  TuneInto(database_);
  const std::string config = folder_.path() + "/config.toml";
  std::ofstream(config) << "database = \"" << database_ << "\"\n";
  setenv("COTUNE_CONFIG", config.c_str(), 1);
  RunRanks(2, [](cotune_group* group, int, TestLink& link) {
    CallAndExplain(group, link);
    cotune_group* const turned = Split(group, "turned", {1, 0}, link);
    if (turned != nullptr) CallAndExplain(turned, link);
    cotune_group_destroy(turned);
  });
  const auto line = StartsWith("log 1 calls run by the tuned database " + database_);
  EXPECT_THAT(reports_[0],
              ElementsAre(line, "call 0 ", "call 0 ", "tuned", "call 0 ", "call 0 ", "tuned"));
  EXPECT_THAT(reports_[1],
              ElementsAre("call 0 ", "call 0 ", "tuned", line, "call 0 ", "call 0 ", "tuned"));
}

TEST_F(CApiDatabase, IsNotLookedForWhereOneRankDoesNotWantItUntilItIsAskedFor) {
  TuneInto(database_);
  setenv("COTUNE_DATABASE", database_.c_str(), 1);
  const auto work = [](cotune_group* group, int, TestLink& link) {
    CallAndExplain(group, link);
    Say(link, "load", group, cotune_load(group, nullptr));
    CallAndExplain(group, link);
  };
  setenv("COTUNE_LOAD_DATABASE", "off", 1);
  RunRanks(2, work);
  unsetenv("COTUNE_LOAD_DATABASE");
  const auto expect_asked = [&] {
    EXPECT_THAT(reports_[0],
                ElementsAre(StartsWith("log 1 calls run the default choices"), "call 0 ", "call 0 ",
                            "default", "load 0 ", "call 0 ", "call 0 ", "tuned"));
    EXPECT_THAT(reports_[1], ElementsAre("call 0 ", "call 0 ", "default", "load 0 ", "call 0 ",
                                         "call 0 ", "tuned"));
  };
  expect_asked();
  ignores_database_on_ = 1;
  RunRanks(2, work);
  expect_asked();
}

TEST_F(CApiDatabase, ThatCannotBeReadOrIsMissingWhereItWasNamedIsOneWarning) {
  const auto call = [](cotune_group* group, int, TestLink& link) { CallAndExplain(group, link); };
  setenv("COTUNE_DATABASE", database_.c_str(), 1);
  RunRanks(2, call);
  EXPECT_THAT(reports_[0],
              ElementsAre(AllOf(StartsWith("log 2 calls run the default choices: there is no"),
                                HasSubstr(database_)),
                          "call 0 ", "call 0 ", "default"));
  TuneInto(database_);
  std::filesystem::resize_file(database_, std::filesystem::file_size(database_) - 1);
  RunRanks(2, call);
  EXPECT_THAT(reports_[0], ElementsAre(AllOf(StartsWith("log 2 calls run the default choices:"),
                                             HasSubstr(database_)),
                                       "call 0 ", "call 0 ", "default"));
  EXPECT_THAT(reports_[1], ElementsAre("call 0 ", "call 0 ", "default"));
}

TEST_F(CApiDatabase, ThatOthersCanChangeIsOneWarningAndIsRefusedWhereItIsAskedFor) {
  TuneInto(database_);
  setenv("COTUNE_DATABASE", database_.c_str(), 1);
  const auto expect_refused = [this](const std::string& why) {
    RunRanks(2, [this](cotune_group* group, int, TestLink& link) {
      CallAndExplain(group, link);
      Say(link, "load", group, cotune_load(group, database_.c_str()));
      CallAndExplain(group, link);
    });
    const auto refused = AllOf(StartsWith("load 7 "), HasSubstr("is not trusted"), HasSubstr(why));
    EXPECT_THAT(reports_[0], ElementsAre(AllOf(StartsWith("log 2 calls run the default choices:"),
                                               HasSubstr(database_), HasSubstr(why)),
                                         "call 0 ", "call 0 ", "default", refused, "call 0 ",
                                         "call 0 ", "default"));
    EXPECT_THAT(reports_[1], ElementsAre("call 0 ", "call 0 ", "default", StartsWith("load 7 "),
                                         "call 0 ", "call 0 ", "default"));
  };
  ASSERT_EQ(chmod(database_.c_str(), 0664), 0);
  expect_refused("may write to it");
  ASSERT_EQ(chmod(database_.c_str(), 0644), 0);
  // The plugins of the test lie beside this folder: theirs would be refused, too.
  const std::string open_folder = folder_.path() + "/open";
  std::filesystem::create_directory(open_folder);
  std::filesystem::rename(database_, open_folder + "/tuned.tdb");
  database_ = open_folder + "/tuned.tdb";
  setenv("COTUNE_DATABASE", database_.c_str(), 1);
  ASSERT_EQ(chmod(open_folder.c_str(), 0777), 0);
  expect_refused("folder " + open_folder);
}

}  // namespace
}  // namespace cotune
