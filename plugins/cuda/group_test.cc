// A group on a GPU that does not come to an end: nothing waits for it without a deadline.
#include "plugins/cuda/group/group.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "plugins/cuda/testing/fake_driver.h"

namespace cotune::cuda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSecondNs = 1'000'000'000;

// Whoever opens libcuda.so.1 finds it from here on.
FakeDriverState& LoadFakeDriver() {
  const std::string path = std::filesystem::absolute("plugins/cuda/fake_libcuda.so");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return *reinterpret_cast<FakeDriverState* (*)()>(dlsym(library, "fake_driver_state"))();
}

class GroupTest : public ::testing::Test {
 protected:
  GroupTest() : driver_(LoadFakeDriver()) {
    host_.struct_size = sizeof(host_);
    host_.context = this;
    host_.log = [](void* context, int32_t, const char* text) {
      static_cast<GroupTest*>(context)->log_.emplace_back(text);
    };
    host_.now_ns = [](void* context) {
      return static_cast<GroupTest*>(context)->now_ns_.fetch_add(kSecondNs / 2);
    };
    host_.store_put = [](void* context, const char* key, const void* data, uint64_t size) {
      auto& test = *static_cast<GroupTest*>(context);
      test.store_[key] = std::string(static_cast<const char*>(data), size);
      test.all_put_ += test.store_[key];
      return cotune_status_t{COTUNE_OK};
    };
    host_.store_get = [](void* context, const char* key, void* data, uint64_t, uint64_t* size,
                         int64_t) {
      auto& store = static_cast<GroupTest*>(context)->store_;
      auto& self = *static_cast<GroupTest*>(context);
      if (self.makes_peer_of && store.count(key) == 0) return self.MakePeersWord(key, data, size);
      if (store.count(key) == 0) return cotune_status_t{COTUNE_DEADLINE_EXCEEDED};
      *size = store[key].copy(static_cast<char*>(data), store[key].size());
      return cotune_status_t{COTUNE_OK};
    };
    host_.store_delete = [](void* context, const char* key) {
      static_cast<GroupTest*>(context)->store_.erase(key);
      return cotune_status_t{COTUNE_OK};
    };
    gpu_ = Gpu::Open(0).value();
    memory_ = std::make_unique<PeerMemory>(*gpu_, socket_bases_);
  }
  // The threads that wait for the GPU leave before the next case begins.
  ~GroupTest() override {
    Finish();
    memory_.reset();
    gpu_.reset();
    while (const int waiting = driver_.waiting) driver_.waiting.wait(waiting);
    driver_.waits = 0;
    driver_.allocated = 0;
    driver_.host_allocated = 0;
    driver_.contexts = 0;
    driver_.freed_while_busy = 0;
    driver_.wait_result = 0;
    driver_.words_on_device = {};
    driver_.operation_count = 0;
    EndGraphs();
  }
  // All graphs are destroyed.
  void EndGraphs() {
    driver_.capture = 0;
    for (const auto& [data, let_go] : driver_.held_by_graphs) let_go(data);
    driver_.held_by_graphs.clear();
  }

  void Finish() {
    driver_.is_busy = false;
    driver_.is_busy.notify_all();
  }
  // A group of one rank: ranks in one process do not share memory.
  sdk::Result<std::unique_ptr<Group>> Join(const std::string& name) {
    static constexpr int32_t kJobRanks[] = {0};
    cotune_group_params_t params{};
    params.struct_size = sizeof(params);
    params.name = name.c_str();
    params.world_size = 1;
    params.job_ranks = kJobRanks;
    params.deadline_ns = now_ns_ + 10 * kSecondNs;
    return Group::Join(host_, params, *gpu_, *memory_, {});
  }

  // A group of two, whose other rank offers what the function leaves of this rank's offer.
  sdk::Result<std::unique_ptr<Group>> JoinWithPeer(const std::string& name, ChoiceLimits limits,
                                                   std::function<void(MemoryOffer&)> peer) {
    makes_peer_of = std::move(peer);
    static constexpr int32_t kJobRanks[] = {0, 1};
    cotune_group_params_t params{};
    params.struct_size = sizeof(params);
    params.name = name.c_str();
    params.world_size = 2;
    params.job_ranks = kJobRanks;
    params.deadline_ns = now_ns_ + 10 * kSecondNs;
    auto group = Group::Join(host_, params, *gpu_, *memory_, limits);
    makes_peer_of = nullptr;
    return group;
  }
  // The word of rank 1 under a key is that of rank 0 with another offer, which ends it.
  cotune_status_t MakePeersWord(std::string key, void* data, uint64_t* size) {
    key.back() = '0';
    *size = 0;
    if (store_.count(key) == 0) return COTUNE_OK;  // that the peer has read everything
    if (key.find("/offer/") == std::string::npos) {
      *size = store_[key].copy(static_cast<char*>(data), store_[key].size());
      return COTUNE_OK;
    }
    std::string word = store_[key];
    MemoryOffer offer;
    char* const end = word.data() + word.size() - sizeof(offer);
    std::memcpy(&offer, end, sizeof(offer));
    offer.pid += 1;
    offer.handle.reserved[0] ^= 1;
    makes_peer_of(offer);
    std::memcpy(end, &offer, sizeof(offer));
    *size = word.copy(static_cast<char*>(data), word.size());
    return COTUNE_OK;
  }

  std::function<void(MemoryOffer&)> makes_peer_of;
  FakeDriverState& driver_;
  cotune_host_t host_{};
  std::atomic<int64_t> now_ns_{0};
  std::map<std::string, std::string> store_;
  std::string all_put_;  // into the store, one after another
  std::vector<std::string> socket_bases_;
  std::vector<std::string> log_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<PeerMemory> memory_;
};

TEST_F(GroupTest, AGroupThatGoesGivesBackWhatItHad) {
  for (int i = 0; i < 3; ++i) {
    const auto group = Join("g" + std::to_string(i));
    ASSERT_TRUE(group) << group.error().message;
  }
  EXPECT_EQ(driver_.allocated, 1) << "an arena serves the next group";
  EXPECT_EQ(driver_.host_allocated, 0);
  EXPECT_THAT(store_, IsEmpty());
  memory_.reset();
  gpu_.reset();
  EXPECT_EQ(driver_.allocated, 0);
  EXPECT_EQ(driver_.contexts, 0);
  EXPECT_THAT(log_, IsEmpty());
}

// A rank that has not left the group may still make a call on it.
TEST_F(GroupTest, AnArenaServesAnotherGroupWhenAllPeersHaveLeft) {
  const auto make_one = [&](const std::string& name) {
    const auto group = JoinWithPeer(name, {}, [](MemoryOffer&) {});
    EXPECT_TRUE(group) << group.error().message;
  };
  make_one("g");
  make_one("h");
  EXPECT_EQ(driver_.allocated, 2) << "rank 1 may still write into the arena of 'g'";
  driver_.words_on_device[0] = 1;
  make_one("i");
  EXPECT_EQ(driver_.allocated, 3) << "this rank's own word does not count";
  driver_.words_on_device[1] = 1;
  make_one("j");
  EXPECT_EQ(driver_.allocated, 3);
}

TEST_F(GroupTest, ARankThatLeavesTellsItsPeersWhenItsKernelsHaveEnded) {
  auto group = JoinWithPeer("g", {}, [](MemoryOffer&) {});
  ASSERT_TRUE(group) << group.error().message;
  const auto peer = reinterpret_cast<uintptr_t>((*group)->arguments().arena[1]);
  driver_.operation_count = 0;
  group->reset();
  ASSERT_EQ(driver_.operation_count, 1u);
  EXPECT_EQ(driver_.operations[0].kind, FakeOperation::Kind::kCopy);
  EXPECT_EQ(driver_.operations[0].to, peer + kDeparturesBegin) << "the word of rank 0";
  group = JoinWithPeer("h", {}, [](MemoryOffer&) {});
  ASSERT_TRUE(group) << group.error().message;
  driver_.operation_count = 0;
  driver_.is_busy = true;
  group->reset();
  EXPECT_EQ(driver_.operation_count, 0u) << "a kernel may still write";
  Finish();
}

// The kernels in the graph have the addresses of all of it.
TEST_F(GroupTest, WhatAGraphUsesStaysUntilTheGraphIsDestroyed) {
  auto group = Join("g");
  ASSERT_TRUE(group) << group.error().message;
  driver_.capture = 7;
  (*group)->NoteCall(nullptr);
  (*group)->NoteCall(nullptr);
  EXPECT_EQ(driver_.held_by_graphs.size(), 1u) << "once for a capture";
  driver_.capture = 0;
  (*group)->NoteCall(nullptr);
  group->reset();
  EXPECT_EQ(driver_.host_allocated, 1);
  EXPECT_TRUE(memory_->IsInUse());
  group = Join("h");
  EXPECT_EQ(driver_.allocated, 2);
  group->reset();
  EndGraphs();
  group = Join("i");
  EXPECT_EQ(driver_.allocated, 2) << "either arena serves again";
  EXPECT_EQ(driver_.host_allocated, 1) << "that of the group which lives";
  EXPECT_FALSE(memory_->IsInUse());
  group->reset();
}

TEST_F(GroupTest, ABackendThatGoesLeavesToTheProcessWhatAGraphUses) {
  auto group = Join("g");
  ASSERT_TRUE(group) << group.error().message;
  driver_.capture = 8;
  (*group)->NoteCall(nullptr);
  group->reset();
  memory_.reset();
  EXPECT_EQ(driver_.allocated, 1);
  EXPECT_EQ(driver_.host_allocated, 1);
}

TEST_F(GroupTest, WhereMemoryIsShortTheErrorSaysWhatAGroupTakes) {
  driver_.is_full = true;
  const auto group = Join("g");
  driver_.is_full = false;
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().status, COTUNE_OUT_OF_RESOURCES);
  EXPECT_THAT(group.error().message, HasSubstr("a group takes 230 MiB on the GPU of each rank"));
}

TEST_F(GroupTest, AGroupGoesWhileAKernelOfOthersRunsForEver) {
  auto group = Join("g");
  auto other = Join("h");
  ASSERT_TRUE(group && other);
  driver_.is_busy = true;
  group->reset();
  EXPECT_THAT(log_, ElementsAre(AllOf(HasSubstr("group 'g'"), HasSubstr("GPU 0 still works"))));
  const int64_t asked_ns = now_ns_;
  other->reset();
  EXPECT_LE(now_ns_ - asked_ns, kSecondNs) << "the second wait would be in vain, too";
  EXPECT_EQ(log_.size(), 1u) << "said once";
  // Also the backend goes, and the driver is asked for nothing that it would wait in.
  memory_.reset();
  gpu_.reset();
  EXPECT_EQ(driver_.freed_while_busy, 0);
  EXPECT_EQ(driver_.host_allocated, 2);
  EXPECT_EQ(driver_.allocated, 2);
  EXPECT_LE(driver_.waiting, 1) << "one thread waits";
}

// The GPU comes to an end later, and a replay uses what the group had even then.
TEST_F(GroupTest, WhatAGroupLeftToTheProcessIsNeverFreed) {
  auto group = Join("g");
  ASSERT_TRUE(group);
  driver_.capture = 9;
  (*group)->NoteCall(nullptr);
  driver_.is_busy = true;
  group->reset();
  Finish();
  while (const int waiting = driver_.waiting) driver_.waiting.wait(waiting);
  EXPECT_FALSE(gpu_->IsStuck());
  EXPECT_TRUE(memory_->IsInUse());
  EndGraphs();
  EXPECT_TRUE(memory_->IsInUse());
  memory_.reset();
  EXPECT_EQ(driver_.allocated, 1);
  EXPECT_EQ(driver_.host_allocated, 1);
}

TEST_F(GroupTest, AContextThatHasFailedIsNotWaitedFor) {
  auto group = Join("g");
  ASSERT_TRUE(group);
  driver_.wait_result = 700;
  group->reset();
  EXPECT_THAT(log_, IsEmpty());
  EXPECT_EQ(driver_.host_allocated, 0);
}

TEST_F(GroupTest, TheFirstGroupWaitsForNothingOfOthers) {
  driver_.is_busy = true;
  const auto group = Join("g");
  EXPECT_TRUE(group) << group.error().message;
  EXPECT_EQ(driver_.waits, 0);
  Finish();
}

TEST_F(GroupTest, AJoinEndsAtItsDeadlineWhereKernelsOfAnotherGroupMayRun) {
  const auto first = Join("g");
  ASSERT_TRUE(first);
  driver_.is_busy = true;
  auto second = Join("h");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().status, COTUNE_DEADLINE_EXCEEDED);
  EXPECT_THAT(second.error().message,
              AllOf(HasSubstr("GPU 0 has not ended what this process enqueued"),
                    HasSubstr("a rank that is gone or late")));
  second = Join("i");
  ASSERT_FALSE(second);
  EXPECT_LE(driver_.waiting, 1) << "the second wait is for the same";
  // The kernel ends after all.
  Finish();
  second = Join("j");
  EXPECT_TRUE(second) << second.error().message;
}

// Memory that was left to a kernel which may still run is not filled for another group.
TEST_F(GroupTest, AfterAnEndInVainTheNextGroupWaitsForTheKernel) {
  auto group = Join("g");
  ASSERT_TRUE(group);
  driver_.is_busy = true;
  group->reset();
  auto next = Join("h");
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().status, COTUNE_DEADLINE_EXCEEDED);
  Finish();
  next = Join("i");
  ASSERT_TRUE(next) << next.error().message;
  EXPECT_EQ(driver_.allocated, 2);
}

// Ranks with unlike GPUs have to list the same choices.
TEST_F(GroupTest, ACapabilityThatOneRankLacksCountsForNone) {
  const auto has_pdl = [&](const std::string& name, bool own, uint64_t of_peer) {
    const auto group = JoinWithPeer(name, {.has_pdl = own}, [&](MemoryOffer& offer) {
      EXPECT_EQ(offer.has_pdl, own ? 1u : 0u) << "the peer hears of this rank's";
      offer.has_pdl = of_peer;
    });
    EXPECT_TRUE(group) << group.error().message;
    return group && (*group)->limits().has_pdl;
  };
  EXPECT_TRUE(has_pdl("both", true, 1));
  EXPECT_FALSE(has_pdl("peer lacks it", true, 0));
  EXPECT_FALSE(has_pdl("this one lacks it", false, 1));
}

// One caller may wait for minutes, as a join does, while the end of a group waits for seconds.
TEST_F(GroupTest, AWaitForTheGpuEndsAtItsDeadlineWhileAnotherGoesOn) {
  driver_.is_busy = true;
  cotune_host_t patient = host_;
  patient.now_ns = [](void*) { return int64_t{0}; };  // its deadline never comes
  auto patient_wait = std::async(std::launch::async,
                                 [&] { return gpu_->AwaitIdle(patient, kSecondNs).has_value(); });
  driver_.waiting.wait(0);  // until it waits in the driver
  auto hasty_wait = std::async(std::launch::async, [&] {
    return gpu_->AwaitIdle(host_, now_ns_ + 10 * kSecondNs).has_value();
  });
  EXPECT_EQ(hasty_wait.wait_for(std::chrono::seconds(60)), std::future_status::ready)
      << "it waits for the other caller";
  EXPECT_EQ(driver_.waits, 1) << "both wait for the same";
  EXPECT_TRUE(gpu_->IsStuck());
  Finish();
  EXPECT_FALSE(hasty_wait.get());
  EXPECT_TRUE(patient_wait.get());
  EXPECT_FALSE(gpu_->IsStuck());
}

// The environment may change, in another thread, too, once the backend is there.
TEST_F(GroupTest, RegistrationsReadNoEnvironment) {
  std::string folder = "/tmp/cotune_group_test.XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  memory_.reset();
  memory_ = std::make_unique<PeerMemory>(*gpu_, std::vector<std::string>{folder});
  auto group = Join("g");
  ASSERT_TRUE(group) << group.error().message;
  setenv("XDG_RUNTIME_DIR", "/tmp", 1);
  all_put_.clear();
  alignas(64) char data[64] = {};
  // The driver is none that exports memory. The name of the socket is told to the others first.
  const auto registered = (*group)->RegisterMemory(data, sizeof(data), now_ns_ + 10 * kSecondNs);
  EXPECT_THAT(all_put_, HasSubstr(folder + "/")) << (registered ? "" : registered.error().message);
  group->reset();
  std::filesystem::remove_all(folder);
}

TEST_F(GroupTest, AGpuThatIsTooOldIsRefusedBeforeItsContextIsMade) {
  const int contexts = driver_.contexts;
  const auto old = Gpu::Open(0, 10);
  ASSERT_FALSE(old);
  EXPECT_EQ(old.error().status, COTUNE_UNSUPPORTED);
  EXPECT_THAT(old.error().message, HasSubstr("capability 9.0: 10.0 or newer is needed"));
  EXPECT_EQ(driver_.contexts, contexts);
}

TEST(ProgrammaticLaunchTest, CameWithNineAndIsInAllLaterOnes) {
  EXPECT_FALSE(HasProgrammaticLaunch({8, 0}));
  EXPECT_FALSE(HasProgrammaticLaunch({8, 9}));
  EXPECT_TRUE(HasProgrammaticLaunch({9, 0}));
  EXPECT_TRUE(HasProgrammaticLaunch({10, 0}));
  EXPECT_TRUE(HasProgrammaticLaunch({12, 1}));
}

}  // namespace
}  // namespace cotune::cuda
