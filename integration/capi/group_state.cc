#include "integration/capi/group_state.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "core/base/sha256.h"

namespace cotune::capi {

void CallerLog::OnEvent(const Event& event) {
  if (event.type != EventType::kLine) return;
  const std::string text(event.name);
  if (log_ != nullptr) {
    const std::lock_guard lock(mutex_);
    log_(context_, static_cast<int32_t>(event.severity), text.c_str());
  } else if (event.severity >= Severity::kWarning) {
    std::fprintf(stderr, "cotune: %s: %s\n",
                 event.severity == Severity::kWarning ? "warning" : "error", text.c_str());
  }
}

}  // namespace cotune::capi

void cotune_group::SetTable(cotune::DispatchTable table) {
  table_digest = table.rows().empty() ? 0 : cotune::Sha256Prefix(table.Serialize());
  ++table_generation;
  dispatcher->SetTable(std::move(table));
}

namespace cotune::capi {

JobNode::~JobNode() {
  if (job == nullptr || job->AwaitDestroyable()) return;
  // Left as it is, with what it stands on, because a thread that does not come back from a plugin
  // still uses it.
  static_cast<void>(job.release());
  static_cast<void>(std::make_unique<std::shared_ptr<CallerLog>>(std::move(log)).release());
  static_cast<void>(std::make_unique<std::shared_ptr<JobNode>>(std::move(parent)).release());
}

cotune_result ResultOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInternal:
      return COTUNE_ERROR_INTERNAL;
    case ErrorCode::kUsage:
      return COTUNE_ERROR_USAGE;
    case ErrorCode::kEnvironment:
      return COTUNE_ERROR_ENVIRONMENT;
    case ErrorCode::kUnsupported:
      return COTUNE_ERROR_UNSUPPORTED;
    case ErrorCode::kWrongResult:
      return COTUNE_ERROR_WRONG_RESULT;
    case ErrorCode::kRankLost:
      return COTUNE_ERROR_RANK_LOST;
    case ErrorCode::kDeadline:
      return COTUNE_ERROR_DEADLINE;
    case ErrorCode::kAborted:
      return COTUNE_ERROR_ABORTED;
    case ErrorCode::kDatabase:
      return COTUNE_ERROR_DATABASE;
    case ErrorCode::kPluginRefused:
      return COTUNE_ERROR_PLUGIN;
    case ErrorCode::kInterrupted:
      return COTUNE_ERROR_INTERRUPTED;
    case ErrorCode::kDisagreement:
      return COTUNE_ERROR_DISAGREEMENT;
  }
  return COTUNE_ERROR_INTERNAL;
}

void WriteError(const Error& error, cotune_error* out) {
  if (out == nullptr || out->struct_size < offsetof(cotune_error, text) + 1) return;
  out->result = ResultOf(error.code);
  out->rank = error.ranks.empty() ? -1 : error.ranks.front();
  const size_t capacity =
      std::min<size_t>(out->struct_size - offsetof(cotune_error, text), sizeof(out->text));
  const std::string text = error.ToText();
  const size_t length = std::min(text.size(), capacity - 1);
  std::memcpy(out->text, text.data(), length);
  out->text[length] = '\0';
}

void SayTable(cotune_group& group) {
  group.has_said_table = true;
  if (group.job().rank() == 0) EmitLine(group.log(), group.table_severity, group.table_text);
}

cotune_result Remember(cotune_group& group, const Status& status) {
  group.error_text = status.error().ToText();
  group.error_result = ResultOf(status.error().code);
  return group.error_result;
}

Status CheckUsable(const cotune_group& group) {
  // First: in a forked child nothing of the parent's group is touched.
  if (Status here = group.home.Check(); !here) return here;
  // One thread never comes back from a plugin: nothing that it uses is touched.
  if (const Error* stuck = group.job().stuck()) return tl::make_unexpected(*stuck);
  return group.job().stop().status();
}

Error AsStopped(cotune_group& group, const Error& failure) {
  const GroupStop& stop = group.job().stop();
  return stop.is_set() ? stop.status().error() : failure;
}

Error StopInDoubt(cotune_group& group, const Error& failure) {
  if (LeavesDoubt(failure.code)) group.job().stop().SetAll(failure);
  return AsStopped(group, failure);
}

Error ErrorOfException(const char* what) {
  std::string text = "an exception that is no std::exception";
  try {
    throw;
  } catch (const std::exception& exception) {
    text = exception.what();
  } catch (...) {
    // The text above says all that is known.
  }
  return {ErrorCode::kInternal, what, "", text, "", {}};
}

Error StopForException(cotune_group& group, const char* what, Judge judge) {
  Error failure = ErrorOfException(what);
  // A forked child has no group to stop, and a stuck call still uses this one.
  if (!IsUsable(group)) return failure;
  if (judge == StopInDoubt) {
    group.job().stop().SetAll(failure);
  } else {
    group.job().stop().Set(failure);
  }
  return AsStopped(group, failure);
}

cotune_result RefuseUnusable(cotune_group& group) { return Remember(group, CheckUsable(group)); }

cotune_result RememberFailure(cotune_group& group, const Error& failure, Judge judge) {
  return Remember(group, tl::make_unexpected(judge(group, failure)));
}

cotune_result RememberException(cotune_group& group, Judge judge) {
  return Remember(
      group, tl::make_unexpected(StopForException(group, "a call failed inside cotune", judge)));
}

}  // namespace cotune::capi
