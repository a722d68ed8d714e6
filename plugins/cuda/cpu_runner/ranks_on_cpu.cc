#include "plugins/cuda/cpu_runner/ranks_on_cpu.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "plugins/cuda/cpu_runner/fiber_scheduler.h"

namespace cotune::cuda::cpu {
namespace {

// Grids of a few threads use only the beginning of each part of the scratch; only that is filled.
constexpr unsigned long long kUsedBytes = 512ull << 10;
constexpr unsigned int kSwitchesBetweenSleeps = 64;

constexpr unsigned char kEmptyByte = 0xFF;

std::vector<unsigned long long> ScratchParts() {
  std::vector<unsigned long long> begins;
  for (unsigned int s = 0; s < kStepBuffers; ++s) {
    begins.push_back(kScratchBegin + s * kScratchBytes);
    begins.push_back(kScratchBegin + kEscapeOffset + s * kScratchBytes);
  }
  return begins;
}

[[noreturn]] void Die(const char* what) {
  std::perror(what);
  std::abort();
}

// A file in memory that holds an empty part.
int EmptyPart() {
  static const int file = [] {
    const int made = memfd_create("empty scratch", MFD_CLOEXEC);
    const std::vector<unsigned char> content(kUsedBytes, kEmptyByte);
    if (made < 0 || write(made, content.data(), kUsedBytes) != static_cast<ssize_t>(kUsedBytes)) {
      Die("cannot make a file of empty scratch");
    }
    return made;
  }();
  return file;
}

// Maps the file instead of filling memory: most tests make many arenas and write few of the pages,
// and only those are copied.
void MakeEmpty(unsigned char* part) {
  if (mmap(part, kUsedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, EmptyPart(), 0) ==
      MAP_FAILED) {
    Die("cannot map empty scratch");
  }
}

struct Program {
  const std::function<void(int)>* run;
  int rank;
};

void RunProgram(void* context) {
  const auto& program = *static_cast<Program*>(context);
  Acquire(context);
  (*program.run)(program.rank);
  Release(context);
}

}  // namespace

RanksOnCpu::RanksOnCpu(int world_size, unsigned int first_step)
    : world_size_(world_size), states_(static_cast<size_t>(world_size)) {
  for (State& state : states_) {
    void* memory = mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) Die("cannot map an arena");
    state.arena = static_cast<unsigned char*>(memory);
    for (const unsigned long long begin : ScratchParts()) MakeEmpty(state.arena + begin);
    reinterpret_cast<ArenaControl*>(state.arena)->step = first_step;
    std::memset(state.arena + kCallRecordsBegin, 0xFF, kRanksMax * sizeof(CallRecord));
  }
}

RanksOnCpu::~RanksOnCpu() {
  for (const State& state : states_) munmap(state.arena, kArenaBytes);
}

bool RanksOnCpu::Run(const std::function<void(int)>& program, uint64_t seed, Threads threads) {
  std::vector<Program> programs;
  for (int r = 0; r < world_size_; ++r) programs.push_back({&program, r});
  if (threads == Threads::kOneForAll) {
    FiberScheduler scheduler(seed, 0);
    for (Program& p : programs) {
      Release(&p);
      scheduler.Start(RunProgram, &p, {});
    }
    scheduler.Run();
    for (Program& p : programs) Acquire(&p);
    return scheduler.alive() == 0;
  }
  std::atomic<size_t> alive = 0;
  std::vector<std::thread> workers;
  for (Program& p : programs) {
    workers.emplace_back([&p, &alive, seed] {
      FiberScheduler scheduler(seed * 31 + static_cast<uint64_t>(p.rank), kSwitchesBetweenSleeps);
      Release(&p);
      scheduler.Start(RunProgram, &p, {});
      scheduler.Run();
      Acquire(&p);
      alive += scheduler.alive();
    });
  }
  for (std::thread& worker : workers) worker.join();
  return alive == 0;
}

void RanksOnCpu::Launch(int rank, KernelFunction kernel, const KernelArguments& call,
                        const LaunchShape& shape) {
  RunKernel(kernel, ArgumentsOf(rank, call), shape);
}

KernelArguments RanksOnCpu::ArgumentsOf(int rank, const KernelArguments& call) {
  State& state = states_[static_cast<size_t>(rank)];
  KernelArguments arguments = call;
  for (size_t r = 0; r < states_.size(); ++r) arguments.arena[r] = states_[r].arena;
  arguments.failure = &state.failure;
  arguments.abort = &state.abort;
  arguments.timeout_ticks = TicksOf(timeout_ns_);
  arguments.rank = rank;
  arguments.world_size = world_size_;
  return arguments;
}

void RanksOnCpu::Delay(uint64_t duration_ns) {
  const uint64_t until = FiberScheduler::NowNs() + duration_ns;
  while (FiberScheduler::NowNs() < until) FiberScheduler::Yield();
}

void RanksOnCpu::SetQueueCounts(uint64_t messages) {
  constexpr size_t kWords = kQueueBlocksMax * sizeof(QueueWords) / sizeof(unsigned long long);
  for (const State& state : states_) {
    auto* words = reinterpret_cast<unsigned long long*>(state.arena + kQueueWordsBegin);
    std::fill(words, words + kWords, messages);
  }
}

void RanksOnCpu::SetLaunchCounts(unsigned int launches) {
  for (const State& state : states_) {
    reinterpret_cast<ArenaControl*>(state.arena)->launches = launches;
    // The latest call of each peer has the number before.
    for (int peer = 0; peer < world_size_; ++peer) {
      auto* record = reinterpret_cast<CallRecord*>(state.arena + kCallRecordsBegin) + peer;
      *record = {{launches - 1, 0, (launches - 1) & 0xFFu, 0}};
    }
  }
}

void RanksOnCpu::SetLookedTick(unsigned int tick) {
  for (const State& state : states_) {
    reinterpret_cast<ArenaControl*>(state.arena)->looked_tick = tick;
  }
}

bool RanksOnCpu::HasFailed(int rank) const {
  auto& is_set = const_cast<unsigned int&>(states_[static_cast<size_t>(rank)].failure.is_set);
  return std::atomic_ref(is_set).load(std::memory_order_acquire) == 1;
}

void RanksOnCpu::Abort(int rank) {
  std::atomic_ref(states_[static_cast<size_t>(rank)].abort.value).store(1);
}

bool RanksOnCpu::ScratchIsClean() const {
  for (const State& state : states_) {
    for (const unsigned long long offset : ScratchParts()) {
      const unsigned char* begin = state.arena + offset;
      // Each byte is equal to the one before. One call, because the sanitizers look at each access.
      const bool is_clean =
          *begin == kEmptyByte && std::memcmp(begin, begin + 1, kUsedBytes - 1) == 0;
      if (!is_clean) return false;
    }
  }
  return true;
}

}  // namespace cotune::cuda::cpu
