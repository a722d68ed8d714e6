// Watches calls into plugins: frees this rank from one that does not honour its deadline, and says
// which one it is when nothing frees it.
#ifndef COTUNE_CORE_BACKEND_CALL_WATCHDOG_H_
#define COTUNE_CORE_BACKEND_CALL_WATCHDOG_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/clock.h"

namespace cotune {

// The subject of a call into a plugin, as messages and the journal name it. Constant.
struct CallSubject {
  std::string backend;
  std::string plugin;         // path, or "registered in the process"
  std::string choice;         // id text; "" for a call about no choice
  std::string problem_class;  // ToText, with a choice only
  uint64_t bytes = 0;         // likewise
  std::string text;           // the words of all this, for messages

  // While a plugin is loaded its backend has no name yet.
  static CallSubject OfPlugin(std::string plugin);
  static CallSubject OfBackend(std::string backend, std::string plugin);
  static CallSubject OfChoice(std::string backend, std::string plugin, const ChoiceId& choice,
                              const Problem& problem);
};

// A call that nothing has freed, or that takes long.
struct StuckCall {
  const char* function = "";
  CallSubject subject;
  bool was_interrupted = false;  // the user has asked to stop before its deadline had passed
  CallSubject aborted;           // of the call that it aborts; without text where there is none

  // A choice whose call had to be aborted is to blame for the abort too.
  const CallSubject& blamed() const { return subject.choice.empty() ? aborted : subject; }
};

// While it lives, the calls of this thread abort a call of this subject, which outlives it.
class AbortedCall {
 public:
  explicit AbortedCall(const CallSubject& subject);
  ~AbortedCall();
  AbortedCall(const AbortedCall&) = delete;
  AbortedCall& operator=(const AbortedCall&) = delete;
};

class CallSlot;
class CallWatchdog;

// Begins an abort of a call of this subject, on a thread of its own, since an abort is a plugin's
// code, too, and may never return. `abort` keeps alive what it needs. watchdog may be nullptr.
void AbortAside(CallWatchdog* watchdog, std::function<void()> abort, const CallSubject& subject);

// One thread that looks at all calls. A call that has not returned when its time has passed is
// aborted, on a thread of its own, because an abort is a plugin's code too. One that still does not
// return is reported, once: from then on stuck() says so to whoever is about to call a plugin.
class CallWatchdog {
 public:
  struct Options {
    int64_t abort_after_ns = 0;              // from a call's deadline to its abort
    int64_t stuck_after_ns = 2'000'000'000;  // from the abort to the report
    int64_t call_limit_ns = 60'000'000'000;  // of calls that have no deadline of their own
    // On the watchdog's thread; may end the process. It calls nothing of this object.
    std::function<void(const StuckCall&, const Error&)> on_stuck = nullptr;
    int64_t slow_after_ns = 10'000'000'000;
    // Likewise, once a call that runs for so long, launches and their progress excepted, which wait
    // for other ranks: a plugin that compiles, say, while the user wonders.
    std::function<void(const StuckCall&)> on_slow = nullptr;
  };

  explicit CallWatchdog(const Clock& clock) : CallWatchdog(clock, Options()) {}
  CallWatchdog(const Clock& clock, Options options);
  // No call is running any more.
  ~CallWatchdog();
  CallWatchdog(const CallWatchdog&) = delete;
  CallWatchdog& operator=(const CallWatchdog&) = delete;

  // Around calls of the choice, which uses these groups, and the wait for what they have started on
  // a device; one thread. Unwatch waits for an abort that is on its way, but not for one that is
  // stuck.
  void Watch(std::vector<BackendGroup*> groups, const CallSubject& subject, int64_t deadline_ns);
  void Unwatch();

  // Why no plugin may be called any more; nullptr: all is well. Any thread.
  const Error* stuck() const { return stuck_.load(std::memory_order_acquire); }
  // While it is true, calls that take long are aborted at once. nullptr takes it back.
  void set_interrupted(const std::atomic<bool>* interrupted);
  // The deadline of a call that has none of its own and begins now.
  int64_t DeadlineOfCall() const { return DeadlineAfter(clock_.now_ns(), options_.call_limit_ns); }
  // Keeps an object that a stuck call still uses for as long as this one, which is then not
  // destroyed either.
  void Keep(std::shared_ptr<void> used) {
    const std::lock_guard lock(state_->mutex);
    kept_.push_back(std::move(used));
  }
  // Returns when no subject is being read: whoever owns one calls it before the subject goes.
  void AwaitReader() { const std::lock_guard lock(state_->mutex); }

 private:
  friend class CallSlot;
  friend void AbortAside(CallWatchdog* watchdog, std::function<void()> abort,
                         const CallSubject& subject);
  // Shared with the threads that abort, one of which may never end.
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<int> running_aborts{0};  // of the groups that are watched
  };

  void Loop();
  // Looks at one call; the lock is held. Fills `stuck` with the first that is.
  void Look(CallSlot& slot, int64_t now_ns, std::unique_ptr<StuckCall>& stuck);
  // Likewise; adds the call where it is slow.
  void LookForSlowness(CallSlot& slot, int64_t now_ns, std::vector<StuckCall>& slow) const;
  void Report(const StuckCall& stuck);

  const Clock& clock_;
  const Options options_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  // Under the lock of the state:
  std::list<CallSlot*> slots_;
  const std::atomic<bool>* interrupted_ = nullptr;
  int64_t interrupted_at_ns_ = 0;      // 0: it is not
  std::vector<BackendGroup*> groups_;  // that are watched
  bool stop_ = false;
  std::vector<std::shared_ptr<void>> kept_;

  std::unique_ptr<Error> error_;
  std::atomic<const Error*> stuck_{nullptr};
  std::unique_ptr<CallSlot> watched_;
  std::thread thread_;
};

// A place for calls that come one at a time: those of a group, say. One thread at a time.
class CallSlot {
 public:
  // `abort` frees the call where it can be freed; it keeps alive what it needs. watchdog may be
  // nullptr: nothing is watched.
  CallSlot(CallWatchdog* watchdog, std::function<void()> abort);
  ~CallSlot();
  CallSlot(const CallSlot&) = delete;
  CallSlot& operator=(const CallSlot&) = delete;

  // For one call at a time; `function` is a literal, the subject outlives the call.
  void Begin(const CallSubject& subject, const char* function, int64_t deadline_ns);
  void End() { sequence_.store(++own_sequence_, std::memory_order_release); }

 private:
  friend class CallWatchdog;
  CallWatchdog* const watchdog_;
  const std::function<void()> abort_;
  std::list<CallSlot*>::iterator place_;
  // Odd while a call is running. The fields are of the call with this number.
  std::atomic<uint64_t> sequence_{0};
  std::atomic<const CallSubject*> subject_{nullptr};
  std::atomic<const CallSubject*> aborted_{nullptr};  // of the call that it aborts, if any
  std::atomic<const char*> function_{""};
  std::atomic<int64_t> deadline_ns_{0};
  uint64_t own_sequence_ = 0;  // of the calling thread
  // The watchdog's thread alone uses these:
  uint64_t aborted_sequence_ = 0;
  int64_t aborted_at_ns_ = 0;
  bool was_interrupted_ = false;
  uint64_t seen_sequence_ = 0;  // of the call that it has seen first at
  int64_t seen_at_ns_ = 0;
  bool is_told_slow_ = false;
};

// One call of the thread that makes it, which a handler of a crash on this thread can name.
class RunningCall {
 public:
  RunningCall(CallSlot& slot, const CallSubject& subject, const char* function,
              int64_t deadline_ns);
  ~RunningCall();
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

  const CallSubject& subject() const { return subject_; }
  // As StuckCall::blamed.
  const CallSubject& blamed() const {
    return subject_.choice.empty() && aborted_ != nullptr ? *aborted_ : subject_;
  }
  const char* function() const { return function_; }
  // The innermost of the calling thread, nullptr outside of all; safe in a signal handler.
  static const RunningCall* Current();

 private:
  CallSlot& slot_;
  const CallSubject& subject_;
  const CallSubject* const aborted_;
  const char* const function_;
  const RunningCall* const outer_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BACKEND_CALL_WATCHDOG_H_
