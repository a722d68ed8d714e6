// Groups that must not be used any more: why, for every later call, and free for whoever waits in
// them.
#ifndef COTUNE_INTEGRATION_GROUP_STOP_H_
#define COTUNE_INTEGRATION_GROUP_STOP_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/backend/backend_groups.h"
#include "core/backend/call_watchdog.h"
#include "core/base/status.h"

namespace cotune {

class GroupStops;

// A loss concerns a group of these ranks of the job when it names one of them, or names no rank.
bool Concerns(const Error& loss, const std::vector<int32_t>& job_ranks);

// The stop of one group over its ranks: set once, read by every call. Any thread; destroyed before
// the BackendGroups. The destructor waits for an abort under way, without end if that never
// returns.
class GroupStop {
 public:
  ~GroupStop();
  GroupStop(const GroupStop&) = delete;
  GroupStop& operator=(const GroupStop&) = delete;

  // One load: for the hot path.
  bool is_set() const { return is_set_.load(std::memory_order_acquire); }
  // Success until it is set; then the error that every call gives.
  Status status() const {
    if (!is_set()) return {};
    return tl::make_unexpected(FirstError());
  }

  // The first error counts. Waiters are freed on this rank, and on the others as far as the abort
  // of a backend reaches them.
  void Set(const Error& error);
  // The same for this group and every one made from it: of one in doubt nothing is known.
  void SetAll(const Error& error);
  // Frees the waiters only; Set follows when it is known what to say.
  void FreeWaiters();

  // Begins no further abort and waits for one that is under way, a few seconds at most. False when
  // it still runs then, or when `watchdog` says that a call never returns, perhaps this abort: its
  // thread still uses the groups, so that neither they nor this object may be destroyed.
  bool AwaitAbort(const CallWatchdog& watchdog);

 private:
  friend class GroupStops;
  GroupStop(GroupStops& stops, BackendGroups& groups, const GroupStop* parent)
      : stops_(stops), groups_(groups), parent_(parent) {}
  bool ComesFrom(const GroupStop& other) const;
  Error FirstError() const;

  GroupStops& stops_;
  BackendGroups& groups_;
  const GroupStop* const parent_;  // nullptr for the group of all ranks
  std::atomic<bool> is_set_ = false;
  Error error_;
  // A plugin's abort may take its time: it holds up neither the control channel, which says that a
  // rank was lost, nor the groups of other plugins.
  std::thread abort_;
  bool has_aborted_ = false;  // the abort has returned
  bool may_abort_ = true;     // until the group is about to be destroyed
};

// All groups of one job on this rank. Any thread.
class GroupStops {
 public:
  // `parent` outlives the new stop.
  std::unique_ptr<GroupStop> Add(BackendGroups& groups, const GroupStop* parent);

  // The control channel has failed: stops every group that has one of the ranks that the error
  // names, or every group when it names none. Does not wait. Ranks may be lost one after another;
  // for each group the first loss that concerns it counts.
  void OnLoss(const Error& error);

  // The first loss that concerns a group of these ranks, if one is known by then: a peer that heard
  // of it earlier has aborted the group.
  std::optional<Error> AwaitLoss(const std::vector<int32_t>& job_ranks, int64_t wait_ns);
  // The first loss that is known, whatever group it concerns.
  std::optional<Error> FirstLoss();

 private:
  friend class GroupStop;
  // With mutex_ held.
  static void Set(GroupStop& stop, const Error& error);
  static void StartAbort(GroupStop& stop);
  const Error* FindLoss(const std::vector<int32_t>& job_ranks) const;

  std::mutex mutex_;
  std::condition_variable lost_;
  std::condition_variable aborted_;
  std::vector<Error> losses_;  // in the order in which they became known
  std::vector<GroupStop*> members_;
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_GROUP_STOP_H_
