// Launches on a driver that stands in for a GPU: what they enqueue, and that they allocate nothing.
#include "plugins/cuda/group/plan.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "plugins/cuda/testing/fake_driver.h"

namespace {

thread_local uint64_t allocations = 0;

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace cotune::cuda {
namespace {

using sdk::Collective;
using sdk::Problem;

constexpr int64_t kDeadlineNs = 60'000'000'000;

FakeDriverState& LoadFakeDriver() {
  const std::string path = std::filesystem::absolute("plugins/cuda/fake_libcuda.so");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return *reinterpret_cast<FakeDriverState* (*)()>(dlsym(library, "fake_driver_state"))();
}

// A group of one rank. Its plans are those of rank 0 of four: what they enqueue is known, and the
// driver reads no memory of the peers.
class PlanTest : public ::testing::Test {
 protected:
  PlanTest() : driver_(LoadFakeDriver()) {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    host_.struct_size = sizeof(host_);
    host_.context = &store_;
    host_.now_ns = [](void*) { return int64_t{0}; };
    host_.store_put = [](void* context, const char* key, const void* data, uint64_t size) {
      (*static_cast<Store*>(context))[key] = std::string(static_cast<const char*>(data), size);
      return cotune_status_t{COTUNE_OK};
    };
    host_.store_get = [](void* context, const char* key, void* data, uint64_t, uint64_t* size,
                         int64_t) {
      const std::string& value = (*static_cast<Store*>(context))[key];
      *size = value.copy(static_cast<char*>(data), value.size());
      return cotune_status_t{COTUNE_OK};
    };
    host_.store_delete = [](void* context, const char* key) {
      static_cast<Store*>(context)->erase(key);
      return cotune_status_t{COTUNE_OK};
    };
    gpu_ = Gpu::Open(0).value();
    memory_ = std::make_unique<PeerMemory>(*gpu_, std::vector<std::string>{folder_});
    static constexpr int32_t kJobRanks[] = {0};
    cotune_group_params_t params{};
    params.struct_size = sizeof(params);
    params.name = "g";
    params.world_size = 1;
    params.job_ranks = kJobRanks;
    params.deadline_ns = kDeadlineNs;
    group_ = Group::Join(host_, params, *gpu_, *memory_, {}).value();
    for (const uintptr_t buffer : {kSend, kReceive}) {
      const auto registered =
          group_->RegisterMemory(reinterpret_cast<void*>(buffer), kBytes, kDeadlineNs);
      EXPECT_TRUE(registered) << registered.error().message;
    }
  }
  ~PlanTest() override { std::filesystem::remove_all(folder_); }

  // No process reads them.
  static constexpr uintptr_t kSend = uintptr_t{1} << 44;
  static constexpr uintptr_t kReceive = uintptr_t{1} << 45;
  static constexpr uint64_t kBytes = uint64_t{1} << 30;

  static Problem ProblemOf(Collective collective) {
    Problem problem;
    problem.collective = collective;
    problem.world_size = 4;
    problem.root = collective == Collective::kBroadcast ? 1 : 0;
    problem.count = 16 << 20;
    problem.is_symmetric = true;
    return problem;
  }

  struct Enqueued {
    int kernels = 0;
    int copies = 0;
    uint64_t allocations = 0;
  };
  Enqueued LaunchOne(const Problem& problem, const char* name) {
    const auto choice = FindChoice(problem, name, {});
    EXPECT_TRUE(choice) << choice.error().message;
    Plan plan(*group_, problem, *choice, nullptr);
    cotune_launch_t launch{};
    launch.struct_size = sizeof(launch);
    launch.send = reinterpret_cast<const void*>(kSend);
    launch.recv = reinterpret_cast<void*>(kReceive);
    launch.stream.kind = COTUNE_STREAM_CUDA;
    launch.deadline_ns = kDeadlineNs;
    driver_.kernels = 0;
    driver_.copies = 0;
    const uint64_t before = allocations;
    const auto launched = plan.Launch(launch);
    const uint64_t allocated = allocations - before;
    EXPECT_TRUE(launched) << launched.error().message;
    return {driver_.kernels, driver_.copies, allocated};
  }

  using Store = std::map<std::string, std::string>;

  FakeDriverState& driver_;
  std::string folder_ = "/tmp/cotune_plan_test.XXXXXX";
  cotune_host_t host_{};
  Store store_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<PeerMemory> memory_;
  std::unique_ptr<Group> group_;
};

// Barriers and the copy of the own block; a copy from each peer.
TEST_F(PlanTest, BlocksAreCopiedWithoutAnAllocation) {
  for (const Collective collective : {Collective::kAllGather, Collective::kAllToAll}) {
    const auto enqueued = LaunchOne(ProblemOf(collective), "direct?transport=copy_engine");
    EXPECT_EQ(enqueued.kernels, 3);
    EXPECT_EQ(enqueued.copies, 3);
    EXPECT_EQ(enqueued.allocations, 0u);
  }
}

// Five barriers around four phases: a share of each of three segments, and then those of two peers.
TEST_F(PlanTest, ABroadcastIsCopiedWithoutAnAllocation) {
  const auto enqueued =
      LaunchOne(ProblemOf(Collective::kBroadcast), "direct?transport=copy_engine");
  EXPECT_EQ(enqueued.kernels, 5);
  EXPECT_EQ(enqueued.copies, 3 + 2 * 3);
  EXPECT_EQ(enqueued.allocations, 0u);
}

// Two barriers and two sums; in each of two segments a scatter from and a gather of three peers.
TEST_F(PlanTest, SegmentsAreCopiedAndAddedUpWithoutAnAllocation) {
  const auto enqueued =
      LaunchOne(ProblemOf(Collective::kAllReduce), "two_shot?transport=copy_engine");
  EXPECT_EQ(enqueued.kernels, 4);
  EXPECT_EQ(enqueued.copies, 2 * (3 + 3));
  EXPECT_EQ(enqueued.allocations, 0u);
}

TEST_F(PlanTest, AKernelIsLaunchedWithoutAnAllocation) {
  for (const char* name : {"two_shot?blocks=64&pdl=1&threads=512&transport=lamport&unroll=2",
                           "two_shot?blocks=64&pdl=1&threads=512&transport=zero_copy&unroll=2"}) {
    const auto enqueued = LaunchOne(ProblemOf(Collective::kAllReduce), name);
    EXPECT_EQ(enqueued.kernels, 1);
    EXPECT_EQ(enqueued.copies, 0);
    EXPECT_EQ(enqueued.allocations, 0u);
  }
}

}  // namespace
}  // namespace cotune::cuda
