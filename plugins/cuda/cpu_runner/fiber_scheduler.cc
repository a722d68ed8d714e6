#include "plugins/cuda/cpu_runner/fiber_scheduler.h"

#include <sched.h>
#include <sys/mman.h>

#include <cstdlib>
#include <utility>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

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
#if defined(__x86_64__)
  void* stack_pointer = nullptr;  // while it does not run
#else
  ucontext_t context;
#endif
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

// Makes `fiber` begin with a call of `entry` on an empty stack, and switches from one fiber to
// another. ucontext does both, but each of its switches asks the kernel for the mask of signals,
// which takes longer than what most fibers do before they yield.
#if defined(__x86_64__)

// Keeps the registers that a callee has to preserve, on the stack that is left.
__attribute__((naked, noinline)) void SwitchStack(void** /*left*/, void* /*entered*/) {
  asm("pushq %rbp\n\t"
      "pushq %rbx\n\t"
      "pushq %r12\n\t"
      "pushq %r13\n\t"
      "pushq %r14\n\t"
      "pushq %r15\n\t"
      "movq %rsp, (%rdi)\n\t"
      "movq %rsi, %rsp\n\t"
      "popq %r15\n\t"
      "popq %r14\n\t"
      "popq %r13\n\t"
      "popq %r12\n\t"
      "popq %rbx\n\t"
      "popq %rbp\n\t"
      "ret");
}

void SetEntry(Fiber* fiber, void (*entry)()) {
  constexpr size_t kKeptRegisters = 6;
  auto* top = reinterpret_cast<void**>(static_cast<char*>(fiber->stack) + kStackBytes);
  *--top = nullptr;  // the address that `entry` would return to; it also aligns the stack
  *--top = reinterpret_cast<void*>(entry);
  for (size_t i = 0; i < kKeptRegisters; ++i) *--top = nullptr;
  fiber->stack_pointer = top;
}

void SwitchStacks(Fiber* left, Fiber* entered) {
  SwitchStack(&left->stack_pointer, entered->stack_pointer);
}

#else

void SetEntry(Fiber* fiber, void (*entry)()) {
  getcontext(&fiber->context);
  fiber->context.uc_stack.ss_sp = fiber->stack;
  fiber->context.uc_stack.ss_size = kStackBytes;
  fiber->context.uc_link = nullptr;
  makecontext(&fiber->context, entry, 0);
}

void SwitchStacks(Fiber* left, Fiber* entered) { swapcontext(&left->context, &entered->context); }

#endif

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
  SetEntry(fiber, &FiberScheduler::Enter);
  ++alive_;
  Push(fiber);
}

void FiberScheduler::Enter() {
  FiberScheduler& scheduler = *here;
  Fiber* fiber = scheduler.running_;
  scheduler.FinishSwitch(nullptr);
  if (fiber->is_of_earlier_run) {
    fiber->is_of_earlier_run = false;
    Acquire(fiber);
  }
  fiber->body(fiber->body_context);
  fiber->has_ended = true;
  scheduler.SwitchTo(scheduler.Next());
}

void FiberScheduler::SwitchTo(Fiber* fiber) {
  Fiber* left = std::exchange(running_, fiber);
  if (left == fiber) return;
  left_ = left;
  if (__sanitizer_start_switch_fiber != nullptr) {
    // A fiber that ends leaves nothing behind.
    __sanitizer_start_switch_fiber(left->has_ended ? nullptr : &left->asan_save, fiber->asan_bottom,
                                   fiber->asan_size);
  }
  if (fiber->tsan != nullptr) __tsan_switch_to_fiber(fiber->tsan, kNoOrder);
  SwitchStacks(left, fiber);
  FinishSwitch(left->asan_save);
}

void FiberScheduler::FinishSwitch(void* asan_save) {
  Fiber* left = left_;
  if (__sanitizer_finish_switch_fiber != nullptr) {
    // The thread's own stack is known to the sanitizer only.
    __sanitizer_finish_switch_fiber(asan_save, &left->asan_bottom, &left->asan_size);
  }
  if (!left->has_ended) return;
  --alive_;
  left->next_idle = idle_;
  idle_ = left;
}

Fiber* FiberScheduler::Next() {
  if (runnable_count_ == 0) return main_;
  const size_t at = Random() % runnable_count_;
  Fiber* fiber = runnable_[at];
  runnable_[at] = runnable_[--runnable_count_];
  ++switches_;
  if (switches_between_sleeps_ != 0 && switches_ % switches_between_sleeps_ == 0) sched_yield();
  return fiber;
}

void FiberScheduler::Run() {
  here = this;
  running_ = main_;
  SwitchTo(Next());
  running_ = nullptr;
  here = nullptr;
}

FiberScheduler& FiberScheduler::Here() { return *here; }
Fiber* FiberScheduler::Self() { return here->running_; }
const ThreadPlace& FiberScheduler::Place() { return here->running_->place; }

void FiberScheduler::Yield() {
  here->Push(here->running_);
  here->SwitchTo(here->Next());
}

void FiberScheduler::YieldSometimes() {
  if (here->Random() % 4 == 0) Yield();
}

bool FiberScheduler::Chance(unsigned int of) { return here->Random() % of == 0; }

void FiberScheduler::Sleep() { here->SwitchTo(here->Next()); }
void FiberScheduler::Wake(Fiber* fiber) { fiber->scheduler->Push(fiber); }
uint64_t FiberScheduler::NowNs() { return ++here->switches_ * kNsPerSwitch; }

}  // namespace cotune::cuda::cpu
