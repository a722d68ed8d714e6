#include "plugins/cuda/cpu_runner/kernel_block.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "plugins/cuda/cpu_runner/fiber_scheduler.h"

namespace cotune::cuda::cpu {
namespace {

struct RunningKernel;

// At most so many stores of a block are on their way at once.
constexpr unsigned int kDelayedStores = 4096;

struct StoreNode {
  DelayedStore store;
  StoreNode* next;
};

// Nodes go from list to list and are never allocated: the sanitizer would take a call of the
// allocator for an access by the thread.
struct StoreList {
  StoreNode* first = nullptr;
  StoreNode* last = nullptr;

  void Append(StoreNode* node) {
    node->next = nullptr;
    (first == nullptr ? first : last->next) = node;
    last = node;
  }
  StoreNode* Take() {
    StoreNode* node = first;
    if (node != nullptr) first = node->next;
    return node;
  }
  void TakeAll(StoreList& other) {
    while (StoreNode* node = other.Take()) Append(node);
  }
};

constexpr unsigned int kWarpLanes = 32;
constexpr unsigned char kNoise = 0xA5;

// The lanes of a warp meet in rounds. Two halves in turns: a lane that is ahead by one round
// disturbs none that still reads.
struct Warp {
  unsigned int round = 0;
  unsigned int arrived = 0;
  unsigned long long values[2][kWarpLanes];
  Fiber* waiting[kWarpLanes];
};

// Compiled without the thread sanitizer, as the scheduler: all of it is used by one CPU thread.
struct Block {
  RunningKernel* kernel = nullptr;
  unsigned int alive = 0;
  unsigned int arrived = 0;
  bool any = false;       // of the barrier that threads arrive at
  bool last_any = false;  // of the one before
  std::unique_ptr<Fiber*[]> waiting;
  // Stores on their way: of each thread since its last barrier, and those of all before it.
  std::unique_ptr<StoreList[]> own_stores;
  StoreList block_stores;
  StoreList free_stores;
  std::unique_ptr<StoreNode[]> store_nodes;
  StoreWriter write = nullptr;
  std::unique_ptr<Warp[]> warps;
  unsigned int late_warp = 0;
  std::unique_ptr<unsigned char[]> memory;
  unsigned int index = 0;
  std::unique_ptr<unsigned int[]>
      meetings;  // how often the cluster had met when each thread arrived last
};

// The barrier of the blocks of a cluster.
struct Cluster {
  unsigned int meetings = 0;  // how often it has opened
  unsigned int arrived = 0;
  unsigned int waiting_count = 0;
  std::unique_ptr<Fiber*[]> waiting;
};

struct RunningKernel {
  PlainFunction function;
  const void* arguments;
  LaunchShape shape;
  std::unique_ptr<Block[]> blocks;
  std::unique_ptr<Cluster[]> clusters;
  unsigned int started = 0;
  unsigned int ended = 0;
  Fiber* host = nullptr;
};

void Finish(Block& block, StoreList& stores) {
  while (StoreNode* node = stores.Take()) {
    const DelayedStore store = node->store;
    block.free_stores.Append(node);
    block.write(store);
  }
}

// A late warp lets others run so often, more than they have to do up to the next barrier.
constexpr unsigned int kLateYields = 40;

void ChooseLateWarp(Block& block) {
  const unsigned int warps = (block.kernel->shape.threads + kWarpLanes - 1) / kWarpLanes;
  block.late_warp = warps;
  for (unsigned int w = 0; w < warps; ++w) {
    if (FiberScheduler::Chance(warps)) block.late_warp = w;
  }
}

void BeLate(const Block& block) {
  if (!block.kernel->shape.has_late_warps) return;
  const bool is_late = FiberScheduler::Place().thread / kWarpLanes == block.late_warp;
  for (unsigned int i = 0; is_late && i < kLateYields; ++i) FiberScheduler::Yield();
}

void OpenBarrier(Block& block) {
  if (block.kernel->shape.has_late_warps) ChooseLateWarp(block);
  block.last_any = block.any;
  block.any = false;
  const unsigned int waiting = block.arrived - 1;
  block.arrived = 0;
  for (unsigned int i = 0; i < waiting; ++i) FiberScheduler::Wake(block.waiting[i]);
}

void RunThread(void* context);

void StartBlock(RunningKernel& kernel) {
  Block& block = kernel.blocks[kernel.started];
  block.kernel = &kernel;
  block.index = kernel.started;
  block.alive = kernel.shape.threads;
  for (unsigned int t = 0; t < kernel.shape.threads; ++t) {
    FiberScheduler::Here().Start(
        RunThread, &block, {kernel.started, t, kernel.shape.blocks, kernel.shape.threads, &block});
  }
  ++kernel.started;
}

void StartCluster(RunningKernel& kernel) {
  for (unsigned int b = 0; b < kernel.shape.cluster_blocks; ++b) StartBlock(kernel);
}

Cluster& ClusterOf(const Block& block) {
  return block.kernel->clusters[block.index / block.kernel->shape.cluster_blocks];
}

// The last thread that ends in a block makes room for the next one; in a cluster, for the next one.
void EndThread(Block& block) {
  RunningKernel& kernel = *block.kernel;
  --block.alive;
  if (block.alive != 0) {
    if (block.arrived != block.alive) return;
    // All others wait at the barrier: it opens without this thread.
    ++block.arrived;
    OpenBarrier(block);
    return;
  }
  Finish(block, block.block_stores);
  Release(&kernel);
  ++kernel.ended;
  const bool has_room = kernel.ended % kernel.shape.cluster_blocks == 0;
  if (has_room && kernel.started < kernel.shape.blocks) StartCluster(kernel);
  if (kernel.ended == kernel.shape.blocks) FiberScheduler::Wake(kernel.host);
}

void RunThread(void* context) {
  auto& block = *static_cast<Block*>(context);
  Acquire(block.kernel);
  block.kernel->function(block.kernel->arguments);
  Finish(block, block.own_stores[FiberScheduler::Place().thread]);
  Release(block.kernel);
  EndThread(block);
}

}  // namespace

void RunKernel(KernelFunction kernel, const KernelArguments& arguments, const LaunchShape& shape) {
  struct Call {
    KernelFunction kernel;
    const KernelArguments& arguments;
  };
  const Call call{kernel, arguments};
  RunKernel(
      [](const void* given) {
        const auto& call = *static_cast<const Call*>(given);
        call.kernel(call.arguments);
      },
      &call, shape);
}

void RunKernel(PlainFunction kernel, const void* arguments, const LaunchShape& shape) {
  RunningKernel running{kernel,
                        arguments,
                        shape,
                        std::make_unique<Block[]>(shape.blocks),
                        std::make_unique<Cluster[]>(shape.blocks / shape.cluster_blocks),
                        0,
                        0,
                        FiberScheduler::Self()};
  for (unsigned int b = 0; b < shape.blocks; ++b) {
    running.blocks[b].waiting = std::make_unique<Fiber*[]>(shape.threads);
    running.blocks[b].meetings = std::make_unique<unsigned int[]>(shape.threads);
    running.blocks[b].own_stores = std::make_unique<StoreList[]>(shape.threads);
    running.blocks[b].store_nodes = std::make_unique<StoreNode[]>(kDelayedStores);
    running.blocks[b].warps =
        std::make_unique<Warp[]>((shape.threads + kWarpLanes - 1) / kWarpLanes);
    if (shape.block_bytes != 0) {
      running.blocks[b].memory = std::make_unique<unsigned char[]>(shape.block_bytes);
      std::memset(running.blocks[b].memory.get(), kNoise, shape.block_bytes);
    }
    for (unsigned int n = 0; n < kDelayedStores; ++n) {
      running.blocks[b].free_stores.Append(&running.blocks[b].store_nodes[n]);
    }
  }
  const unsigned int threads_of_cluster = shape.threads * shape.cluster_blocks;
  for (unsigned int c = 0; c < shape.blocks / shape.cluster_blocks; ++c) {
    running.clusters[c].waiting = std::make_unique<Fiber*[]>(threads_of_cluster);
  }
  Release(&running);
  const unsigned int at_once =
      shape.resident_blocks < shape.blocks ? shape.resident_blocks : shape.blocks;
  for (unsigned int b = 0; b < at_once; b += shape.cluster_blocks) StartCluster(running);
  FiberScheduler::Sleep();
  Acquire(&running);
}

bool SyncBlock(bool value) {
  auto& block = *static_cast<Block*>(FiberScheduler::Place().block_state);
  Release(&block);
  block.any = block.any || value;
  block.block_stores.TakeAll(block.own_stores[FiberScheduler::Place().thread]);
  const unsigned int position = block.arrived++;
  if (block.arrived == block.alive) {
    OpenBarrier(block);
  } else {
    block.waiting[position] = FiberScheduler::Self();
    FiberScheduler::Sleep();
  }
  Acquire(&block);
  const bool any = block.last_any;
  BeLate(block);
  return any;
}

unsigned char* BlockMemoryOf(unsigned int bytes) {
  const auto& block = *static_cast<Block*>(FiberScheduler::Place().block_state);
  if (bytes > block.kernel->shape.block_bytes) {
    std::fprintf(stderr, "a block needs %u bytes of memory\n", bytes);
    std::abort();
  }
  return block.memory.get();
}

void ArriveAtCluster() {
  const ThreadPlace& place = FiberScheduler::Place();
  auto& block = *static_cast<Block*>(place.block_state);
  Cluster& cluster = ClusterOf(block);
  Release(&cluster);
  block.meetings[place.thread] = cluster.meetings;
  const LaunchShape& shape = block.kernel->shape;
  if (++cluster.arrived < shape.threads * shape.cluster_blocks) return;
  cluster.arrived = 0;
  ++cluster.meetings;
  for (unsigned int i = 0; i < cluster.waiting_count; ++i) FiberScheduler::Wake(cluster.waiting[i]);
  cluster.waiting_count = 0;
}

void WaitForCluster() {
  const ThreadPlace& place = FiberScheduler::Place();
  auto& block = *static_cast<Block*>(place.block_state);
  Cluster& cluster = ClusterOf(block);
  if (cluster.meetings == block.meetings[place.thread]) {
    cluster.waiting[cluster.waiting_count++] = FiberScheduler::Self();
    FiberScheduler::Sleep();
  }
  Acquire(&cluster);
}

void* InBlockOfCluster(unsigned int block, void* at) {
  const auto& own = *static_cast<Block*>(FiberScheduler::Place().block_state);
  const unsigned int cluster_blocks = own.kernel->shape.cluster_blocks;
  const Block& other = own.kernel->blocks[own.index / cluster_blocks * cluster_blocks + block];
  if (block >= cluster_blocks || other.alive == 0) {
    std::fprintf(stderr, "block %u of a cluster is not there\n", block);
    std::abort();
  }
  return other.memory.get() + (static_cast<unsigned char*>(at) - own.memory.get());
}

namespace {

// The gate fills 8 bytes of block memory.
struct Gate {
  int missing_bytes;  // still expected; negative if some came before the block expected them
  unsigned int is_expecting : 1;
  unsigned int opened : 31;
};
static_assert(sizeof(Gate) == 8);

}  // namespace

void CountAtGate(void* gate, unsigned int bytes, bool expects) {
  Release(gate);
  auto& state = *static_cast<Gate*>(gate);
  state.missing_bytes += expects ? static_cast<int>(bytes) : -static_cast<int>(bytes);
  if (expects) state.is_expecting = 1;
  if (state.is_expecting == 0 || state.missing_bytes != 0) return;
  state.is_expecting = 0;
  state.opened = state.opened + 1;
}

void WaitAtGate(void* gate, unsigned int parity) {
  const volatile auto& state = *static_cast<Gate*>(gate);
  while (state.opened % 2 == parity) FiberScheduler::Yield();
  Acquire(gate);
}

unsigned long long ExchangeInWarp(unsigned long long value, unsigned int offset) {
  const ThreadPlace& place = FiberScheduler::Place();
  Warp& warp = static_cast<Block*>(place.block_state)->warps[place.thread / kWarpLanes];
  const unsigned int lane = place.thread % kWarpLanes;
  const auto& values = warp.values[warp.round % 2];
  warp.values[warp.round % 2][lane] = value;
  if (warp.arrived == kWarpLanes - 1) {
    warp.arrived = 0;
    ++warp.round;
    for (unsigned int i = 0; i < kWarpLanes - 1; ++i) FiberScheduler::Wake(warp.waiting[i]);
  } else {
    warp.waiting[warp.arrived++] = FiberScheduler::Self();
    FiberScheduler::Sleep();
  }
  return values[lane ^ offset];
}

void SyncLanes() {
  const ThreadPlace& place = FiberScheduler::Place();
  Warp& warp = static_cast<Block*>(place.block_state)->warps[place.thread / kWarpLanes];
  Release(&warp);
  ExchangeInWarp(0, 0);
  Acquire(&warp);
}

void DelayStore(const DelayedStore& store, StoreWriter write) {
  const ThreadPlace& place = FiberScheduler::Place();
  auto& block = *static_cast<Block*>(place.block_state);
  StoreNode* node = FiberScheduler::Chance(2) ? block.free_stores.Take() : nullptr;
  if (node == nullptr) return write(store);
  block.write = write;
  node->store = store;
  block.own_stores[place.thread].Append(node);
}

void FinishStores() {
  const ThreadPlace& place = FiberScheduler::Place();
  auto& block = *static_cast<Block*>(place.block_state);
  // Several threads of a block finish one after the other, and the first one has done it for all.
  Acquire(&block.block_stores);
  Finish(block, block.block_stores);
  Finish(block, block.own_stores[place.thread]);
  Release(&block.block_stores);
}

}  // namespace cotune::cuda::cpu
