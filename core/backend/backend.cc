#include "core/backend/backend.h"

namespace cotune {
namespace {

// A plan may need one more turn after its deadline to say which rank is missing.
constexpr int64_t kLastTurnsNs = 100'000'000;

constexpr char kStillInProgress[] = "progress still says that the call is in progress";

}  // namespace

bool IsStillInProgress(const Error& error) {
  return error.code == ErrorCode::kDeadline && error.what == kStillInProgress;
}

Status Plan::Run(const LaunchArguments& arguments, const Clock& clock) {
  if (Status launched = Launch(arguments); !launched) return launched;
  while (true) {
    COTUNE_TRY(const bool done, Progress(arguments.deadline_ns));
    if (done) return {};
    // A plan ends the operation at its deadline itself. One that does not would hold this rank for
    // ever, so the clock is looked at here too.
    if (clock.now_ns() < DeadlineAfter(arguments.deadline_ns, kLastTurnsNs)) continue;
    return Fail(ErrorCode::kDeadline, kStillInProgress, "",
                "its deadline has passed, which the backend does not look at");
  }
}

Result<std::unique_ptr<Plan>> Backend::PreparePart(const PartRequest& /*request*/,
                                                   int64_t /*deadline_ns*/) {
  return Fail(ErrorCode::kUnsupported, "the backend runs no parts of programs", name());
}

}  // namespace cotune
