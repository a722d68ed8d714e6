// The function table as a host program sees it: what it lists, what it refuses, and how it says so.
#include "plugins/host/backend.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "plugins/host/sdk_names.h"
#include "plugins/host/testing/host_ranks.h"

namespace cotune::host {
namespace {

constexpr cotune_dtype_t kF32 = {COTUNE_DTYPE_FLOAT, 32, 1};
constexpr int64_t kLongNs = 120 * kSecondNs;

cotune_problem_t Sum(uint64_t count, int world_size) {
  return AbiProblem(COTUNE_ALL_REDUCE, kF32, COTUNE_SUM, count, world_size);
}

class BackendTest : public testing::Test {
 protected:
  BackendTest() {
    cotune_error_t error = EmptyError();
    EXPECT_EQ(BackendApi()->create(&job_.host(), -1, &backend_, &error), COTUNE_OK)
        << error.message;
  }
  ~BackendTest() override { BackendApi()->destroy(backend_); }

  cotune_status_t List(const cotune_problem_t& problem, cotune_error_t* error) {
    cotune_choice_t choices[32];
    uint32_t count = 0;
    return BackendApi()->list_choices(backend_, &problem, choices, sizeof(cotune_choice_t), 32,
                                      &count, error);
  }

  JobForTest job_;
  cotune_backend_t* backend_ = nullptr;
};

TEST_F(BackendTest, TableIsComplete) {
  const cotune_backend_api_t& api = *BackendApi();
  EXPECT_EQ(api.struct_size, sizeof(cotune_backend_api_t));
  EXPECT_STREQ(api.name, "host");
  EXPECT_EQ(api.memory_kinds, 1u << COTUNE_MEMORY_HOST);
  EXPECT_EQ(api.get_extension(backend_, "cotune.memory/1"), nullptr);
  api.destroy(nullptr);
  api.group_destroy(nullptr);
  api.plan_destroy(nullptr);
}

TEST_F(BackendTest, ListsAsManyAsFitAndTellsHowManyThereAre) {
  const cotune_problem_t problem = Sum(1000, 4);
  cotune_error_t error = EmptyError();
  uint32_t count = 0;
  ASSERT_EQ(BackendApi()->list_choices(backend_, &problem, nullptr, 0, 0, &count, &error),
            COTUNE_OK);
  ASSERT_EQ(count, 5u);
  constexpr uint32_t kStride = sizeof(cotune_choice_t) + 40;  // a newer host's entries are larger
  std::vector<char> memory(kStride * 3, 0x5a);
  ASSERT_EQ(BackendApi()->list_choices(backend_, &problem,
                                       reinterpret_cast<cotune_choice_t*>(memory.data()), kStride,
                                       2, &count, &error),
            COTUNE_OK);
  EXPECT_EQ(count, 5u);
  cotune_choice_t second;
  std::memcpy(&second, memory.data() + kStride, sizeof(second));
  EXPECT_STREQ(second.name, "one_shot?transport=ll");
  EXPECT_EQ(second.struct_size, sizeof(cotune_choice_t));
  EXPECT_TRUE(
      std::all_of(memory.begin() + 2 * kStride, memory.end(), [](char c) { return c == 0x5a; }));
}

TEST_F(BackendTest, DefaultsFollowTheSize) {
  const auto default_of = [&](const cotune_problem_t& problem) -> std::string {
    for (const cotune_choice_t& choice : RunnableChoices(backend_, problem)) {
      if ((choice.flags & COTUNE_CHOICE_DEFAULT) != 0) return choice.name;
    }
    return "none";
  };
  EXPECT_EQ(default_of(Sum(16, 4)), "one_shot?transport=ll");
  EXPECT_EQ(default_of(Sum(1000, 4)), "one_shot?chunk=65536");
  EXPECT_EQ(default_of(Sum(1 << 20, 4)), "two_shot?chunk=262144");
  EXPECT_EQ(default_of(Sum(16, 1)), "copy");
}

struct Refused {
  const char* what;
  void (*change)(cotune_problem_t&);
  cotune_status_t status;
  const char* word;
};

// It waits for nobody, and would go on to its end.
TEST_F(BackendTest, ACallThatIsBusyAfterItsDeadlineEnds) {
  GroupForTest group(job_.host(), "g", 0, {0}, MonotonicNs() + kLongNs);
  ASSERT_EQ(group.status(), COTUNE_OK) << group.error().message;
  constexpr uint64_t kCount = 1'000'000;
  const std::vector<float> send(kCount, 1);
  std::vector<float> receive(kCount);
  cotune_error_t error = EmptyError();
  EXPECT_EQ(RunOnce(group.group(), Sum(kCount, 1), "copy", send.data(), receive.data(),
                    MonotonicNs() - kSecondNs, &error),
            COTUNE_PEER_FAILED)
      << error.message;
  EXPECT_EQ(error.failed_rank, 0);
}

TEST_F(BackendTest, RefusesWhatItCannotDoAndSaysWhy) {
  const Refused cases[] = {
      {"collective", [](cotune_problem_t& p) { p.collective = 77; }, COTUNE_UNSUPPORTED,
       "collective 77"},
      {"dtype", [](cotune_problem_t& p) { p.dtype.bits = 8; }, COTUNE_UNSUPPORTED, "bits 8"},
      {"lanes", [](cotune_problem_t& p) { p.dtype.lanes = 2; }, COTUNE_UNSUPPORTED, "lanes 2"},
      {"reduction", [](cotune_problem_t& p) { p.reduction = 9; }, COTUNE_UNSUPPORTED,
       "reduction 9"},
      {"no reduction", [](cotune_problem_t& p) { p.reduction = 0; }, COTUNE_UNSUPPORTED,
       "reduction 0"},
      {"memory", [](cotune_problem_t& p) { p.memory_kind = COTUNE_MEMORY_CUDA; },
       COTUNE_UNSUPPORTED, "only host memory"},
      {"flag", [](cotune_problem_t& p) { p.flags = COTUNE_PROBLEM_SYMMETRIC; }, COTUNE_UNSUPPORTED,
       "symmetric"},
      {"ranks", [](cotune_problem_t& p) { p.world_size = p.ranks_per_node = 65; },
       COTUNE_UNSUPPORTED, "at most 64"},
      {"hosts", [](cotune_problem_t& p) { p.ranks_per_node = 2; }, COTUNE_UNSUPPORTED, "one host"},
      {"no ranks", [](cotune_problem_t& p) { p.world_size = p.ranks_per_node = 0; },
       COTUNE_INVALID_ARGUMENT, "world_size 0"},
      {"bytes", [](cotune_problem_t& p) { p.bytes += 1; }, COTUNE_INVALID_ARGUMENT, "bytes"},
      {"huge", [](cotune_problem_t& p) { p.count = ~uint64_t{0}; }, COTUNE_INVALID_ARGUMENT,
       "count"},
      {"size", [](cotune_problem_t& p) { p.struct_size = 8; }, COTUNE_INVALID_ARGUMENT,
       "struct_size"},
      {"root",
       [](cotune_problem_t& p) {
         p.collective = COTUNE_BROADCAST;
         p.reduction = 0;
         p.root = 4;
       },
       COTUNE_INVALID_ARGUMENT, "root 4"},
      {"reducing broadcast", [](cotune_problem_t& p) { p.collective = COTUNE_BROADCAST; },
       COTUNE_INVALID_ARGUMENT, "does not reduce"},
  };
  for (const Refused& refused : cases) {
    cotune_problem_t problem = Sum(100, 4);
    refused.change(problem);
    cotune_error_t error = EmptyError();
    EXPECT_EQ(List(problem, &error), refused.status) << refused.what;
    EXPECT_NE(std::string(error.message).find(refused.word), std::string::npos) << error.message;
    EXPECT_EQ(List(problem, nullptr), refused.status) << "without an error struct";
  }
}

TEST(BackendSettingsTest, SlotBytesIsChecked) {
  for (const char* text :
       {"", "abc", "65536x", "-1", "4096", "65537", "99999999999", "536870912"}) {
    JobForTest job;
    job.Set("slot_bytes", text);
    cotune_backend_t* backend = nullptr;
    cotune_error_t error = EmptyError();
    EXPECT_EQ(BackendApi()->create(&job.host(), -1, &backend, &error), COTUNE_INVALID_ARGUMENT)
        << text;
    EXPECT_NE(std::string(error.message).find("host.slot_bytes"), std::string::npos)
        << error.message;
    EXPECT_EQ(backend, nullptr);
  }
}

TEST(BackendSettingsTest, DeviceIsRefused) {
  JobForTest job;
  cotune_backend_t* backend = nullptr;
  EXPECT_EQ(BackendApi()->create(&job.host(), 0, &backend, nullptr), COTUNE_UNSUPPORTED);
}

TEST(BackendSettingsTest, RanksWithOtherSlotsAreToldSo) {
  JobForTest job;
  RankProcesses ranks(2, [&](int rank) -> std::string {
    if (rank == 1) job.Set("slot_bytes", "131072");
    GroupForTest group(job.host(), "g", rank, AllRanks(2), MonotonicNs() + kLongNs);
    const std::string message = group.error().message;
    const bool named = message.find("slot_bytes 2097152") != std::string::npos;
    return group.status() == COTUNE_INVALID_ARGUMENT && named ? "" : message;
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

// Resource limits are errors with a reason, at the rank that has them and, through the store, at
// the others.
struct Limit {
  const char* name;
  int rank;
  int resource;
  rlim_t value;
  const char* word;
};

class LimitTest : public testing::TestWithParam<Limit> {};

TEST_P(LimitTest, IsReportedToEveryRank) {
  JobForTest job;
  RankProcesses ranks(2, [&](int rank) -> std::string {
    if (rank == GetParam().rank) {
      const rlimit limit{GetParam().value, GetParam().value};
      if (setrlimit(static_cast<__rlimit_resource>(GetParam().resource), &limit) != 0)
        return "setrlimit";
    }
    GroupForTest group(job.host(), "g", rank, AllRanks(2), MonotonicNs() + kLongNs);
    const std::string message = group.error().message;
    const bool told = message.find(GetParam().word) != std::string::npos;
    return group.status() == COTUNE_OUT_OF_RESOURCES && told ? "" : "got: " + message;
  });
  EXPECT_EQ(ranks.WaitAll(), "");
}

INSTANTIATE_TEST_SUITE_P(Kinds, LimitTest,
                         testing::Values(Limit{"Files", 0, RLIMIT_NOFILE, 3, "ulimit -n"},
                                         Limit{"FilesOfRank1", 1, RLIMIT_NOFILE, 3, "ulimit -n"},
                                         Limit{"FileSize", 0, RLIMIT_FSIZE, 1 << 20, "ulimit -f"}),
                         [](const testing::TestParamInfo<Limit>& info) { return info.param.name; });

TEST(BackendGroupTest, BadParametersAreRefused) {
  JobForTest job;
  const struct {
    int rank;
    std::vector<int32_t> members;
    std::string name;
    const char* word;
  } cases[] = {{2, {0, 1}, "g", "rank 2"},
               {-1, {0, 1}, "g", "rank -1"},
               {0, {}, "g", "world_size 0"},
               {0, {0, 1}, "", "name"},
               {0, {0, 1}, std::string(201, 'x'), "name"}};
  for (const auto& c : cases) {
    GroupForTest group(job.host(), c.name, c.rank, c.members, MonotonicNs());
    EXPECT_EQ(group.status(), COTUNE_INVALID_ARGUMENT);
    EXPECT_NE(std::string(group.error().message).find(c.word), std::string::npos)
        << group.error().message;
  }
}

TEST(BackendGroupTest, KeepsNoFileOpenAndNoKeyInTheStore) {
  const auto files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  JobForTest job;
  RankProcesses ranks(2, [&](int rank) -> std::string {
    const auto before = files();
    GroupForTest group(job.host(), "g", rank, AllRanks(2), MonotonicNs() + kLongNs);
    if (group.status() != COTUNE_OK) return group.error().message;
    return files() == before ? "" : "files are left open";
  });
  EXPECT_EQ(ranks.WaitAll(), "");
  char value[1024];
  uint64_t size = 0;
  EXPECT_EQ(job.host().store_get(job.host().context, "g/host/segment/0", value, sizeof(value),
                                 &size, MonotonicNs()),
            COTUNE_DEADLINE_EXCEEDED);
}

TEST(BackendLaunchTest, WrongBuffersAreRefused) {
  JobForTest job;
  GroupForTest group(job.host(), "g", 0, AllRanks(1), MonotonicNs() + kLongNs);
  ASSERT_EQ(group.status(), COTUNE_OK) << group.error().message;
  std::vector<float> memory(300);
  float* base = memory.data();
  const struct {
    bool in_place;
    const float* send;
    float* receive;
    cotune_status_t status;
  } cases[] = {{false, base, base + 100, COTUNE_OK},
               {false, base, base, COTUNE_OK},
               {true, base, base, COTUNE_OK},
               {true, base, base + 100, COTUNE_INVALID_ARGUMENT},
               {false, base, base + 50, COTUNE_INVALID_ARGUMENT},
               {false, base + 50, base, COTUNE_INVALID_ARGUMENT},
               {false, nullptr, base, COTUNE_INVALID_ARGUMENT},
               {false, base, nullptr, COTUNE_INVALID_ARGUMENT}};
  for (const auto& c : cases) {
    const cotune_problem_t problem =
        AbiProblem(COTUNE_ALL_REDUCE, kF32, COTUNE_SUM, 100, 1, 0, c.in_place);
    cotune_error_t error = EmptyError();
    EXPECT_EQ(
        RunOnce(group.group(), problem, "copy", c.send, c.receive, MonotonicNs() + kLongNs, &error),
        c.status)
        << error.message;
  }
}

TEST(CheckBuffersTest, KnowsWhereInPlaceIs) {
  std::vector<float> memory(400);
  float* base = memory.data();
  Problem problem{.collective = Collective::kAllGather, .count = 100, .world_size = 4};
  problem.in_place = true;
  EXPECT_TRUE(CheckBuffers(problem, 2, base + 200, base));
  EXPECT_FALSE(CheckBuffers(problem, 1, base + 200, base));
  problem.collective = Collective::kReduceScatter;
  EXPECT_TRUE(CheckBuffers(problem, 3, base, base + 300));
  EXPECT_FALSE(CheckBuffers(problem, 3, base, base));
  problem.collective = Collective::kBroadcast;
  problem.in_place = false;
  EXPECT_TRUE(CheckBuffers(problem, 1, nullptr, base)) << "only the root sends";
  EXPECT_FALSE(CheckBuffers(problem, 0, nullptr, base));
}

}  // namespace
}  // namespace cotune::host
