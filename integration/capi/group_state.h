// The state of a cotune_group, and how errors cross the C ABI.
#ifndef COTUNE_INTEGRATION_CAPI_GROUP_STATE_H_
#define COTUNE_INTEGRATION_CAPI_GROUP_STATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/captured_memory.h"
#include "core/backend/device.h"
#include "core/base/event_sink.h"
#include "core/base/fork_guard.h"
#include "core/base/status.h"
#include "core/database/tuned_database.h"
#include "core/events/stage_observer.h"
#include "integration/capi/cotune.h"
#include "integration/dispatcher.h"
#include "integration/job.h"

namespace cotune::capi {

// Takes the lines of a job and of its tunes, from any thread, to the caller's log, one at a time;
// without one, warnings and errors to standard error.
class CallerLog final : public StageObserver {
 public:
  explicit CallerLog(const cotune_group_options& options)
      : log_(options.log), context_(options.log_context) {}
  void OnEvent(const Event& event) override;

 private:
  void (*const log_)(void* context, int32_t severity, const char* text);  // may be nullptr
  void* const context_;
  std::mutex mutex_;  // held while the caller's log runs
};

// A job with what it stands on. A subgroup's keeps the one that it came from, so groups may be
// destroyed in any order.
struct JobNode {
  JobNode() = default;
  JobNode(const JobNode&) = delete;
  JobNode& operator=(const JobNode&) = delete;
  ~JobNode();

  std::shared_ptr<JobNode> parent;  // nullptr for the job of all ranks
  std::shared_ptr<CallerLog> log;   // of the job of all ranks and of those split from it
  std::unique_ptr<Job> job;         // destroyed first
};

// Memory that the ranks of a group reach. Its registration ends before it goes.
struct GroupMemory {
  void* data = nullptr;
  std::unique_ptr<DeviceBuffer> buffer;  // nullptr: the caller's own memory, registered
  std::unique_ptr<CapturedMemory::Range> range;
};

cotune_result ResultOf(ErrorCode code);

// Into the caller's struct, as much of it as the caller's version has; nullptr is accepted.
void WriteError(const Error& error, cotune_error* out);

}  // namespace cotune::capi

struct cotune_group {
  cotune::HomeProcess home;  // a child that it forks cannot use the group
  std::shared_ptr<cotune::capi::JobNode> node;
  std::unique_ptr<cotune::Dispatcher> dispatcher;  // destroyed before its job
  // Allocated or registered here, by where it begins; destroyed before its job too.
  std::map<void*, cotune::capi::GroupMemory> memory;
  // Freed or unregistered by the caller while a graph used it. It goes when the last such graph
  // does, at the next call that takes memory or gives it back.
  std::vector<cotune::capi::GroupMemory> kept_memory;
  int64_t call_timeout_ns = 0;
  void* stream = nullptr;  // that calls on CUDA memory are enqueued on
  // Tuned or loaded here; after a load only rank 0 has the entries.
  cotune::TunedDatabase database;
  // The winners that the table in force is made from; equal on all ranks.
  cotune::MeasuredWinners winners;
  // The path of the tuned database when the caller names none, or why there is no place for one.
  // Only rank 0's counts.
  cotune::Result<std::string> database_place;
  bool names_database = false;  // the user has named the place
  bool loads_database = true;   // when the group, or one split from it, is created
  // Which table is in force, or why none, said once at the first call, by rank 0.
  std::string table_text;
  cotune::Severity table_severity = cotune::Severity::kInfo;
  bool has_said_table = false;
  std::string error_text;
  cotune_result error_result = COTUNE_SUCCESS;

  // Of the table in force; 0: there has been none.
  uint64_t table_digest = 0;
  int64_t table_generation = 0;
  void SetTable(cotune::DispatchTable table);

  cotune::Job& job() const { return *node->job; }
  cotune::EventSink& log() const { return *node->log; }

  // Memory of calls that failed may still be in use.
  ~cotune_group();
};

namespace cotune::capi {

// Says which table the calls of the group run by, where nobody has yet.
void SayTable(cotune_group& group);

// Gives a new group the table of the tuned database; collective over its ranks. A database that
// cannot be used is no failure, and no warning for a split group, whose parent has warned. Fails
// where ranks are lost.
Status LoadAtCreation(cotune_group& group, bool is_split);

// Keeps the failure for cotune_last_error.
cotune_result Remember(cotune_group& group, const Status& status);

// The error that the caller gets for the failure of a call: the one that the group was stopped
// with, if it was.
using Judge = Error (*)(cotune_group& group, const Error& failure);
Error AsStopped(cotune_group& group, const Error& failure);
// The same for what the ranks agree on: a failure that leaves it open what the other ranks have
// done stops the group and those made from it, so that no rank goes on by a table that others may
// have replaced.
Error StopInDoubt(cotune_group& group, const Error& failure);

// Success when the group can be used: it is this process's own, no thread is stuck in a plugin, and
// it is not stopped.
Status CheckUsable(const cotune_group& group);
// The same question without the reason, answered by a few loads: for the hot path.
inline bool IsUsable(const cotune_group& group) {
  return group.home.IsHere() && group.job().stuck() == nullptr && !group.job().stop().is_set();
}

// The error for the exception that is being handled, for a catch block. `what` says what failed.
Error ErrorOfException(const char* what);
// The same error, after which a group that could be used is stopped as `judge` would stop it: the
// exception leaves it open what this rank has done of what the others did.
Error StopForException(cotune_group& group, const char* what, Judge judge);

// The ends of Guard other than success, as functions of their own: calls need no space for errors.
cotune_result RefuseUnusable(cotune_group& group);
cotune_result RememberFailure(cotune_group& group, const Error& failure, Judge judge);
// A catch block calls it.
cotune_result RememberException(cotune_group& group, Judge judge);

// Runs `body`, which gives a Status, for a group that must not be NULL and can be used. Nothing is
// thrown out.
template <typename Body>
cotune_result Guard(cotune_group* group, const Body& body, Judge judge = AsStopped) noexcept {
  if (group == nullptr) return COTUNE_ERROR_USAGE;
  try {
    if (!IsUsable(*group)) return RefuseUnusable(*group);
    const Status status = body(*group);
    return status ? COTUNE_SUCCESS : RememberFailure(*group, status.error(), judge);
  } catch (...) {
    return RememberException(*group, judge);
  }
}

}  // namespace cotune::capi

#endif  // COTUNE_INTEGRATION_CAPI_GROUP_STATE_H_
