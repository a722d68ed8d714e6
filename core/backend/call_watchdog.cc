#include "core/backend/call_watchdog.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/base/signal_stack.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// How late an abort may come. A call does not wake the thread, so that it costs a few stores only.
constexpr std::chrono::milliseconds kPeriod(50);
// How often a thread that waits for the end of an abort looks.
constexpr std::chrono::milliseconds kAbortPoll(1);
// How long a call may go on after the user has asked to stop.
constexpr int64_t kInterruptPatienceNs = 1'000'000'000;
// How long it may then take to come back from its abort.
constexpr int64_t kInterruptedStuckNs = 4'000'000'000;

// The initial-exec model, because every call and signal handlers read it: the other models may
// allocate at the first use.
thread_local const RunningCall* current __attribute__((tls_model("initial-exec"))) = nullptr;

// The call that this thread aborts, if any; the same model for the same reason.
thread_local const CallSubject* aborted __attribute__((tls_model("initial-exec"))) = nullptr;

// `await_reader` returns when nobody reads the subject any more.
void StartAbort(std::function<void()> abort, CallSubject subject,
                std::function<void()> await_reader) {
  try {
    std::thread([abort = std::move(abort), subject = std::move(subject),
                 await_reader = std::move(await_reader)] {
      const SignalStack handler_stack;
      {
        const AbortedCall aborting(subject);
        abort();
      }
      await_reader();
    }).detach();
  } catch (const std::system_error&) {
    // Without a thread for it the call is reported without having been aborted.
  }
}

}  // namespace

AbortedCall::AbortedCall(const CallSubject& subject) { aborted = &subject; }

AbortedCall::~AbortedCall() { aborted = nullptr; }

void AbortAside(CallWatchdog* watchdog, std::function<void()> abort, const CallSubject& subject) {
  std::function<void()> await_reader = [] {};
  if (watchdog != nullptr) {
    await_reader = [state = watchdog->state_] { const std::lock_guard lock(state->mutex); };
  }
  StartAbort(std::move(abort), subject, std::move(await_reader));
}

CallSubject CallSubject::OfPlugin(std::string plugin) {
  CallSubject subject{"", std::move(plugin), "", "", 0, ""};
  subject.text = fmt::format("plugin {}", subject.plugin);
  return subject;
}

CallSubject CallSubject::OfBackend(std::string backend, std::string plugin) {
  CallSubject subject{std::move(backend), std::move(plugin), "", "", 0, ""};
  subject.text = fmt::format("backend {} (plugin {})", subject.backend, subject.plugin);
  return subject;
}

CallSubject CallSubject::OfChoice(std::string backend, std::string plugin, const ChoiceId& choice,
                                  const Problem& problem) {
  CallSubject subject{std::move(backend),  std::move(plugin), choice.text(),
                      ToText(problem.cls), problem.bytes(),   ""};
  subject.text = fmt::format("choice {} for {} of {} bytes (plugin {})", subject.choice,
                             subject.problem_class, subject.bytes, subject.plugin);
  return subject;
}

CallWatchdog::CallWatchdog(const Clock& clock, Options options)
    : clock_(clock), options_(std::move(options)) {
  watched_ = std::make_unique<CallSlot>(this, nullptr);
  thread_ = std::thread([this] { Loop(); });
}

CallWatchdog::~CallWatchdog() {
  {
    const std::lock_guard lock(state_->mutex);
    stop_ = true;
  }
  state_->changed.notify_all();
  thread_.join();
  watched_.reset();
}

void CallWatchdog::Watch(std::vector<BackendGroup*> groups, const CallSubject& subject,
                         int64_t deadline_ns) {
  {
    const std::lock_guard lock(state_->mutex);
    groups_ = std::move(groups);
  }
  watched_->Begin(subject, "a call or the wait for its end", deadline_ns);
}

void CallWatchdog::Unwatch() {
  watched_->End();
  std::unique_lock lock(state_->mutex);
  groups_.clear();
  while (state_->running_aborts > 0 && stuck() == nullptr) {
    state_->changed.wait_for(lock, kAbortPoll);
  }
}

void CallWatchdog::set_interrupted(const std::atomic<bool>* interrupted) {
  const std::lock_guard lock(state_->mutex);
  interrupted_ = interrupted;
  interrupted_at_ns_ = 0;
}

void CallWatchdog::Loop() {
  std::unique_lock lock(state_->mutex);
  while (!stop_) {
    state_->changed.wait_for(lock, kPeriod);
    const int64_t now_ns = clock_.now_ns();
    const bool is_interrupted = interrupted_ != nullptr && interrupted_->load();
    if (is_interrupted && interrupted_at_ns_ == 0) interrupted_at_ns_ = now_ns;
    std::unique_ptr<StuckCall> stuck;
    std::vector<StuckCall> slow;
    for (CallSlot* slot : slots_) {
      Look(*slot, now_ns, stuck);
      LookForSlowness(*slot, now_ns, slow);
    }
    const bool is_news = stuck != nullptr && error_ == nullptr;
    if (!is_news && slow.empty()) continue;
    lock.unlock();
    for (const StuckCall& call : slow) options_.on_slow(call);
    if (is_news) Report(*stuck);
    lock.lock();
  }
}

void CallWatchdog::Look(CallSlot& slot, int64_t now_ns, std::unique_ptr<StuckCall>& stuck) {
  const uint64_t sequence = slot.sequence_.load(std::memory_order_acquire);
  if (sequence % 2 == 0) return;
  const int64_t due_ns = DeadlineAfter(slot.deadline_ns_.load(), options_.abort_after_ns);
  const int64_t interrupt_due_ns = interrupted_at_ns_ + kInterruptPatienceNs;
  const bool was_interrupted = interrupted_at_ns_ != 0 && interrupt_due_ns < due_ns;
  if (now_ns < (was_interrupted ? interrupt_due_ns : due_ns)) return;
  // The fields may be of a later call; its own number tells.
  if (slot.sequence_.load(std::memory_order_acquire) != sequence) return;
  if (slot.aborted_sequence_ != sequence) {
    slot.aborted_sequence_ = sequence;
    slot.aborted_at_ns_ = now_ns;
    slot.was_interrupted_ = was_interrupted;
    const bool is_group = &slot == watched_.get();
    std::function<void()> abort = slot.abort_;
    if (is_group && !groups_.empty()) {
      ++state_->running_aborts;
      // The object goes at the end, also where no thread can be started.
      const std::shared_ptr<void> running(nullptr,
                                          [state = state_](void*) { --state->running_aborts; });
      abort = [running, groups = groups_] {
        for (BackendGroup* group : groups) group->Abort();
      };
    }
    if (abort != nullptr) {
      StartAbort(std::move(abort), *slot.subject_.load(),
                 [state = state_] { const std::lock_guard lock(state->mutex); });
    }
    return;
  }
  // The innermost call of several is the one to name: the one around it has a little longer.
  int64_t patience_ns = options_.stuck_after_ns;
  if (slot.was_interrupted_) patience_ns = std::min(patience_ns, kInterruptedStuckNs);
  if (&slot == watched_.get()) patience_ns += patience_ns / 2;
  if (now_ns < slot.aborted_at_ns_ + patience_ns || stuck != nullptr || error_ != nullptr) return;
  // Its owner waits for the lock before the subject goes, so that it can be read: see AwaitReader.
  const CallSubject* subject = slot.subject_.load();
  const CallSubject* of_abort = slot.aborted_.load();
  const char* function = slot.function_.load();
  if (slot.sequence_.load(std::memory_order_acquire) != sequence) return;
  stuck = std::make_unique<StuckCall>(
      StuckCall{function, *subject, slot.was_interrupted_,
                of_abort != nullptr ? *of_abort : CallSubject{"", "", "", "", 0, ""}});
}

void CallWatchdog::LookForSlowness(CallSlot& slot, int64_t now_ns,
                                   std::vector<StuckCall>& slow) const {
  const uint64_t sequence = slot.sequence_.load(std::memory_order_acquire);
  if (options_.on_slow == nullptr || sequence % 2 == 0 || &slot == watched_.get()) return;
  if (slot.seen_sequence_ != sequence) {
    slot.seen_sequence_ = sequence;
    slot.seen_at_ns_ = now_ns;
    slot.is_told_slow_ = false;
  }
  if (slot.is_told_slow_ || now_ns < slot.seen_at_ns_ + options_.slow_after_ns) return;
  slot.is_told_slow_ = true;
  // As in Look: it stays while the lock is held.
  const CallSubject* subject = slot.subject_.load();
  const std::string_view function = slot.function_.load();
  if (slot.sequence_.load(std::memory_order_acquire) != sequence) return;
  if (function == "launch" || function == "progress") return;
  slow.push_back(StuckCall{function.data(), *subject, false, CallSubject{"", "", "", "", 0, ""}});
}

void CallWatchdog::Report(const StuckCall& stuck) {
  error_ = std::make_unique<Error>(Error{
      stuck.was_interrupted ? ErrorCode::kInterrupted : ErrorCode::kDeadline,
      fmt::format(
          "{} of {}{} does not return", stuck.function, stuck.subject.text,
          stuck.aborted.text.empty() ? "" : fmt::format(", which aborts {},", stuck.aborted.text)),
      "",
      stuck.was_interrupted ? "it goes on after the user has asked to stop"
                            : "it heeds neither its deadline nor an abort",
      "leave the backend out, or report it to whoever ships the plugin",
      {}});
  stuck_.store(error_.get(), std::memory_order_release);
  if (options_.on_stuck) options_.on_stuck(stuck, *error_);
}

CallSlot::CallSlot(CallWatchdog* watchdog, std::function<void()> abort)
    : watchdog_(watchdog), abort_(std::move(abort)) {
  if (watchdog_ == nullptr) return;
  const std::lock_guard lock(watchdog_->state_->mutex);
  // The one that is looked at last is the watchdog's own, which is around the others.
  place_ = watchdog_->slots_.insert(watchdog_->slots_.begin(), this);
}

CallSlot::~CallSlot() {
  if (watchdog_ == nullptr) return;
  const std::lock_guard lock(watchdog_->state_->mutex);
  watchdog_->slots_.erase(place_);
}

void CallSlot::Begin(const CallSubject& subject, const char* function, int64_t deadline_ns) {
  // None of them is seen before the end of the call before this one.
  subject_.store(&subject, std::memory_order_release);
  aborted_.store(aborted, std::memory_order_release);
  function_.store(function, std::memory_order_release);
  deadline_ns_.store(deadline_ns, std::memory_order_release);
  sequence_.store(++own_sequence_, std::memory_order_release);
}

RunningCall::RunningCall(CallSlot& slot, const CallSubject& subject, const char* function,
                         int64_t deadline_ns)
    : slot_(slot), subject_(subject), aborted_(aborted), function_(function), outer_(current) {
  slot_.Begin(subject, function, deadline_ns);
  current = this;
}

RunningCall::~RunningCall() {
  current = outer_;
  slot_.End();
}

const RunningCall* RunningCall::Current() { return current; }

}  // namespace cotune
