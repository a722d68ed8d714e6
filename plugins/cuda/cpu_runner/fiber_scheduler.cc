#include "plugins/cuda/cpu_runner/fiber_scheduler.h"

#include <sched.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdlib>

// Present only in programs that are built with a sanitizer.
extern "C" {
// NOLINTBEGIN(readability-identifier-naming): names of the sanitizers.
void* __tsan_get_current_fiber() __attribute__((weak));
void* __tsan_create_fiber(unsigned flags) __attribute__((weak));
void __tsan_destroy_fiber(void* fiber) __attribute__((weak));
void __tsan_switch_to_fiber(void* fiber, unsigned flags) __attribute__((weak));
void __tsan_acquire(void* at) __attribute__((weak));
void __tsan_release(void* at) __attribute__((weak));
void __sanitizer_start_switch_fiber(void** save, const void* bottom, size_t size)
    __attribute__((weak));
void __sanitizer_finish_switch_fiber(void* save, const void** bottom, size_t* size)
    __attribute__((weak));
// NOLINTEND(readability-identifier-naming)
}

namespace cotune::cuda::cpu {

struct Fiber {
  ucontext_t context;
  void* stack = nullptr;  // null for the thread's own
  const void* asan_bottom = nullptr;
  size_t asan_size = 0;
  void* asan_save = nullptr;
  void* tsan = nullptr;
  FiberScheduler* scheduler = nullptr;
  FiberScheduler::Body body = nullptr;
  void* body_context = nullptr;
  ThreadPlace place;
  bool has_ended = false;
  bool is_of_earlier_run = false;
  Fiber* next_idle = nullptr;
};

namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kFibersMax = 1 << 16;
constexpr unsigned kNoOrder = 1;  // __tsan_switch_to_fiber_no_sync
constexpr uint64_t kNsPerSwitch = 10;

thread_local FiberScheduler* here = nullptr;

// Fibers of this thread's schedulers that are gone. The thread sanitizer takes longer to make and
// end a fiber than a kernel takes to run in it. Each thread has its own: a fiber knows what it has
// seen, and in another rank's hands it would order what nothing orders.
struct FiberPool {
  FiberPool() = default;
  FiberPool(const FiberPool&) = delete;
  FiberPool& operator=(const FiberPool&) = delete;
  ~FiberPool() {
    while (first != nullptr) {
      Fiber* fiber = first;
      first = fiber->next_idle;
      if (fiber->tsan != nullptr) __tsan_destroy_fiber(fiber->tsan);
      munmap(fiber->stack, kStackBytes);
      delete fiber;
    }
  }
  Fiber* first = nullptr;
};

thread_local FiberPool pool;

}  // namespace

void Release(void* at) {
  if (__tsan_release != nullptr) __tsan_release(at);
}
void Acquire(void* at) {
  if (__tsan_acquire != nullptr) __tsan_acquire(at);
}

FiberScheduler::FiberScheduler(uint64_t seed, unsigned int switches_between_sleeps)
    : random_(seed * 2 + 1), switches_between_sleeps_(switches_between_sleeps) {
  main_ = new Fiber;
  // Never grown: the sanitizer would take a call of the allocator for an access by the fiber.
  runnable_ = new Fiber*[kFibersMax];
  if (__tsan_get_current_fiber != nullptr) main_->tsan = __tsan_get_current_fiber();
}

FiberScheduler::~FiberScheduler() {
  while (idle_ != nullptr) {
    Fiber* fiber = idle_;
    idle_ = fiber->next_idle;
    fiber->next_idle = pool.first;
    pool.first = fiber;
  }
  delete main_;
  delete[] runnable_;
}

uint64_t FiberScheduler::Random() {  // xorshift64*
  random_ ^= random_ >> 12;
  random_ ^= random_ << 25;
  random_ ^= random_ >> 27;
  return (random_ * 0x2545F4914F6CDD1Dull) >> 32;
}

void FiberScheduler::Push(Fiber* fiber) {
  if (runnable_count_ == kFibersMax) abort();
  runnable_[runnable_count_++] = fiber;
}

Fiber* FiberScheduler::Recycle() {
  if (idle_ != nullptr) {
    Fiber* fiber = idle_;
    idle_ = fiber->next_idle;
    return fiber;
  }
  if (pool.first != nullptr) {
    Fiber* fiber = pool.first;
    pool.first = fiber->next_idle;
    // A new fiber would know what this thread has done so far; a reused one is told.
    fiber->is_of_earlier_run = true;
    Release(fiber);
    return fiber;
  }
  auto* fiber = new Fiber;
  fiber->stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (fiber->stack == MAP_FAILED) abort();
  fiber->asan_bottom = fiber->stack;
  fiber->asan_size = kStackBytes;
  if (__tsan_create_fiber != nullptr) fiber->tsan = __tsan_create_fiber(0);
  return fiber;
}

void FiberScheduler::Start(Body body, void* context, const ThreadPlace& place) {
  Fiber* fiber = Recycle();
  fiber->scheduler = this;
  fiber->body = body;
  fiber->body_context = context;
  fiber->place = place;
  fiber->has_ended = false;
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack;
  fiber->context.uc_stack.ss_size = kStackBytes;
  fiber->context.uc_link = nullptr;
  const auto bits = reinterpret_cast<uint64_t>(fiber);
  makecontext(&fiber->context, reinterpret_cast<void (*)()>(&FiberScheduler::Enter), 2,
              static_cast<unsigned int>(bits), static_cast<unsigned int>(bits >> 32));
  ++alive_;
  Push(fiber);
}

void FiberScheduler::Enter(unsigned int low, unsigned int high) {
  auto* fiber = reinterpret_cast<Fiber*>(static_cast<uint64_t>(high) << 32 | low);
  Fiber* main = fiber->scheduler->main_;
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(nullptr, &main->asan_bottom, &main->asan_size);
  }
  if (fiber->is_of_earlier_run) {
    fiber->is_of_earlier_run = false;
    Acquire(fiber);
  }
  fiber->body(fiber->body_context);
  fiber->has_ended = true;
  fiber->scheduler->SwitchBack();
}

void FiberScheduler::SwitchTo(Fiber* fiber) {
  running_ = fiber;
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(&main_->asan_save, fiber->asan_bottom, fiber->asan_size);
  }
  if (fiber->tsan != nullptr) __tsan_switch_to_fiber(fiber->tsan, kNoOrder);
  swapcontext(&main_->context, &fiber->context);
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(main_->asan_save, nullptr, nullptr);
  }
  running_ = nullptr;
}

void FiberScheduler::SwitchBack() {
  Fiber* fiber = running_;
  if (__sanitizer_start_switch_fiber != nullptr) {
    // A fiber that ends leaves nothing behind.
    __sanitizer_start_switch_fiber(fiber->has_ended ? nullptr : &fiber->asan_save,
                                   main_->asan_bottom, main_->asan_size);
  }
  if (main_->tsan != nullptr) __tsan_switch_to_fiber(main_->tsan, kNoOrder);
  swapcontext(&fiber->context, &main_->context);
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(fiber->asan_save, &main_->asan_bottom, &main_->asan_size);
  }
}

void FiberScheduler::Run() {
  here = this;
  while (runnable_count_ != 0) {
    const size_t at = Random() % runnable_count_;
    Fiber* fiber = runnable_[at];
    runnable_[at] = runnable_[--runnable_count_];
    ++switches_;
    if (switches_between_sleeps_ != 0 && switches_ % switches_between_sleeps_ == 0) sched_yield();
    SwitchTo(fiber);
    if (!fiber->has_ended) continue;
    --alive_;
    fiber->next_idle = idle_;
    idle_ = fiber;
  }
  here = nullptr;
}

FiberScheduler& FiberScheduler::Here() { return *here; }
Fiber* FiberScheduler::Self() { return here->running_; }
const ThreadPlace& FiberScheduler::Place() { return here->running_->place; }

void FiberScheduler::Yield() {
  here->Push(here->running_);
  here->SwitchBack();
}

void FiberScheduler::YieldSometimes() {
  if (here->Random() % 4 == 0) Yield();
}

bool FiberScheduler::Chance(unsigned int of) { return here->Random() % of == 0; }

void FiberScheduler::Sleep() { here->SwitchBack(); }
void FiberScheduler::Wake(Fiber* fiber) { fiber->scheduler->Push(fiber); }
uint64_t FiberScheduler::NowNs() { return ++here->switches_ * kNsPerSwitch; }

}  // namespace cotune::cuda::cpu
