// A whole job in one thread and in simulated time: the real machines of the coordinator and of all
// ranks on a network that delays, breaks and parts, with processes that crash and pause. Each
// process has a clock of its own, so that a moment of one clock means nothing on another. The same
// options replay bit by bit.
#ifndef COTUNE_SYNC_SIMULATED_SIMULATED_JOB_H_
#define COTUNE_SYNC_SIMULATED_SIMULATED_JOB_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "sync/machine/coordinator_machine.h"
#include "sync/machine/rank_machine.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {

// The calls of a rank, one after another, after it has joined.
struct SimulatedCall {
  wire::CallKind kind = wire::CALL_STEP;  // step, pre-sync or agreement
  std::string name = "";                  // of a step
  int64_t think_ns = 0;                   // before the call
  int64_t deadline_ns = 0;                // after its begin
  int64_t window_ns = 0;                  // of a pre-sync
  bool yes = true;                        // the vote
  int64_t vote_think_ns = 0;
  std::vector<std::pair<std::string, std::string>> fields = {};  // of a pre-sync
};

struct SimulatedFault {
  enum class Kind {
    kCrash,      // the process ends; the other side sees it
    kPause,      // the process does nothing for length_ns
    kBreak,      // the connection ends; bytes under way are lost; both sides see it
    kPartition,  // bytes are lost from now on and nobody sees it
  };
  Kind kind = Kind::kCrash;
  int rank = 0;
  int64_t at_ns = 0;
  int64_t length_ns = 0;
};

// The clock of one process: neither its zero nor its rate is that of simulated time.
class SimulatedClock {
 public:
  SimulatedClock(int64_t offset_ns, int64_t drift_ppb)
      : offset_ns_(offset_ns), drift_ppb_(drift_ppb) {}

  int64_t Read(int64_t simulated_ns) const;
  // The first simulated moment at which the clock shows this; INT64_MAX stays "never".
  int64_t WhenItShows(int64_t clock_ns) const;

  static constexpr int64_t kOffsetMaxNs = 1'000'000'000'000'000;  // 11 days
  static constexpr int64_t kDriftMaxPpb = 40'000;

 private:
  int64_t offset_ns_;
  int64_t drift_ppb_;
};

// The programs of all ranks, where calls depend on the outcomes of those before them: a rank of the
// job calls it when its process goes on, and it asks the job for what comes next.
class SimulatedPrograms {
 public:
  virtual ~SimulatedPrograms() = default;
  // The rank's join (the first time) or its last call has come to its end.
  virtual void OnEnd(int rank, Result<FramePtr> result) = 0;
  // A moment that it has asked for.
  virtual void OnWake(int rank, uint64_t token) = 0;
};

struct SimulatedJobOptions {
  uint64_t seed = 1;  // of the delays and of the clocks
  int world_size = 2;
  int64_t delay_max_ns = 5'000'000;
  int64_t heartbeat_interval_ns = 100'000'000;
  int64_t heartbeat_timeout_ns = 1'000'000'000;
  int64_t join_deadline_ns = 3'000'000'000;
  std::vector<int64_t> start_ns;                  // [world_size]
  std::vector<std::vector<SimulatedCall>> calls;  // [world_size]; empty where there are programs
  SimulatedPrograms* programs = nullptr;          // outlives the job
  std::vector<SimulatedFault> faults;
  bool keep_trace = false;
  // Replaces each frame when it is sent, for machines that are wrong on purpose; may be empty.
  std::function<std::vector<FramePtr>(int rank, bool to_coordinator, const FramePtr&)> tamper;
};

// How one call of one rank ended.
struct SimulatedOutcome {
  SimulatedCall call;
  Result<FramePtr> result;
  int64_t began_ns = 0;  // on the clock of the rank
  int64_t ended_ns = 0;
  // By how much the rank is wrong about the time since the job's begin, and by how much it says
  // that it may be.
  int64_t elapsed_error_ns = 0;
  int64_t elapsed_bound_ns = 0;
  int recorded_ranks = 0;  // of an agreement: how many ranks had acknowledged its COMMIT by then
};

class SimulatedJob {
 public:
  explicit SimulatedJob(SimulatedJobOptions options);

  // Until every rank has done its calls, failed or crashed; false when that is never.
  bool Run();

  // For programs; moments are of simulated time. The rank asks for this then, one at a time; the
  // token is not used. A rank that asks to leave the job has done its calls.
  void Ask(int rank, int64_t at_ns, RankEvent ask);
  void Wake(int rank, int64_t at_ns, uint64_t token);
  // Beside those of the options.
  void AddFault(const SimulatedFault& fault);
  int64_t now_ns() const { return now_ns_; }
  const SimulatedClock& clock(int rank) const { return clocks_[static_cast<size_t>(rank)]; }
  // The job's begin on its clock, as the rank believes to know it.
  int64_t JobBeginNs(int rank) const { return at(rank).machine->job_clock().begin_ns(); }

  // The outcomes of the join (index 0) and of the calls that have ended. None where there are
  // programs.
  const std::vector<SimulatedOutcome>& outcomes(int rank) const;
  bool crashed(int rank) const;
  // On its clock: how long it was paused in all, and how long it takes after a pause to blame
  // others again.
  int64_t paused_ns(int rank) const;
  const std::vector<std::string>& trace() const { return trace_; }

 private:
  enum class What {
    kBegin,
    kVote,
    kEnd,   // a program goes on
    kAsk,   // a program asks
    kWake,  // a moment that a program has asked for
    kHeartbeat,
    kToRank,
    kToCoordinator,
    kRankTime,
    kTime,
    kFault,
  };
  struct SimulatedEvent {
    int64_t at_ns = 0;
    uint64_t order = 0;
    What what = What::kBegin;
    int rank = 0;
    FramePtr frame = nullptr;  // nullptr: the connection ends (for kToRank and kToCoordinator)
    bool connects = false;
    bool despite_loss = false;  // the end of a connection is seen even when its bytes are lost
    uint64_t token = 0;         // for kWake
    bool operator>(const SimulatedEvent& other) const {
      return at_ns != other.at_ns ? at_ns > other.at_ns : order > other.order;
    }
  };
  struct Rank {
    std::unique_ptr<RankMachine> machine;
    std::vector<SimulatedOutcome> outcomes;
    size_t next_call = 0;  // 0 is the join
    int64_t began_ns = 0;
    bool crashed = false;
    bool done = false;
    bool lost = false;  // its connection carries nothing any more
    int64_t paused_until_ns = 0;
    int64_t paused_ns = 0;
    int64_t timer_ns = INT64_MAX;
    int64_t sent_until_ns = 0;  // a connection keeps its order
    int64_t received_until_ns = 0;
    int recorded = 0;  // COMMITs acknowledged
    // Of its program: what it asks for, and how that ended.
    std::optional<RankEvent> asked;
    std::optional<Result<FramePtr>> ended;
  };

  void Handle(const SimulatedEvent& event);
  void OnFault(const SimulatedFault& fault);
  void BeginCall(int rank);
  void Finish(int rank);
  void Ended(int rank, Result<FramePtr> result);
  void Feed(int rank, const RankEvent& event);
  void FeedCoordinator(const CoordinatorEvent& event);
  void SendToRank(int rank, const FramePtr& frame);
  void SendFromRank(int rank, const FramePtr& frame, bool connects);
  void EndConnection(int rank, bool seen_by_rank, bool seen_by_coordinator);
  void Push(SimulatedEvent event);
  void ArmTimers(int rank);
  int64_t Delay();
  void GoOn(int rank);
  void AskNow(int rank);
  // What the clock of the rank's process shows.
  int64_t ClockNs(int rank) const { return clock(rank).Read(now_ns_); }
  int64_t ElapsedErrorNs(int rank) const;
  void Trace(const std::string& text);
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  const Rank& at(int rank) const { return ranks_[static_cast<size_t>(rank)]; }

  SimulatedJobOptions options_;
  std::mt19937_64 random_;
  std::vector<SimulatedClock> clocks_;   // [world_size]; the coordinator has that of rank 0
  std::optional<int64_t> job_begin_ns_;  // on the coordinator's clock
  CoordinatorMachine coordinator_;
  int64_t coordinator_timer_ns_ = INT64_MAX;
  std::vector<Rank> ranks_;
  std::priority_queue<SimulatedEvent, std::vector<SimulatedEvent>, std::greater<>> events_;
  uint64_t next_order_ = 0;
  int64_t now_ns_ = 0;
  std::vector<std::string> trace_;
};

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_SIMULATED_SIMULATED_JOB_H_
