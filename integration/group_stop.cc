#include "integration/group_stop.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "core/base/signal_stack.h"

namespace cotune {

// How often a wait for an abort looks whether it will never end.
constexpr std::chrono::milliseconds kStuckPoll(10);
// How long the end of a group waits for an abort. The watchdog may take minutes to call it stuck.
constexpr std::chrono::seconds kAbortWait(5);

bool Concerns(const Error& loss, const std::vector<int32_t>& job_ranks) {
  return loss.ranks.empty() || std::any_of(loss.ranks.begin(), loss.ranks.end(), [&](int rank) {
           return std::find(job_ranks.begin(), job_ranks.end(), rank) != job_ranks.end();
         });
}

GroupStop::~GroupStop() {
  {
    const std::lock_guard lock(stops_.mutex_);
    std::erase(stops_.members_, this);
  }
  // Nobody starts it any more.
  if (abort_.joinable()) abort_.join();
}

Error GroupStop::FirstError() const {
  const std::lock_guard lock(stops_.mutex_);
  return error_;
}

void GroupStop::Set(const Error& error) {
  const std::lock_guard lock(stops_.mutex_);
  GroupStops::Set(*this, error);
}

void GroupStop::SetAll(const Error& error) {
  const std::lock_guard lock(stops_.mutex_);
  for (GroupStop* each : stops_.members_) {
    if (each->ComesFrom(*this)) GroupStops::Set(*each, error);
  }
}

void GroupStop::FreeWaiters() {
  const std::lock_guard lock(stops_.mutex_);
  GroupStops::StartAbort(*this);
}

bool GroupStop::AwaitAbort(const CallWatchdog& watchdog) {
  std::unique_lock lock(stops_.mutex_);
  may_abort_ = false;
  const auto until = std::chrono::steady_clock::now() + kAbortWait;
  while (abort_.joinable() && !has_aborted_) {
    if (watchdog.stuck() != nullptr || std::chrono::steady_clock::now() >= until) return false;
    stops_.aborted_.wait_for(lock, kStuckPoll);
  }
  return true;
}

bool GroupStop::ComesFrom(const GroupStop& other) const {
  for (const GroupStop* each = this; each != nullptr; each = each->parent_) {
    if (each == &other) return true;
  }
  return false;
}

std::unique_ptr<GroupStop> GroupStops::Add(BackendGroups& groups, const GroupStop* parent) {
  std::unique_ptr<GroupStop> stop(new GroupStop(*this, groups, parent));
  const std::lock_guard lock(mutex_);
  members_.push_back(stop.get());
  if (const Error* loss = FindLoss(groups.job_ranks())) Set(*stop, *loss);
  return stop;
}

void GroupStops::OnLoss(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    losses_.push_back(error);
    for (GroupStop* stop : members_) {
      if (Concerns(error, stop->groups_.job_ranks())) Set(*stop, error);
    }
  }
  lost_.notify_all();
}

const Error* GroupStops::FindLoss(const std::vector<int32_t>& job_ranks) const {
  const auto found = std::find_if(losses_.begin(), losses_.end(),
                                  [&](const Error& loss) { return Concerns(loss, job_ranks); });
  return found == losses_.end() ? nullptr : &*found;
}

std::optional<Error> GroupStops::AwaitLoss(const std::vector<int32_t>& job_ranks, int64_t wait_ns) {
  std::unique_lock lock(mutex_);
  const Error* loss = nullptr;
  lost_.wait_for(lock, std::chrono::nanoseconds(wait_ns),
                 [&] { return (loss = FindLoss(job_ranks)) != nullptr; });
  if (loss == nullptr) return std::nullopt;
  return *loss;
}

std::optional<Error> GroupStops::FirstLoss() {
  const std::lock_guard lock(mutex_);
  if (losses_.empty()) return std::nullopt;
  return losses_.front();
}

void GroupStops::Set(GroupStop& stop, const Error& error) {
  if (stop.is_set()) return;
  stop.error_ = error;
  stop.is_set_.store(true, std::memory_order_release);
  StartAbort(stop);
}

void GroupStops::StartAbort(GroupStop& stop) {
  if (stop.abort_.joinable() || !stop.may_abort_) return;  // once is enough
  try {
    stop.abort_ = std::thread([&stop] {
      const SignalStack handler_stack;
      stop.groups_.AbortAll();
      // Notified under the lock: whoever waits destroys the condition variable afterwards.
      const std::lock_guard lock(stop.stops_.mutex_);
      stop.has_aborted_ = true;
      stop.stops_.aborted_.notify_all();
    });
  } catch (const std::system_error&) {
    // There is no thread to be had, and this one must not wait: waiters end at their own deadlines.
  }
}

}  // namespace cotune
