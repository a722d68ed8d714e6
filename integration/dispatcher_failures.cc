// Calls that end a group: which rank is lost or late, and what the caller learns of it.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "integration/dispatcher.h"
#include "integration/dispatcher_plan.h"
#include "integration/group_stop.h"

namespace cotune {
namespace {

// A peer that has aborted the group may know of a loss so much earlier than this rank: twice the
// interval in which the control channel is read between calls.
constexpr int64_t kLossWaitNs = 1'500'000'000;

// The rank of the job that has the store. If it is lost, there is no store.
constexpr int32_t kStoreRank = 0;

}  // namespace

Status Dispatcher::Remember(Status status) {
  if (status || !EndsTheGroup(status.error().code)) return status;
  GroupStop& stop = job_.stop();
  if (!stop.is_set()) {
    // Peers that wait for this rank learn of it before their deadline if a backend's abort reaches
    // them, as the host backend's does. On GPUs a kernel of this rank that runs signals them when
    // it gives up; if none runs, peers end when this process does or at their own deadline.
    stop.FreeWaiters();
    status = WithLostRanks(WithLoss(std::move(status)));
    stop.Set(status.error());
  }
  return stop.status();  // the control channel may have been first
}

Status Dispatcher::WithLoss(Status status) {
  Error& error = status.error();
  if (error.code != ErrorCode::kAborted || !error.ranks.empty()) return status;
  std::optional<Error> loss = job_.AwaitLoss(kLossWaitNs);
  if (!loss) loss = job_.FirstLoss();
  if (!loss) loss = SilentFirstRank();
  if (!loss) return status;
  if (Concerns(*loss, job_.groups().job_ranks())) {
    error.ranks = loss->ranks;
    error.code = loss->code;  // kAborted if that rank gave up on purpose
    error.what += "; " + loss->ToText();
    return status;
  }
  // A peer stops a group of living ranks where it finds that they can agree on nothing any more,
  // and for many other reasons.
  error.what +=
      "; a peer has stopped the group, perhaps because the job had lost a rank outside the "
      "group: " +
      loss->ToText();
  return status;
}

// A rank that is in no step of the control channel does not listen for the first rank of the job.
// The peer may have been in one, and have found it silent.
std::optional<Error> Dispatcher::SilentFirstRank() {
  const std::string key = fmt::format("{}/aborted/{}", job_.groups().name(), job_.rank());
  const Status put = job_.exchange().StorePut(key, "");
  if (put || put.error().ranks.empty()) return std::nullopt;
  return put.error();
}

Status Dispatcher::WithLostRanks(Status status) {
  const bool is_late = status.error().code == ErrorCode::kDeadline && status.error().ranks.empty();
  // A rank that has found another one late lives itself, which peers that search must know.
  const bool has_found =
      status.error().code == ErrorCode::kRankLost && !Concerns(status.error(), {kStoreRank});
  if (!is_late && !has_found) return status;
  // Words in the job's store: a rank that does not come costs this group's answer, and nothing
  // else.
  const BackendGroups& groups = job_.groups();
  RankExchange& exchange = job_.exchange();
  const auto key = [&](int rank) { return fmt::format("{}/deadline/{}", groups.name(), rank); };
  // Late enough for ranks whose own deadline comes a little later, and well before twice the
  // call's.
  const int64_t deadline_ns = DeadlineAfter(job_.clock().now_ns(), last_timeout_ns_ / 2);
  Error error = status.error();
  // The control channel may know who it is, and without its first rank there is no store.
  const auto name = [&](const Error& known) {
    if (!Concerns(known, groups.job_ranks())) {
      error.what +=
          "; the ranks cannot find out which of them is late, because the control channel has "
          "failed before: " +
          known.ToText();
      return;
    }
    error.ranks = known.ranks;
    error.code = ErrorCode::kRankLost;
    error.what += "; " + known.ToText();
  };
  const Status put = exchange.StorePut(key(job_.rank()), "");
  // The plan of this very rank has not come to its end: the peers may all have done so.
  if (has_found || IsStillInProgress(error)) return status;
  if (!put) {
    if (!put.error().ranks.empty()) name(put.error());
    return tl::make_unexpected(std::move(error));
  }
  // All ranks without a word are named: the first of them may only be slow to abort its own call.
  std::vector<int> silent;
  for (int rank = 0; rank < job_.world_size(); ++rank) {
    const int64_t until_ns = silent.empty() ? deadline_ns : DeadlineAfter(job_.clock().now_ns(), 0);
    const Result<std::string> word = exchange.StoreGet(key(rank), until_ns);
    if (word) continue;
    if (!word.error().ranks.empty()) {
      name(word.error());
      return tl::make_unexpected(std::move(error));
    }
    silent.push_back(groups.job_ranks()[rank]);
  }
  if (silent.empty()) return tl::make_unexpected(std::move(error));
  error.code = ErrorCode::kRankLost;
  error.what += silent.size() == 1
                    ? fmt::format(
                          "; rank {} has not reported the same: it is lost, or its own call has "
                          "ended",
                          silent.front())
                    : fmt::format(
                          "; ranks {} have not reported the same: they are lost, slow to end their "
                          "own calls, or these have ended",
                          fmt::join(silent, ", "));
  error.ranks = std::move(silent);
  return tl::make_unexpected(std::move(error));
}

Status Dispatcher::Health() {
  if (const Error* stuck = job_.stuck()) return tl::make_unexpected(*stuck);
  if (job_.stop().is_set()) return job_.stop().status();
  for (const BackendMember& member : job_.groups().members()) {
    if (member.group == nullptr) continue;
    if (Status healthy = member.group->Health(); !healthy) return Remember(healthy);
  }
  return {};
}

}  // namespace cotune
