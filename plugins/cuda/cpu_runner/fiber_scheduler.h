// Many threads of a GPU as fibers of one thread of the CPU. A seed decides which one runs next, so
// that a schedule can be run again.
#ifndef COTUNE_PLUGINS_CUDA_CPU_RUNNER_FIBER_SCHEDULER_H_
#define COTUNE_PLUGINS_CUDA_CPU_RUNNER_FIBER_SCHEDULER_H_

#include <cstddef>
#include <cstdint>

namespace cotune::cuda::cpu {

struct Fiber;

// The place of a fiber in its kernel.
struct ThreadPlace {
  unsigned int block = 0;
  unsigned int thread = 0;
  unsigned int blocks = 1;
  unsigned int threads = 1;
  void* block_state = nullptr;
};

// One a thread of the CPU at a time. The unit is compiled without the thread sanitizer: switches
// order nothing, so that it sees the fibers as the unordered threads that they stand for. What does
// order them is said with Release and Acquire.
class FiberScheduler {
 public:
  using Body = void (*)(void* context);

  // switches_between_sleeps: after so many switches the thread lets others run; 0 never.
  FiberScheduler(uint64_t seed, unsigned int switches_between_sleeps);
  ~FiberScheduler();
  FiberScheduler(const FiberScheduler&) = delete;
  FiberScheduler& operator=(const FiberScheduler&) = delete;

  // Adds a fiber; `context` must live until it is done.
  void Start(Body body, void* context, const ThreadPlace& place);
  // Runs fibers until none is left that can run.
  void Run();

  // Fibers that have not ended; after Run: those that nobody woke.
  size_t alive() const { return alive_; }

  // ---- From within a fiber ----
  static FiberScheduler& Here();
  static Fiber* Self();
  static const ThreadPlace& Place();
  // Lets another fiber run; and with a probability of one in four.
  static void Yield();
  static void YieldSometimes();
  // True once in `of` times.
  static bool Chance(unsigned int of);
  // Sleeps until somebody wakes it.
  static void Sleep();
  static void Wake(Fiber* fiber);
  // Advances with every switch.
  static uint64_t NowNs();

 private:
  static void Enter();
  uint64_t Random();
  // The fiber that goes on: one that can run, or the thread itself when none can.
  Fiber* Next();
  void SwitchTo(Fiber* fiber);
  // The first thing that a fiber does after a switch to it.
  void FinishSwitch(void* asan_save);
  void Push(Fiber* fiber);
  Fiber* Recycle();

  uint64_t random_;
  unsigned int switches_between_sleeps_;
  uint64_t switches_ = 0;
  size_t alive_ = 0;
  Fiber** runnable_ = nullptr;
  size_t runnable_count_ = 0;
  Fiber* idle_ = nullptr;
  Fiber* running_ = nullptr;
  Fiber* left_ = nullptr;  // by the last switch
  Fiber* main_ = nullptr;
};

// All that a thread did before Release(at) has happened for a thread that then does Acquire(at).
void Release(void* at);
void Acquire(void* at);

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_CPU_RUNNER_FIBER_SCHEDULER_H_
