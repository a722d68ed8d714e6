// Launches on a driver that stands in for a GPU: what they enqueue in which order, and that they
// allocate nothing.
#include "plugins/cuda/group/plan.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/problem/program_graph.h"
#include "plugins/cuda/choices/copy_list.h"
#include "plugins/cuda/fused/fused_list.h"
#include "plugins/cuda/fused/fused_plan.h"
#include "plugins/cuda/kernels/kernel_abi.h"
#include "plugins/cuda/testing/fake_driver.h"
#include "plugins/cuda/testing/part_graph.h"

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

// The order of operations that follows from streams and events.
class Order {
 public:
  explicit Order(std::span<const FakeOperation> operations) {
    std::map<const void*, size_t> last_on;
    std::map<const void*, size_t> recorded_at;
    for (size_t at = 0; at < operations.size(); ++at) {
      const FakeOperation& operation = operations[at];
      const auto follow = [&](const std::map<const void*, size_t>& known, const void* what) {
        const auto found = known.find(what);
        if (found == known.end()) return;
        before_[at] |= before_[found->second];
        before_[at].set(found->second);
      };
      follow(last_on, operation.stream);
      if (operation.kind == FakeOperation::Kind::kWait) follow(recorded_at, operation.event);
      if (operation.kind == FakeOperation::Kind::kRecord) recorded_at[operation.event] = at;
      last_on[operation.stream] = at;
    }
  }
  // True: the first operation ends before the second begins.
  bool Precedes(size_t first, size_t second) const { return before_[second].test(first); }

 private:
  std::array<std::bitset<256>, 256> before_;
};

// The places of the operations of a launch by copy engines.
struct Enqueued {
  std::vector<FakeOperation> operations;
  std::vector<size_t> waits;       // kernels in which ranks wait for each other
  std::vector<size_t> own_copies;  // kernels that copy what stays on a GPU
  std::vector<size_t> copies;
};

Enqueued Sorted(std::span<const FakeOperation> operations) {
  Enqueued sorted;
  sorted.operations.assign(operations.begin(), operations.end());
  for (size_t at = 0; at < operations.size(); ++at) {
    if (operations[at].kind == FakeOperation::Kind::kCopy) sorted.copies.push_back(at);
    if (operations[at].kind != FakeOperation::Kind::kKernel) continue;
    (operations[at].label < 0 ? sorted.waits : sorted.own_copies).push_back(at);
  }
  return sorted;
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

  struct Counts {
    int kernels = 0;
    int copies = 0;
    uint64_t allocations = 0;
  };
  Counts LaunchOne(const Problem& problem, const char* name, bool fails = false) {
    const auto choice = FindChoice(problem, name, {});
    EXPECT_TRUE(choice) << choice.error().message;
    Plan plan(*group_, problem, *choice, nullptr);
    cotune_launch_t launch{};
    launch.struct_size = sizeof(launch);
    launch.send = reinterpret_cast<const void*>(send_);
    launch.recv = reinterpret_cast<void*>(kReceive);
    launch.stream.kind = COTUNE_STREAM_CUDA;
    launch.deadline_ns = kDeadlineNs;
    driver_.kernels = 0;
    driver_.copies = 0;
    const uint64_t before = allocations;
    const auto launched = plan.Launch(launch);
    const uint64_t allocated = allocations - before;
    EXPECT_EQ(launched.has_value(), !fails) << (launched ? "" : launched.error().message);
    return {driver_.kernels, driver_.copies, allocated};
  }

  // The operations of so many launches in a row.
  Enqueued Launches(const Problem& problem, int launches) {
    driver_.operation_count = 0;
    driver_.label_of_kernel = [](void** parameters) {
      return static_cast<const KernelArguments*>(parameters[0])->segment;
    };
    for (int i = 0; i < launches; ++i) LaunchOne(problem, "direct?transport=copy_engine");
    driver_.label_of_kernel = nullptr;
    EXPECT_LE(driver_.operation_count, driver_.operations.size());
    return Sorted(std::span(driver_.operations).first(driver_.operation_count));
  }

  using Store = std::map<std::string, std::string>;

  FakeDriverState& driver_;
  uintptr_t send_ = kSend;
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

// Each copy follows the wait of its phase and ends before the last wait, or before a wait that ends
// earlier copies; no other wait stands behind a copy.
TEST_F(PlanTest, CopiesRunBesideTheWaitsOfLaterPhases) {
  for (const Collective collective :
       {Collective::kAllGather, Collective::kAllToAll, Collective::kBroadcast}) {
    for (const int world_size : {2, 4}) {
      Problem problem = ProblemOf(collective);
      problem.world_size = world_size;
      const CopyList list = CopiesOf(problem, 0);
      const Enqueued launch = Launches(problem, 1);
      const Order order(launch.operations);
      ASSERT_EQ(launch.waits.size(), list.phases.size() + 1);
      size_t next = 0;
      for (size_t phase = 0; phase < list.phases.size(); ++phase) {
        for (const BufferCopy& copy : list.phases[phase].copies) {
          ASSERT_LT(next, launch.copies.size());
          const size_t at = launch.copies[next++];
          EXPECT_EQ(launch.operations[at].to, kReceive + copy.to_offset_bytes);
          EXPECT_EQ(launch.operations[at].bytes, copy.bytes);
          bool is_over = false;
          for (size_t wait = 0; wait < launch.waits.size(); ++wait) {
            EXPECT_EQ(order.Precedes(launch.waits[wait], at), wait <= phase) << wait;
            if (wait <= phase) continue;
            const bool is_last = wait + 1 == launch.waits.size();
            is_over = is_over || is_last || list.phases[wait].ends_earlier_copies;
            EXPECT_EQ(order.Precedes(at, launch.waits[wait]), is_over) << phase << " " << wait;
          }
        }
      }
      EXPECT_EQ(next, launch.copies.size());
      for (const size_t own : launch.own_copies) {
        EXPECT_TRUE(order.Precedes(own, launch.waits.back()));
        for (const size_t copy : launch.copies) {
          EXPECT_FALSE(order.Precedes(own, copy) || order.Precedes(copy, own)) << "not beside it";
        }
      }
    }
  }
}

// The root of a broadcast copies each segment in front of the wait behind which peers read it.
TEST_F(PlanTest, ARootCopiesEachSegmentBeforeItsWait) {
  for (const int world_size : {2, 4}) {
    Problem problem = ProblemOf(Collective::kBroadcast);
    problem.world_size = world_size;
    problem.root = 0;
    const Enqueued launch = Launches(problem, 1);
    const Order order(launch.operations);
    EXPECT_TRUE(launch.copies.empty());
    ASSERT_EQ(launch.own_copies.size(), world_size == 2 ? 6u : 3u);
    for (size_t segment = 0; segment < launch.own_copies.size(); ++segment) {
      EXPECT_TRUE(order.Precedes(launch.own_copies[segment], launch.waits[segment]));
    }
  }
}

TEST_F(PlanTest, ARootWithOneBufferCopiesNothing) {
  send_ = kReceive;
  Problem problem = ProblemOf(Collective::kBroadcast);
  problem.root = 0;
  const Enqueued launch = Launches(problem, 1);
  EXPECT_EQ(launch.waits.size(), CopiesOf(problem, 0).phases.size() + 1);
  EXPECT_TRUE(launch.own_copies.empty());
}

// Nothing of a launch begins before the launch in front of it has ended: side streams, too.
TEST_F(PlanTest, LaunchesFollowEachOther) {
  for (const Collective collective :
       {Collective::kAllGather, Collective::kAllToAll, Collective::kBroadcast}) {
    const Enqueued both = Launches(ProblemOf(collective), 2);
    const Order order(both.operations);
    const size_t end = both.waits[both.waits.size() / 2 - 1];
    for (const auto* places : {&both.waits, &both.own_copies, &both.copies}) {
      ASSERT_EQ(places->size() % 2, 0u);
      for (size_t i = places->size() / 2; i < places->size(); ++i) {
        EXPECT_TRUE(order.Precedes(end, (*places)[i]));
      }
    }
  }
}

// A capture with a stream that was not joined cannot end: whichever operation fails, each side
// stream is joined, unless its own fork or join is what failed.
TEST_F(PlanTest, AFailedLaunchJoinsItsSideStreams) {
  for (const Collective collective :
       {Collective::kAllGather, Collective::kAllToAll, Collective::kBroadcast}) {
    const Problem problem = ProblemOf(collective);
    const Enqueued whole = Launches(problem, 1);
    for (size_t failing = 0; failing < whole.operations.size(); ++failing) {
      using Kind = FakeOperation::Kind;
      driver_.operation_count = 0;
      driver_.operations_before_failure = static_cast<int>(failing);
      LaunchOne(problem, "direct?transport=copy_engine", /*fails=*/true);
      driver_.operations_before_failure = -1;
      const void* const failed_event = whole.operations[failing].event;
      const auto operations = std::span(driver_.operations).first(driver_.operation_count);
      std::map<const void*, const void*> unjoined;  // side streams, by the event of each
      for (const FakeOperation& operation : operations) {
        const bool is_main = operation.stream == nullptr;
        if (!is_main && operation.kind == Kind::kWait) unjoined[operation.stream] = operation.event;
        if (!is_main || operation.kind != Kind::kWait) continue;
        std::erase_if(unjoined, [&](const auto& side) { return side.second == operation.event; });
      }
      std::erase_if(unjoined, [&](const auto& side) { return side.second == failed_event; });
      EXPECT_TRUE(unjoined.empty()) << static_cast<int>(collective) << " " << failing;
    }
  }
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

// ---- Kernels that run the operations around a collective ----

// The parameters of the last kernel that was launched.
struct FusedParameters {
  KernelArguments kernel{};
  AnyPartArguments source{};
  AnyPartArguments sink{};
};
FusedParameters last_fused;

int KeepFusedParameters(void** parameters) {
  // The driver reads as many operands as the kernel has; those of these tests have few.
  constexpr size_t kBytes = sizeof(PartArguments<8>);
  last_fused.kernel = *static_cast<const KernelArguments*>(parameters[0]);
  std::memcpy(&last_fused.source, parameters[1], kBytes);
  std::memcpy(&last_fused.sink, parameters[2], kBytes);
  return 0;
}

constexpr char kResidualNorm[] =
    "program p\n%x = input bf16 [R, 8192]\n%r = input bf16 [R, 8192] replicated\n"
    "%g = input bf16 [1, 8192]\n%s = all_reduce sum %x\n%t = add %s, %r\n"
    "%y = rms_norm %t, %g, eps=1e-6\nreturn %y, %t into %r\n";
constexpr char kBias[] =
    "program p\n%x = input bf16 [R, 1024]\n%b = input bf16 [1, 1024]\n"
    "%s = all_reduce sum %x\n%y = add %s, %b\nreturn %y\n";

class FusedPlanTest : public PlanTest {
 protected:
  static LeafRegion RegionAt(const char* text, uint64_t rows) {
    const auto graph = ProgramGraph::Parse(text);
    return LeafRegionOf(RegionOf(graph.value().Lower(), rows, 4)).value();
  }
  // The first choice that is listed with this beginning of its name.
  static Choice ChoiceOf(const LeafRegion& region, std::string_view name) {
    const std::vector<Choice> choices = ListFused(region, {}).value();
    for (const Choice& choice : choices) {
      if (choice.reason.empty() && choice.name.find(name) != std::string::npos) return choice;
    }
    ADD_FAILURE() << name << " is not listed";
    return {};
  }
  // Launches the choice once on inputs and outputs that nobody reads; returns the allocations.
  uint64_t Launch(const LeafRegion& region, const Choice& choice) {
    driver_.kernels = 0;
    driver_.label_of_kernel = KeepFusedParameters;
    FusedPlan plan(*group_, region, choice, nullptr);
    cotune_program_launch_t launch{};
    launch.struct_size = sizeof(launch);
    launch.inputs = inputs_.data();
    launch.outputs = outputs_.data();
    launch.stream.kind = COTUNE_STREAM_CUDA;
    launch.deadline_ns = kDeadlineNs;
    const uint64_t before = allocations;
    const auto launched = plan.Launch(launch);
    const uint64_t allocated = allocations - before;
    EXPECT_TRUE(launched) << launched.error().message;
    driver_.label_of_kernel = nullptr;
    return allocated;
  }
  static void* At(uintptr_t address) { return reinterpret_cast<void*>(address); }

  std::vector<const void*> inputs_{At(0x1000), At(0x2000), At(0x3000)};
  std::vector<void*> outputs_{At(0x4000), At(0x2000)};
};

TEST_F(FusedPlanTest, ARegionOfRowsIsOneKernelWithItsShape) {
  for (const char* const name : {"one_shot_rows?cluster=2", "two_shot_split_rows?cluster=1"}) {
    const LeafRegion region = RegionAt(kResidualNorm, 64);
    const Choice choice = ChoiceOf(region, name);
    EXPECT_EQ(Launch(region, choice), 0u);
    EXPECT_EQ(driver_.kernels, 1);
    EXPECT_EQ(driver_.last_blocks, static_cast<unsigned int>(choice.blocks));
    EXPECT_EQ(last_fused.kernel.count, 64u * 8192);
    EXPECT_EQ(last_fused.kernel.timeout_ticks, TicksOf(kDeadlineNs));
    EXPECT_EQ(last_fused.source.operands[0], inputs_[0]);
    // The collective's value stays in registers.
    EXPECT_EQ(last_fused.sink.operands[0], nullptr);
    EXPECT_EQ(last_fused.sink.operands[1], inputs_[1]);
    EXPECT_EQ(last_fused.sink.operands[2], inputs_[2]);
    EXPECT_EQ(last_fused.sink.operands[3], outputs_[0]);
    EXPECT_EQ(last_fused.sink.operands[4], outputs_[1]);
    EXPECT_EQ(last_fused.sink.rows, 64u);
    EXPECT_EQ(last_fused.sink.is_aligned, 1u);
  }
}

TEST_F(FusedPlanTest, ChunksAreThoseOfTheChoice) {
  const LeafRegion region = RegionAt(kBias, 8192);
  const Choice choice = ChoiceOf(region, "transport=flagged");
  ASSERT_GT(choice.chunk_bytes, 0);
  EXPECT_EQ(Launch(region, choice), 0u);
  EXPECT_EQ(last_fused.kernel.chunk_bytes, choice.chunk_bytes);
  EXPECT_EQ(driver_.last_blocks, static_cast<unsigned int>(choice.blocks));
  EXPECT_EQ(last_fused.sink.operands[2], outputs_[0]);
}

// Kernels move whole vectors only if all of their operands begin at one.
TEST_F(FusedPlanTest, OperandsThatAreNotAlignedAreToldToTheKernel) {
  const LeafRegion region = RegionAt(kBias, 8);
  inputs_[1] = At(0x2002);
  Launch(region, ChoiceOf(region, "one_shot_leaves"));
  EXPECT_EQ(last_fused.source.is_aligned, 1u);
  EXPECT_EQ(last_fused.sink.is_aligned, 0u);
}

TEST_F(FusedPlanTest, NothingIsLaunchedForNoRows) {
  const LeafRegion region = RegionAt(kBias, 0);
  const LeafRegion some = RegionAt(kBias, 8);
  Launch(region, ChoiceOf(some, "one_shot_leaves"));
  EXPECT_EQ(driver_.kernels, 0);
}

}  // namespace
}  // namespace cotune::cuda
