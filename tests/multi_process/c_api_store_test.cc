// Groups of the C API that meet through a store of the caller: real processes, only cotune.h, the
// shared library and plugins. The store is a folder with a file for each key and knows nothing of
// cotune.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

#include "fmt/format.h"
#include "integration/capi/cotune.h"
#include "tests/multi_process/testing/c_api_ranks.h"
#include "tests/multi_process/testing/rank_processes.h"

namespace cotune {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class FolderStore {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
  }

  cotune_store table() {
    cotune_store store{};
    store.struct_size = sizeof(store);
    store.context = this;
    store.put = [](void* self, const char* key, const void* data, uint64_t size, int64_t) {
      return static_cast<FolderStore*>(self)->Put(key, {static_cast<const char*>(data), size});
    };
    store.get = [](void* self, const char* key, void* data, uint64_t capacity, uint64_t* size,
                   int64_t timeout_ns) {
      return static_cast<FolderStore*>(self)->Get(key, data, capacity, *size, timeout_ns);
    };
    store.erase = [](void* self, const char* key, int64_t) {
      std::filesystem::remove(static_cast<FolderStore*>(self)->PathOf(key));
      return cotune_result{COTUNE_SUCCESS};
    };
    return store;
  }

  cotune_result Put(const std::string& key, const std::string& value) {
    const std::string path = PathOf(key);
    const std::string other = path + "." + std::to_string(getpid());
    std::ofstream(other) << value;
    std::filesystem::rename(other, path);
    return COTUNE_SUCCESS;
  }
  std::string Value(const std::string& key) const {
    std::ifstream file(PathOf(key));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string PathOf(std::string key) const {
    std::replace(key.begin(), key.end(), '/', '_');
    return folder_ + "/" + key;
  }

 private:
  cotune_result Get(const std::string& key, void* data, uint64_t capacity, uint64_t& size,
                    int64_t timeout_ns) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(timeout_ns);
    while (!std::filesystem::exists(PathOf(key))) {
      if (std::chrono::steady_clock::now() >= end) return COTUNE_ERROR_DEADLINE;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const std::string value = Value(key);
    value.copy(static_cast<char*>(data), capacity);
    size = value.size();
    return COTUNE_SUCCESS;
  }

  const std::string folder_;
};

constexpr char kKey[] = "cotune/rendezvous/job";

class CApiStore : public CApiRanks {
 protected:
  // Sockets of ranks that are killed go away with the folder.
  CApiStore() { setenv("XDG_RUNTIME_DIR", folder_.path().c_str(), 1); }

  cotune_group* Join(int rank, int world_size, const cotune_store& store, TestLink& link,
                     int64_t timeout_ns = kPatienceNs, const char* job_id = "job") const {
    cotune_group_options options{};
    options.struct_size = sizeof(options);
    options.rank = rank;
    options.world_size = world_size;
    options.job_id = job_id;
    options.store = &store;
    options.plugin_path = plugins_.c_str();
    options.join_timeout_ns = timeout_ns;
    cotune_group* group = nullptr;
    cotune_error error{};
    error.struct_size = sizeof(error);
    if (cotune_group_create(&options, &group, &error) != COTUNE_SUCCESS) {
      link.Report(fmt::format("create {} rank {} {}", error.result, error.rank, error.text));
    }
    return group;
  }
  int JoinAndReduce(int rank, int world_size, const cotune_store& store, TestLink& link,
                    int64_t timeout_ns = kPatienceNs, const char* job_id = "job") const {
    cotune_group* const group = Join(rank, world_size, store, link, timeout_ns, job_id);
    if (group == nullptr) return 1;
    const cotune_result result = Reduce(group);
    cotune_group_destroy(group);
    return cotune_exit_code(result);
  }

  FolderStore store_{folder_.path() + "/store"};
};

TEST_F(CApiStore, RanksMeetThroughItAndLeaveNothing) {
  RankProcesses ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      const cotune_store store = store_.table();
      // Two groups one after the other, without an id: the store is the job's own.
      for (int group = 0; group < 2; ++group) {
        const int code = JoinAndReduce(rank, 3, store, link, kPatienceNs, nullptr);
        if (code != 0) return code;
      }
      return 0;
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  for (size_t rank : {0, 1, 2}) EXPECT_EQ(ranks.ExitOf(rank), 0) << ranks.Transcript();
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path() + "/store"));
}

// The first attempt is killed while it waits, so that its address stays. The other rank of the
// second attempt reads it before the new rank 0 is started.
TEST_F(CApiStore, ARestartDoesNotFollowTheAddressOfTheAttemptBefore) {
  RankProcesses ranks;
  ranks.Start([this](TestLink& link) {
    cotune_store store = store_.table();
    static TestLink* reporter = nullptr;
    reporter = &link;
    store.put = [](void* self, const char* key, const void* data, uint64_t size, int64_t) {
      const cotune_result result =
          static_cast<FolderStore*>(self)->Put(key, {static_cast<const char*>(data), size});
      reporter->Report("put");
      return result;
    };
    return JoinAndReduce(0, 2, store, link);
  });
  ASSERT_TRUE(ranks.WaitForLine(0, "put", kPatienceNs)) << ranks.Transcript();
  ranks.Signal(0, SIGKILL);
  ASSERT_TRUE(ranks.WaitForEnd({0}, kPatienceNs));
  const std::string stale = store_.Value(kKey);
  ASSERT_NE(stale, "");

  ranks.Start([this](TestLink& link) {
    cotune_store store = store_.table();
    static int gets = 0;
    static TestLink* reporter = nullptr;
    static cotune_store original{};
    reporter = &link;
    original = store;
    store.get = [](void* self, const char* key, void* data, uint64_t capacity, uint64_t* size,
                   int64_t timeout_ns) {
      // The second look shows that the first address was tried.
      if (++gets == 2) reporter->Report("looks again");
      return original.get(self, key, data, capacity, size, timeout_ns);
    };
    return JoinAndReduce(1, 2, store, link);
  });
  ASSERT_TRUE(ranks.WaitForLine(1, "looks again", kPatienceNs)) << ranks.Transcript();
  ranks.Start([this](TestLink& link) { return JoinAndReduce(0, 2, store_.table(), link); });
  ASSERT_TRUE(ranks.WaitForEnd({1, 2}, kPatienceNs)) << ranks.Transcript();
  EXPECT_EQ(ranks.ExitOf(1), 0) << ranks.Transcript();
  EXPECT_EQ(ranks.ExitOf(2), 0) << ranks.Transcript();
}

TEST_F(CApiStore, AStaleAddressWithoutANewRankZeroIsSaidAtTheDeadline) {
  const std::string text = "cotune-rank-0 1\nanother-boot\nelsewhere\n/nowhere/s\njob/1";
  ASSERT_EQ(store_.Put(kKey, text), COTUNE_SUCCESS);
  RankProcesses ranks;
  ranks.Start(
      [this](TestLink& link) { return JoinAndReduce(1, 2, store_.table(), link, kSecondNs / 2); });
  ASSERT_TRUE(ranks.WaitForEnd({0}, kPatienceNs)) << ranks.Transcript();
  EXPECT_THAT(ranks.Transcript(), AllOf(HasSubstr("create 5 rank 0"), HasSubstr("leads nowhere"),
                                        HasSubstr("on host elsewhere"), HasSubstr(kKey)));
}

// Rank 0 dies before it puts anything, so the store stays empty.
TEST_F(CApiStore, ARankZeroThatNeverPutsIsNamed) {
  RankProcesses ranks;
  ranks.Start([this](TestLink& link) {
    cotune_store store = store_.table();
    store.put = [](void*, const char*, const void*, uint64_t, int64_t) {
      kill(getpid(), SIGKILL);
      return cotune_result{COTUNE_SUCCESS};
    };
    return JoinAndReduce(0, 2, store, link);
  });
  ranks.Start(
      [this](TestLink& link) { return JoinAndReduce(1, 2, store_.table(), link, kSecondNs); });
  ASSERT_TRUE(ranks.WaitForEnd({0, 1}, kPatienceNs)) << ranks.Transcript();
  EXPECT_EQ(ranks.ExitOf(0), -SIGKILL);
  EXPECT_THAT(ranks.Transcript(),
              AllOf(HasSubstr("create 5 rank 0"), HasSubstr("no address of rank 0")));
}

TEST_F(CApiStore, AForeignValueIsAnErrorAtOnce) {
  ASSERT_EQ(store_.Put(kKey, std::string(100'000, 'x')), COTUNE_SUCCESS);
  RankProcesses ranks;
  ranks.Start(
      [this](TestLink& link) { return JoinAndReduce(1, 2, store_.table(), link, kLongCallNs); });
  ASSERT_TRUE(ranks.WaitForEnd({0}, kPatienceNs)) << ranks.Transcript();
  EXPECT_THAT(ranks.Transcript(), AllOf(HasSubstr("create 3 rank -1"), HasSubstr("xxxx"),
                                        HasSubstr("another program uses the key")));
}

// The rank whose store fails says so at once; rank 0 names it when the time is up.
TEST_F(CApiStore, AStoreThatFailsOnOneRank) {
  RankProcesses ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.Start([this, rank](TestLink& link) {
      cotune_store store = store_.table();
      if (rank == 2) {
        store.get = [](void*, const char*, void*, uint64_t, uint64_t*, int64_t) {
          return cotune_result{COTUNE_ERROR_INTERNAL};
        };
      }
      return JoinAndReduce(rank, 3, store, link, 2 * kSecondNs);
    });
  }
  ASSERT_TRUE(ranks.WaitForEnd({0, 1, 2}, kPatienceNs)) << ranks.Transcript();
  EXPECT_THAT(ranks.LinesOf(2, "create 3"),
              ::testing::ElementsAre(AllOf(HasSubstr("get of the caller's store gives 1"),
                                           HasSubstr("the store has failed"))));
  for (size_t rank : {0, 1}) {
    EXPECT_THAT(ranks.LinesOf(rank, "create 5 rank 2"), ::testing::SizeIs(1)) << ranks.Transcript();
  }
}

// The function never returns, and its rank gets its error all the same.
TEST_F(CApiStore, AGetThatNeverReturnsIsGivenUp) {
  RankProcesses ranks;
  ranks.Start([this](TestLink& link) -> int {
    cotune_store store = store_.table();
    store.get = [](void*, const char*, void*, uint64_t, uint64_t*, int64_t) -> int32_t {
      for (;;) pause();
    };
    const int code = JoinAndReduce(1, 2, store, link, kSecondNs / 10);
    // Not by the end of main: the thread is still in the function.
    _exit(code);
  });
  ASSERT_TRUE(ranks.WaitForEnd({0}, kPatienceNs)) << ranks.Transcript();
  EXPECT_THAT(ranks.Transcript(),
              AllOf(HasSubstr("create 6"), HasSubstr("get of the caller's store does not return")));
}

TEST_F(CApiStore, RefusesATableThatCannotBe) {
  RankProcesses ranks;
  ranks.Start([this](TestLink& link) {
    cotune_store store = store_.table();
    store.erase = nullptr;
    JoinAndReduce(0, 1, store, link);
    store.struct_size = 1;
    return JoinAndReduce(0, 1, store, link);
  });
  ASSERT_TRUE(ranks.WaitForEnd({0}, kPatienceNs)) << ranks.Transcript();
  EXPECT_THAT(ranks.Transcript(), AllOf(HasSubstr("create 2 rank -1 put, get or erase is NULL"),
                                        HasSubstr("struct_size is 1 (cotune_store)")));
}

}  // namespace
}  // namespace cotune
