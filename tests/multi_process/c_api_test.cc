// The C API from the outside: four processes, only cotune.h, the shared library and a plugin.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "integration/capi/cotune.h"
#include "tests/multi_process/testing/c_api_calls.h"
#include "tests/multi_process/testing/rank_processes.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int64_t kPatienceNs = 120 * kSecondNs;

// The environment that a test's ranks run with. A plugin is a copy: it counts only as a file that
// nobody else may write.
class CApi : public ::testing::Test {
 protected:
  using Work = std::function<void(cotune_group*, int rank, TestLink&)>;

  CApi() {
    std::filesystem::create_directory(plugins_);
    std::filesystem::copy_file(std::filesystem::canonical("plugins/host/cotune_host.so"),
                               plugins_ + "/cotune_host.so");
    std::filesystem::permissions(plugins_ + "/cotune_host.so", std::filesystem::perms(0755));
  }

  cotune_group_options Options(int rank, int world_size) const {
    cotune_group_options options{};
    options.struct_size = sizeof(options);
    options.rank = rank;
    options.world_size = world_size;
    options.socket_path = socket_.c_str();
    options.plugin_path = plugins_.c_str();
    options.call_timeout_ns = 20 * kSecondNs;
    return options;
  }

  // Every rank makes the group of all, does the work and destroys it.
  void RunRanks(const Work& work) {
    RankProcesses ranks;
    for (int rank = 0; rank < kWorldSize; ++rank) {
      ranks.Start([&, rank](TestLink& link) {
        const cotune_group_options options = Options(rank, kWorldSize);
        cotune_group* group = nullptr;
        cotune_error error{};
        error.struct_size = sizeof(error);
        if (cotune_group_create(&options, &group, &error) != COTUNE_SUCCESS) {
          link.Report(fmt::format("create: {}", error.text));
          return 1;
        }
        work(group, rank, link);
        cotune_group_destroy(group);
        return 0;
      });
    }
    ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2, 3}, kPatienceNs)) << ranks.Transcript();
    for (size_t rank = 0; rank < kWorldSize; ++rank) {
      EXPECT_EQ(ranks.ExitOf(rank), 0) << ranks.Transcript();
      EXPECT_THAT(ranks.LinesOf(rank), SizeIs(0)) << ranks.Transcript();
    }
  }

  const PrivateFolder folder_;
  const std::string plugins_ = folder_.path() + "/plugins";
  const std::string socket_ = folder_.path() + "/s";
  const std::string database_ = folder_.path() + "/tuned.tdb";
};

cotune_tune_options SmallTune(const uint64_t* sizes, size_t count) {
  cotune_tune_options options{};
  options.struct_size = sizeof(options);
  options.sizes_bytes = sizes;
  options.size_count = count;
  return options;
}

std::string Explained(cotune_group* group, cotune_collective collective, uint64_t count,
                      bool is_in_place = false) {
  cotune_call call{};
  call.struct_size = sizeof(call);
  call.collective = collective;
  call.dtype = COTUNE_F32;
  const bool reduces =
      collective == COTUNE_COLLECTIVE_ALL_REDUCE || collective == COTUNE_COLLECTIVE_REDUCE_SCATTER;
  call.reduction = reduces ? COTUNE_REDUCE_SUM : 0;
  call.is_in_place = is_in_place ? 1 : 0;
  call.count = count;
  char text[4096];
  if (cotune_explain(group, &call, text, sizeof(text), nullptr) != COTUNE_SUCCESS) return "";
  return text;
}

TEST_F(CApi, RunsEveryCollectiveWithoutATable) {
  RunRanks([](cotune_group* group, int rank, TestLink& link) {
    if (cotune_group_rank(group) != rank) link.Report("wrong rank");
    if (cotune_group_size(group) != kWorldSize) link.Report("wrong size");
    for (uint64_t count : {1u, 3u, 1000u, 65537u}) {
      RunAllCollectives(group, count, {0, 1, 2, 3}, link);
    }
    const std::string text = Explained(group, COTUNE_COLLECTIVE_ALL_REDUCE, 1000);
    if (text.find("not tuned") == std::string::npos) link.Report("explained as: " + text);
    if (cotune_last_result(group) != COTUNE_SUCCESS) Complain(link, group, "last result");
  });
}

TEST_F(CApi, RunsEveryCollectiveInPlaceBeforeAndAfterATune) {
  RunRanks([](cotune_group* group, int, TestLink& link) {
    for (uint64_t count : {1u, 1000u}) RunAllInPlace(group, count, link);
    const uint64_t sizes[] = {4000};
    cotune_tune_options options = SmallTune(sizes, 1);
    options.is_in_place = 1;
    if (cotune_tune(group, &options, nullptr) != COTUNE_SUCCESS) Complain(link, group, "tune");
    for (uint64_t count : {1u, 1000u}) RunAllInPlace(group, count, link);
    for (cotune_collective collective = COTUNE_COLLECTIVE_ALL_REDUCE;
         collective <= COTUNE_COLLECTIVE_ALL_TO_ALL; ++collective) {
      const std::string in_place = Explained(group, collective, 250, true);
      const std::string apart = Explained(group, collective, 250);
      if (in_place.find("tuned for") == std::string::npos) link.Report("in place: " + in_place);
      if (apart.find("this call was not measured: it runs by the row of") == std::string::npos) {
        link.Report("apart: " + apart);
      }
    }
  });
}

TEST_F(CApi, RunsSubgroupsBesideTheWhole) {
  RunRanks([](cotune_group* group, int rank, TestLink& link) {
    const bool is_even = rank % 2 == 0;
    const std::vector<int32_t> ranks =
        is_even ? std::vector<int32_t>{0, 2} : std::vector<int32_t>{3, 1};
    cotune_group* half = nullptr;
    cotune_error error{};
    error.struct_size = sizeof(error);
    if (cotune_group_split(group, is_even ? "even" : "odd", ranks.data(), ranks.size(), &half,
                           &error) != COTUNE_SUCCESS) {
      link.Report(fmt::format("split: {}", error.text));
      return;
    }
    const std::vector<int> ids(ranks.begin(), ranks.end());
    if (cotune_group_size(half) != 2) link.Report("wrong size of the half");
    for (int i = 0; i < 3; ++i) {
      RunAllCollectives(half, 500, ids, link);
      RunAllCollectives(group, 500, {0, 1, 2, 3}, link);
    }
    const uint64_t sizes[] = {2000};
    const cotune_tune_options options = SmallTune(sizes, 1);
    if (cotune_tune(half, &options, nullptr) != COTUNE_SUCCESS) Complain(link, half, "tune");
    RunAllCollectives(half, 500, ids, link);
    cotune_group_destroy(half);
    RunAllCollectives(group, 7, {0, 1, 2, 3}, link);
  });
}

TEST_F(CApi, TellsOfEachCellThatIsMeasured) {
  const char text[] =
      "program add_all\n%x = input f32 [R, 64]\n%s = all_reduce sum %x\n%y = add %s, 1\nreturn %y";
  RunRanks([&](cotune_group* group, int, TestLink& link) {
    cotune_program* program = nullptr;
    if (cotune_program_parse(text, sizeof(text) - 1, &program, nullptr) != COTUNE_SUCCESS) {
      link.Report("not parsed");
    }
    const uint64_t rows[] = {1, 32};
    const uint64_t bytes[] = {4096};
    cotune_tune_node nodes[2] = {};
    nodes[0].struct_size = nodes[1].struct_size = sizeof(cotune_tune_node);
    nodes[0].program = program;
    nodes[0].sizes = rows;
    nodes[0].size_count = 2;
    nodes[1].collective = COTUNE_COLLECTIVE_ALL_GATHER;
    nodes[1].dtype = COTUNE_I32;
    nodes[1].sizes = bytes;
    nodes[1].size_count = 1;
    std::vector<std::string> told;
    cotune_tune_options options{};
    options.struct_size = sizeof(options);
    options.nodes = nodes;
    options.node_count = 2;
    options.progress = [](void* context, int32_t cell, int32_t cells, const char* what) {
      static_cast<std::vector<std::string>*>(context)->push_back(
          fmt::format("{}/{} {}", cell, cells, what));
      return 0;
    };
    options.progress_context = &told;
    if (cotune_tune(group, &options, nullptr) != COTUNE_SUCCESS) Complain(link, group, "tune");
    // A cell that takes long is reported several times.
    told.erase(std::unique(told.begin(), told.end()), told.end());
    const std::vector<std::string> expected = {"1/3 program add_all, 1 row",
                                               "2/3 program add_all, 32 rows",
                                               "3/3 all_gather i32, 4096 bytes"};
    if (told != expected) link.Report(fmt::format("told {}", fmt::join(told, "; ")));
    cotune_program_free(program);
  });
}

TEST_F(CApi, TunesSavesAndLoads) {
  RunRanks([this](cotune_group* group, int, TestLink& link) {
    RunAllCollectives(group, 256, {0, 1, 2, 3}, link);  // plans that the tune has to drop
    const uint64_t sizes[] = {1024, 65536};
    const cotune_tune_options options = SmallTune(sizes, 2);
    cotune_tune_report report{};
    report.struct_size = sizeof(report);
    if (cotune_tune(group, &options, &report) != COTUNE_SUCCESS) Complain(link, group, "tune");
    if (report.measured != 10 || report.known != 0 || report.skipped != 0 || !report.is_tuned) {
      link.Report(fmt::format("report {} {} {} {}", report.measured, report.known, report.skipped,
                              report.is_tuned));
    }
    for (uint64_t count : {256u, 16384u, 100000u}) {
      RunAllCollectives(group, count, {0, 1, 2, 3}, link);
    }
    const std::string text = Explained(group, COTUNE_COLLECTIVE_ALL_REDUCE, 256);
    if (text.find("runs host/") == std::string::npos ||
        (text.find("tuned for sizes of 0 bytes and more") == std::string::npos &&
         text.find("tuned for sizes from 0 to ") == std::string::npos) ||
        text.find("at 1024 bytes: ") == std::string::npos) {
      link.Report("explained as: " + text);
    }
    if (cotune_save(group, database_.c_str()) != COTUNE_SUCCESS) Complain(link, group, "save");
  });
  EXPECT_GT(std::filesystem::file_size(database_), 0u);

  RunRanks([this](cotune_group* group, int rank, TestLink& link) {
    if (cotune_load(group, database_.c_str()) != COTUNE_SUCCESS) Complain(link, group, "load");
    RunAllCollectives(group, 256, {0, 1, 2, 3}, link);
    const std::string text = Explained(group, COTUNE_COLLECTIVE_ALL_GATHER, 256);
    if (text.find("tuned for") == std::string::npos) link.Report("explained as: " + text);
    // Everything is known already.
    const uint64_t sizes[] = {1024, 65536};
    cotune_tune_options options = SmallTune(sizes, 2);
    // Only rank 0 touches the file, so only rank 0 has to know of it.
    if (rank == 0) options.database_path = database_.c_str();
    cotune_tune_report report{};
    report.struct_size = sizeof(report);
    if (cotune_tune(group, &options, &report) != COTUNE_SUCCESS) Complain(link, group, "tune");
    if (report.measured != 0 || report.known != 10) {
      link.Report(fmt::format("report {} {}", report.measured, report.known));
    }
    RunAllCollectives(group, 16384, {0, 1, 2, 3}, link);
  });
}

// Groups side by side, and one after the other without a pause, that have no id but the launcher's.
TEST_F(CApi, EveryGroupUnderALauncherIsAGroupOfItsOwn) {
  RankProcesses ranks;
  for (int rank = 0; rank < kWorldSize; ++rank) {
    ranks.Start([&, rank](TestLink& link) {
      setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1);
      setenv("COTUNE_RANK", fmt::format("{}", rank).c_str(), 1);
      setenv("COTUNE_WORLD_SIZE", fmt::format("{}", kWorldSize).c_str(), 1);
      setenv("COTUNE_JOB_ID", "launched", 1);
      cotune_group_options options = Options(0, 0);
      options.socket_path = nullptr;
      options.ignores_database = 1;
      cotune_error error{};
      error.struct_size = sizeof(error);
      std::vector<cotune_group*> groups;
      for (int i = 0; i < 12; ++i) {
        cotune_group* group = nullptr;
        if (cotune_group_create(&options, &group, &error) != COTUNE_SUCCESS) {
          link.Report(fmt::format("group {}: {}", i, error.text));
          return 1;
        }
        RunAllCollectives(group, 100, {0, 1, 2, 3}, link);
        if (i < 10) cotune_group_destroy(group);
        if (i >= 10) groups.push_back(group);
      }
      for (cotune_group* group : groups) RunAllCollectives(group, 100, {0, 1, 2, 3}, link);
      for (cotune_group* group : groups) cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2, 3}, kPatienceNs)) << ranks.Transcript();
  for (size_t rank = 0; rank < kWorldSize; ++rank) {
    EXPECT_EQ(ranks.ExitOf(rank), 0) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank), SizeIs(0)) << ranks.Transcript();
  }
}

// Rank 0 has made a group of its own, and has failed at once where the others waited for it.
TEST_F(CApi, RanksThatAskedForAGroupAsOftenMeetWhateverBecameOfTheGroupsBefore) {
  RankProcesses ranks;
  for (int rank = 0; rank < kWorldSize; ++rank) {
    ranks.Start([&, rank](TestLink& link) {
      setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1);
      setenv("COTUNE_RANK", fmt::format("{}", rank).c_str(), 1);
      setenv("COTUNE_WORLD_SIZE", fmt::format("{}", kWorldSize).c_str(), 1);
      setenv("COTUNE_JOB_ID", "launched", 1);
      cotune_error error{};
      error.struct_size = sizeof(error);
      cotune_group* group = nullptr;
      if (rank == 0) {
        cotune_group_options alone = Options(0, 1);
        alone.socket_path = nullptr;
        alone.job_id = nullptr;
        if (cotune_group_create(&alone, &group, &error) != COTUNE_SUCCESS) link.Report(error.text);
        cotune_group_destroy(group);
      }
      cotune_group_options options = Options(0, 0);
      options.socket_path = nullptr;
      options.ignores_database = 1;
      cotune_group_options failing = options;
      failing.join_timeout_ns = rank == 0 ? -1 : 300'000'000;
      if (cotune_group_create(&failing, &group, &error) == COTUNE_SUCCESS) link.Report("joined");
      const bool names_group =
          std::string(error.text).find("\"cotune-launched\"") != std::string::npos;
      if (rank != 0 && !names_group) link.Report(error.text);
      if (cotune_group_create(&options, &group, &error) != COTUNE_SUCCESS) {
        link.Report(error.text);
        return 1;
      }
      RunAllCollectives(group, 100, {0, 1, 2, 3}, link);
      cotune_group_destroy(group);
      return 0;
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2, 3}, kPatienceNs)) << ranks.Transcript();
  for (size_t rank = 0; rank < kWorldSize; ++rank) {
    EXPECT_EQ(ranks.ExitOf(rank), 0) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank), SizeIs(0)) << ranks.Transcript();
  }
}

TEST_F(CApi, KeepsWhatATuneSaysNothingOf) {
  RunRanks([](cotune_group* group, int, TestLink& link) {
    const uint64_t sizes[] = {1024};
    for (uint32_t collective : {COTUNE_COLLECTIVE_ALL_REDUCE, COTUNE_COLLECTIVE_BROADCAST}) {
      cotune_tune_options options = SmallTune(sizes, 1);
      options.collectives = 1u << collective;
      if (cotune_tune(group, &options, nullptr) != COTUNE_SUCCESS) Complain(link, group, "tune");
    }
    for (cotune_collective collective :
         {COTUNE_COLLECTIVE_ALL_REDUCE, COTUNE_COLLECTIVE_BROADCAST}) {
      const std::string text = Explained(group, collective, 256);
      if (text.find("tuned for") == std::string::npos) link.Report("explained as: " + text);
    }
  });
}

void ExpectError(TestLink& link, const cotune_group* group, cotune_result result,
                 cotune_result expected, const char* text) {
  if (result == expected && cotune_last_result(group) == expected &&
      std::strstr(cotune_last_error(group), text) != nullptr) {
    return;
  }
  link.Report(
      fmt::format("{} instead of {} '{}': {}", result, expected, text, cotune_last_error(group)));
}

// A child of a rank, as a data loader forks it: refused where the parent's group is used, free to
// make its own.
int UseInChild(cotune_group* group, cotune_group_options options, TestLink& link) {
  std::vector<float> data(1000, 3.0f);
  const auto all_reduce = [&](cotune_group* used) {
    return cotune_all_reduce(used, data.data(), data.data(), data.size(), COTUNE_F32,
                             COTUNE_REDUCE_SUM);
  };
  ExpectError(link, group, all_reduce(group), COTUNE_ERROR_USAGE, "this process was forked");
  ExpectError(link, group, cotune_group_check(group), COTUNE_ERROR_USAGE, "was forked");
  const int32_t ranks[] = {0, 1, 2, 3};
  cotune_group* split = nullptr;
  ExpectError(link, group, cotune_group_split(group, "child", ranks, 4, &split, nullptr),
              COTUNE_ERROR_USAGE, "was forked");
  cotune_group_destroy(group);
  cotune_error error{};
  error.struct_size = sizeof(error);
  cotune_group* own = nullptr;
  if (cotune_group_create(&options, &own, &error) != COTUNE_SUCCESS) {
    link.Report(fmt::format("in the child: {}", error.text));
    return 1;
  }
  if (all_reduce(own) != COTUNE_SUCCESS || data[999] != 3.0f) Complain(link, own, "own group");
  cotune_group_destroy(own);
  return 0;
}

TEST_F(CApi, AForkedChildIsRefusedAndMayMakeAGroupOfItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "TSan ends a child of fork that starts threads";
#endif
  RunRanks([this](cotune_group* group, int rank, TestLink& link) {
    RunAllCollectives(group, 100, {0, 1, 2, 3}, link);
    const std::string socket = fmt::format("{}-{}", socket_, rank);
    cotune_group_options options = Options(0, 1);
    options.socket_path = socket.c_str();
    const pid_t child = fork();
    if (child == 0) {
      alarm(60);  // a child that hangs ends
      _exit(UseInChild(group, options, link));
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0) link.Report(fmt::format("the child ended with status {}", status));
    RunAllCollectives(group, 100, {0, 1, 2, 3}, link);
  });
}

TEST_F(CApi, SaysWhatIsWrongAndGoesOn) {
  std::ofstream(folder_.path() + "/foreign") << "not a database";
  RunRanks([this](cotune_group* group, int, TestLink& link) {
    float x[8] = {};
    float y[8] = {};
    ExpectError(link, group, cotune_all_reduce(group, x, y, 8, 99, COTUNE_REDUCE_SUM),
                COTUNE_ERROR_USAGE, "dtype 99");
    ExpectError(link, group, cotune_all_reduce(group, x, y, 8, COTUNE_F32, 77), COTUNE_ERROR_USAGE,
                "reduction 77");
    ExpectError(link, group, cotune_all_reduce(group, x, y, 8, COTUNE_F32, 0), COTUNE_ERROR_USAGE,
                "reduction");
    ExpectError(link, group, cotune_all_reduce(group, nullptr, y, 8, COTUNE_F32, COTUNE_REDUCE_SUM),
                COTUNE_ERROR_USAGE, "send buffer is NULL");
    ExpectError(link, group, cotune_all_reduce(group, x, nullptr, 8, COTUNE_F32, COTUNE_REDUCE_SUM),
                COTUNE_ERROR_USAGE, "receive buffer is NULL");
    ExpectError(link, group, cotune_broadcast(group, x, y, 8, COTUNE_F32, 4), COTUNE_ERROR_USAGE,
                "root");
    ExpectError(link, group, cotune_load(group, (folder_.path() + "/missing").c_str()),
                COTUNE_ERROR_ENVIRONMENT, "missing");
    ExpectError(link, group, cotune_load(group, (folder_.path() + "/foreign").c_str()),
                COTUNE_ERROR_DATABASE, "foreign");
    ExpectError(link, group, cotune_save(group, nullptr), COTUNE_ERROR_USAGE, "NULL");
    cotune_tune_options options{};
    ExpectError(link, group, cotune_tune(group, &options, nullptr), COTUNE_ERROR_USAGE,
                "struct_size is 0");
    options.struct_size = sizeof(options);
    options.dtypes = 1u << 31;
    ExpectError(link, group, cotune_tune(group, &options, nullptr), COTUNE_ERROR_USAGE, "dtypes");
    // Nothing of it has harmed the group.
    RunAllCollectives(group, 64, {0, 1, 2, 3}, link);
    if (cotune_all_reduce(group, nullptr, nullptr, 0, COTUNE_F32, COTUNE_REDUCE_SUM) !=
        COTUNE_SUCCESS) {
      Complain(link, group, "no elements");
    }
  });
}

TEST_F(CApi, NamesTheRankThatDiesInACall) {
  RankProcesses ranks;
  for (int rank = 0; rank < kWorldSize; ++rank) {
    ranks.Start([&, rank](TestLink& link) {
      const cotune_group_options options = Options(rank, kWorldSize);
      cotune_group* group = nullptr;
      if (cotune_group_create(&options, &group, nullptr) != COTUNE_SUCCESS) return 1;
      RunAllCollectives(group, 100, {0, 1, 2, 3}, link);
      if (rank == 2) kill(getpid(), SIGKILL);
      float x[64] = {};
      float y[64] = {};
      const cotune_result result =
          cotune_all_reduce(group, x, y, 64, COTUNE_F32, COTUNE_REDUCE_SUM);
      link.Report(fmt::format("first {} {}", result, cotune_last_error(group)));
      const cotune_result again = cotune_all_reduce(group, x, y, 64, COTUNE_F32, COTUNE_REDUCE_SUM);
      link.Report(fmt::format("again {} {}", again, cotune_last_error(group)));
      cotune_group_destroy(group);
      return cotune_exit_code(result);
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2, 3}, kPatienceNs)) << ranks.Transcript();
  EXPECT_EQ(ranks.ExitOf(2), -SIGKILL);
  for (size_t rank : {0, 1, 3}) {
    EXPECT_EQ(ranks.ExitOf(rank), 5) << ranks.Transcript();
    ASSERT_THAT(ranks.LinesOf(rank), SizeIs(2)) << ranks.Transcript();
    EXPECT_THAT(ranks.LinesOf(rank)[0], AllOf(HasSubstr("first 5"), HasSubstr("rank 2")));
    EXPECT_EQ(ranks.LinesOf(rank)[1].substr(5), ranks.LinesOf(rank)[0].substr(5));
  }
}

TEST_F(CApi, RefusesOptionsThatCannotBe) {
  const auto text_of = [](const cotune_group_options& options) {
    cotune_group* group = reinterpret_cast<cotune_group*>(1);
    cotune_error error{};
    error.struct_size = sizeof(error);
    EXPECT_EQ(cotune_group_create(&options, &group, &error), COTUNE_ERROR_USAGE);
    EXPECT_EQ(group, nullptr);
    EXPECT_EQ(error.result, COTUNE_ERROR_USAGE);
    return std::string(error.text);
  };
  cotune_group_options options = Options(0, 2);
  options.struct_size = 0;
  EXPECT_THAT(text_of(options), HasSubstr("struct_size is 0"));
  options = Options(2, 2);
  EXPECT_THAT(text_of(options), HasSubstr("rank 2 is not a rank of world size 2"));
  options = Options(0, 2);
  options.socket_path = nullptr;
  EXPECT_THAT(text_of(options), HasSubstr("neither job_id nor socket_path nor store"));
  options = Options(0, 1);
  options.backends = "hst";
  EXPECT_THAT(text_of(options), HasSubstr("hst"));
  EXPECT_EQ(cotune_group_create(&options, nullptr, nullptr), COTUNE_ERROR_USAGE);
  EXPECT_EQ(cotune_group_split(nullptr, "a", nullptr, 0, nullptr, nullptr), COTUNE_ERROR_USAGE);
  EXPECT_EQ(cotune_all_gather(nullptr, nullptr, nullptr, 0, COTUNE_F32), COTUNE_ERROR_USAGE);
  EXPECT_EQ(cotune_group_rank(nullptr), -1);
  EXPECT_EQ(cotune_group_size(nullptr), 0);
  cotune_group_destroy(nullptr);
}

TEST_F(CApi, WorksAlone) {
  RankProcesses ranks;
  ranks.Start([&](TestLink& link) {
    const cotune_group_options options = Options(0, 1);
    cotune_group* group = nullptr;
    if (cotune_group_create(&options, &group, nullptr) != COTUNE_SUCCESS) return 1;
    RunAllCollectives(group, 10, {0}, link);
    cotune_group_destroy(group);
    return 0;
  });
  ASSERT_TRUE(ranks.WaitForEnd({0}, kPatienceNs));
  EXPECT_EQ(ranks.ExitOf(0), 0);
  EXPECT_THAT(ranks.LinesOf(0), SizeIs(0)) << ranks.Transcript();
}

}  // namespace
}  // namespace cotune
