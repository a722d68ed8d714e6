#include "core/backend/backend.h"

#include <thread>
#include <utility>

#include "fmt/format.h"

namespace cotune {
namespace {

// The length of a turn of an operation whose deadline has passed.
constexpr int64_t kLateTurnNs = 10'000'000;

constexpr char kStillInProgress[] = "progress still says that the call is in progress";

tl::unexpected<Error> StillInProgress(std::string cause) {
  return Fail(ErrorCode::kDeadline, kStillInProgress, "", std::move(cause));
}

}  // namespace

bool IsStillInProgress(const Error& error) {
  return error.code == ErrorCode::kDeadline && error.what == kStillInProgress;
}

Status Plan::Run(const LaunchArguments& arguments, const Clock& clock) {
  const int64_t launched_ns = clock.coarse_now_ns();
  // One object is the answer on all ways: a new Status is first filled with zeroes, all of an
  // error.
  Status status = Launch(arguments);
  if (status) {
    const Result<bool> done = Progress(arguments.deadline_ns);
    if (!done) {
      status = Propagate(done);
    } else if (!*done) {
      status = AwaitEnd(launched_ns, arguments.deadline_ns, clock);
    }
  }
  return status;
}

Status Plan::AwaitEnd(int64_t launched_ns, int64_t deadline_ns, const Clock& clock) {
  int64_t end_ns = LatestEndNs(launched_ns, deadline_ns);
  bool aborts = false;  // this function has aborted it
  bool was_aborted = false;
  while (true) {
    const int64_t now_ns = clock.now_ns();
    if (!was_aborted && IsAborted()) {
      was_aborted = true;
      end_ns = std::min(end_ns, DeadlineAfter(now_ns, kAbortEndNs));
    }
    // A plan has a turn after its end, as this thread may have had none for long.
    const int64_t turn_end_ns = DeadlineAfter(now_ns, kLateTurnNs);
    const Result<bool> done =
        Progress(was_aborted ? turn_end_ns : std::max(deadline_ns, turn_end_ns));
    if (!done && aborts && done.error().code == ErrorCode::kAborted) {
      return StillInProgress("its deadline has passed, which the backend does not look at");
    }
    if (!done) return Propagate(done);
    if (*done) return {};
    if (was_aborted || now_ns >= deadline_ns) std::this_thread::yield();
    if (now_ns < end_ns) continue;
    if (was_aborted) break;
    aborts = was_aborted = true;
    Abort();
    end_ns = DeadlineAfter(clock.now_ns(), kAbortEndNs);
  }
  if (aborts) {
    return StillInProgress(
        fmt::format("it heeds neither its deadline nor an abort; {}", kBuffersStayInUse));
  }
  return Fail(ErrorCode::kAborted, "the group was aborted", "",
              fmt::format("the backend does not end the call; {}", kBuffersStayInUse));
}

Result<std::unique_ptr<Plan>> Backend::PreparePart(const PartRequest& /*request*/,
                                                   int64_t /*deadline_ns*/) {
  return Fail(ErrorCode::kUnsupported, "the backend runs no parts of programs", name());
}

}  // namespace cotune
