// Slow is not dead: who is alive is known from heartbeats, whatever the ranks compute.
#ifndef COTUNE_SYNC_MACHINE_LIVENESS_H_
#define COTUNE_SYNC_MACHINE_LIVENESS_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cotune::sync {

// When each watched rank was heard last. Pure. A watcher that was itself stopped must not take its
// own silence for that of the others: OnAwake notices the gap and starts everybody's time again.
class Liveness {
 public:
  // A timeout of INT64_MAX finds nobody silent.
  Liveness(int64_t interval_ns, int64_t timeout_ns);

  void Watch(int rank, int64_t now_ns) { heard_ns_[rank] = now_ns; }
  void Forget(int rank) { heard_ns_.erase(rank); }
  void Heard(int rank, int64_t now_ns);

  // At each event of the watcher. The length of the gap when the watcher was stopped, else 0.
  int64_t OnAwake(int64_t now_ns);

  // Nothing may be concluded from the passing of time before it: the watcher was stopped and reads
  // what piled up.
  int64_t judge_from_ns() const { return judge_from_ns_; }

  std::vector<int> SilentRanks(int64_t now_ns) const;
  int64_t next_silent_ns() const;  // INT64_MAX when nobody is watched
  int64_t heard_ns(int rank) const;
  bool watches(int rank) const { return heard_ns_.contains(rank); }
  int64_t interval_ns() const { return interval_ns_; }
  int64_t timeout_ns() const { return timeout_ns_; }

 private:
  int64_t interval_ns_;
  int64_t timeout_ns_;
  int64_t awake_ns_ = INT64_MIN;
  int64_t judge_from_ns_ = INT64_MIN;
  std::map<int, int64_t> heard_ns_;  // by rank
};

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_MACHINE_LIVENESS_H_
