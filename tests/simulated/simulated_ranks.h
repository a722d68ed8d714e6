// The ranks of a simulated job as threads of which exactly one runs at a time: a call of a rank
// that waits hands over to the simulation, which advances time and network until the call has its
// outcome. The same options replay bit by bit.
#ifndef COTUNE_TESTS_SIMULATED_SIMULATED_RANKS_H_
#define COTUNE_TESTS_SIMULATED_SIMULATED_RANKS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/ranks/rank_exchange.h"
#include "sync/simulated/simulated_job.h"
#include "tests/simulated/baton_thread.h"

namespace cotune {

class SimulatedRanks;

// One rank, for its thread; the clock is for any.
class SimulatedRank final : public Clock {
 public:
  SimulatedRank(SimulatedRanks& ranks, int rank) : ranks_(ranks), rank_(rank) {}
  int rank() const { return rank_; }
  int world_size() const;
  // On the clock of its process.
  int64_t now_ns() const override;

  // The exchange of the job. kRankLost when this rank could not join.
  Result<std::unique_ptr<RankExchange>> Join();
  // The process is busy for so long, without a switch to another rank: its next call comes later.
  void Work(int64_t duration_ns) {
    busy_ns_ += duration_ns;
    worked_ns_ += duration_ns;
  }
  int64_t worked_ns() const { return worked_ns_; }  // in all
  void WorkUntil(int64_t clock_ns);
  // The values of all ranks that come to this meeting, which happens beside the control channel.
  // kDeadline when not all have come in time, kRankLost when this rank has crashed.
  Result<std::vector<std::string>> Meet(const std::string& name, std::string value,
                                        int64_t deadline_ns);

 private:
  friend class SimulatedRanks;
  SimulatedRanks& ranks_;
  const int rank_;
  int64_t busy_ns_ = 0;  // of simulated time, since the rank was resumed
  int64_t worked_ns_ = 0;
  std::unique_ptr<BatonThread> thread_;
  std::optional<sync::RankEvent> asks_;
  std::optional<Result<sync::FramePtr>> ended_;  // of what it has asked for
  std::string meets_at_;                         // ""; at no meeting
  int64_t meeting_deadline_ns_ = 0;
  uint64_t wait_token_ = 0;
  bool is_over_ = false;  // the simulation has ended; nothing waits any more
};

class SimulatedRanks final : private sync::SimulatedPrograms {
 public:
  using Body = std::function<void(SimulatedRank&)>;
  // Called on the rank's thread in front of each call of its exchange.
  using BeforeCall = std::function<void(SimulatedRank&, const sync::CallAsked&)>;

  SimulatedRanks(sync::SimulatedJobOptions options, Body body, BeforeCall before_call = {});
  ~SimulatedRanks() override;
  SimulatedRanks(const SimulatedRanks&) = delete;
  SimulatedRanks& operator=(const SimulatedRanks&) = delete;

  // Until the body of every rank has ended or the rank has crashed; false when that is never. The
  // bodies that have not ended come to their end afterwards, with errors that no rank would see.
  bool Run();

  // Whether the body has ended, in time that the rank has lived to see.
  bool has_ended(int rank) const { return ended_[static_cast<size_t>(rank)]; }
  void AddFault(const sync::SimulatedFault& fault) { job_.AddFault(fault); }
  // Of simulated time, for this rank, which may be busy.
  int64_t NowNs(const SimulatedRank& rank) const { return job_.now_ns() + rank.busy_ns_; }
  // The calls of all ranks and their outcomes, and what has happened on the network, if asked for.
  const std::vector<std::string>& calls() const { return calls_; }
  const std::vector<std::string>& network() const { return job_.trace(); }

 private:
  friend class SimulatedRank;
  class Link;
  struct Meeting {
    std::vector<std::string> values;  // [world_size]
    int come = 0;
    int64_t all_come_ns = 0;  // the latest of those who have come
  };

  void OnEnd(int rank, Result<sync::FramePtr> result) override;
  void OnWake(int rank, uint64_t token) override;
  void Resume(SimulatedRank& rank);
  void ComeToMeeting(SimulatedRank& rank);
  Result<sync::FramePtr> Call(SimulatedRank& rank, sync::RankEvent ask);
  void Note(const SimulatedRank& rank, const std::string& text);
  SimulatedRank& at(int rank) { return *ranks_[static_cast<size_t>(rank)]; }

  const int world_size_;
  const bool keeps_trace_;
  const Body body_;
  const BeforeCall before_call_;
  sync::SimulatedJob job_;
  std::vector<std::unique_ptr<SimulatedRank>> ranks_;
  std::vector<bool> ended_;
  std::map<std::string, Meeting> meetings_;
  std::vector<std::string> calls_;
};

}  // namespace cotune

#endif  // COTUNE_TESTS_SIMULATED_SIMULATED_RANKS_H_
