#include "sync/machine/liveness.h"

#include <algorithm>

#include "sync/wire/limits.h"

namespace cotune::sync {

Liveness::Liveness(int64_t interval_ns, int64_t timeout_ns)
    : interval_ns_(interval_ns), timeout_ns_(timeout_ns) {}

void Liveness::Heard(int rank, int64_t now_ns) {
  const auto found = heard_ns_.find(rank);
  if (found != heard_ns_.end()) found->second = std::max(found->second, now_ns);
}

int64_t Liveness::OnAwake(int64_t now_ns) {
  const int64_t before_ns = awake_ns_;
  awake_ns_ = std::max(awake_ns_, now_ns);
  // The watcher's own timer makes an event in every interval, so a longer gap is a stop of the
  // watcher.
  if (before_ns == INT64_MIN || now_ns <= AddNs(before_ns, AddNs(interval_ns_, interval_ns_))) {
    return 0;
  }
  for (auto& [rank, heard_ns] : heard_ns_) heard_ns = now_ns;
  judge_from_ns_ = AddNs(now_ns, interval_ns_);
  return now_ns - before_ns;
}

std::vector<int> Liveness::SilentRanks(int64_t now_ns) const {
  std::vector<int> silent;
  for (const auto& [rank, heard_ns] : heard_ns_) {
    if (now_ns >= AddNs(heard_ns, timeout_ns_)) silent.push_back(rank);
  }
  return silent;
}

int64_t Liveness::next_silent_ns() const {
  int64_t next_ns = INT64_MAX;
  for (const auto& [rank, heard_ns] : heard_ns_) {
    next_ns = std::min(next_ns, AddNs(heard_ns, timeout_ns_));
  }
  return next_ns;
}

int64_t Liveness::heard_ns(int rank) const {
  const auto found = heard_ns_.find(rank);
  return found == heard_ns_.end() ? INT64_MIN : found->second;
}

}  // namespace cotune::sync
