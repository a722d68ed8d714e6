// One rank's end of its control channel as a state machine: (event, now) -> actions. The socket
// client, the in-process exchange and the simulated network run this same machine.
#ifndef COTUNE_SYNC_MACHINE_RANK_MACHINE_H_
#define COTUNE_SYNC_MACHINE_RANK_MACHINE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/status.h"
#include "sync/machine/job_clock.h"
#include "sync/machine/liveness.h"
#include "sync/machine/peer_state.h"
#include "sync/machine/rendezvous.h"
#include "sync/wire/frame_codec.h"
#include "sync/wire/limits.h"
#include "sync/wire/wire.pb.h"

namespace cotune::sync {

// Names one wait of the caller; the caller chooses it, new each time.
using CallToken = uint64_t;

// ---- Local events: what the owner of the exchange asks for ----
struct JoinAsked {
  CallToken token;
  int64_t deadline_ns;
};
// A call on a channel; the machine numbers it. One at a time per channel.
struct CallAsked {
  CallToken token;
  wire::Arrive arrive;  // without number and deadline
  int64_t deadline_ns;
};
// After an agreement's call was completed by a PREPARE.
struct VoteAsked {
  CallToken token;
  std::string channel;
  bool yes;
};
struct StoreAsked {
  CallToken token;
  wire::StoreRequest request;  // without number and deadline
  int64_t deadline_ns;
};
// "" leaves the job.
struct LeaveAsked {
  std::string channel;
};
// The caller gives up the job; the error names this rank.
struct GiveUpAsked {
  Error error;
};
struct HeartbeatDue {};
// ---- Events of the connection ----
struct CoordinatorFrameCame {
  FramePtr frame;
};
struct CoordinatorBytesCame {};
struct CoordinatorBadBytesCame {
  std::string why;
};
struct CoordinatorEnded {
  std::string why;
};
struct RankTimeReached {};
using RankEvent = std::variant<JoinAsked, CallAsked, VoteAsked, StoreAsked, LeaveAsked, GiveUpAsked,
                               HeartbeatDue, CoordinatorFrameCame, CoordinatorBytesCame,
                               CoordinatorBadBytesCame, CoordinatorEnded, RankTimeReached>;

// ---- Actions ----
struct SendToCoordinator {
  FramePtr frame;
  bool droppable = false;  // a heartbeat: not worth queueing behind other bytes
};
// The wait of the token is over. The frame is a Release, Prepare, Decision or StoreReply.
struct CompleteCall {
  CallToken token;
  Result<FramePtr> result;
};
// The exchange has failed, or a rank was lost after that.
struct ReportLoss {
  Error error;
};
// After what was sent.
struct Disconnect {};
using RankAction = std::variant<SendToCoordinator, CompleteCall, ReportLoss, Disconnect>;
using RankActions = std::vector<RankAction>;

struct RankConfig {
  JobIdentity job;
  int rank = 0;
  int64_t heartbeat_interval_ns = kHeartbeatIntervalNs;
  int64_t heartbeat_timeout_ns = kHeartbeatTimeoutNs;
  // Looks at the process of rank 0 when it is silent; may be empty.
  std::function<PeerState()> coordinator_state{};
};

// No clock, no I/O. Not thread-safe. After the first failure every call completes at once with that
// failure; while the coordinator lives, the losses of further ranks are still reported.
class RankMachine {
 public:
  explicit RankMachine(RankConfig config);

  RankActions OnEvent(const RankEvent& event, int64_t now_ns);

  // When RankTimeReached is due; INT64_MAX when no call is open.
  int64_t next_time_ns() const;

  const RankConfig& config() const { return config_; }
  const std::optional<Error>& failure() const { return failure_; }
  const JobClock& job_clock() const { return job_clock_; }

 private:
  enum class Phase {
    kWaiting,   // arrived; for an agreement: no PREPARE yet
    kPrepared,  // the caller is looking at the proposal
    kVoted,     // YES or NO was sent: in doubt from here on after a YES
    kRecorded,  // COMMIT came and was acknowledged
  };
  struct Call {
    CallToken token = 0;
    uint64_t number = 0;
    wire::CallKind kind = wire::CALL_NONE;
    std::string name;
    int64_t sent_ns = 0;
    int64_t deadline_ns = 0;
    int64_t verdict_by_ns = 0;  // later it is rank 0 that is at fault
    Phase phase = Phase::kWaiting;
    bool voted_yes = false;
    FramePtr ruling;  // DECLINED that came before the caller had voted
  };

  void On(const JoinAsked& event, int64_t now_ns);
  void On(const CallAsked& event, int64_t now_ns);
  void On(const VoteAsked& event, int64_t now_ns);
  void On(const StoreAsked& event, int64_t now_ns);
  void On(const LeaveAsked& event, int64_t now_ns);
  void On(const GiveUpAsked& event, int64_t now_ns);
  void On(const HeartbeatDue& event, int64_t now_ns);
  void On(const CoordinatorFrameCame& event, int64_t now_ns);
  void On(const CoordinatorBytesCame& event, int64_t now_ns);
  void On(const CoordinatorBadBytesCame& event, int64_t now_ns);
  void On(const CoordinatorEnded& event, int64_t now_ns);
  void On(const RankTimeReached& event, int64_t now_ns);

  void OnRelease(const FramePtr& frame, int64_t now_ns);
  void OnPrepare(const FramePtr& frame);
  void OnDecision(const FramePtr& frame);
  void OnStoreReply(const FramePtr& frame);
  Call* FindCall(const std::string& channel, uint64_t number);
  void StartListening(int64_t now_ns);
  bool listening() const;
  void Send(std::shared_ptr<wire::Frame> frame, bool droppable = false);
  void SendGiveUp(const Error& error);
  void Complete(CallToken token, Result<FramePtr> result);
  // From whom this rank knows of a failure, and what becomes of the connection.
  enum class Source {
    kCoordinator,  // it is kept, for further losses
    kDeclined,     // it ends
    kEnded,        // it has ended
    kOwn,          // the coordinator is told, then it is kept
    kUnreadable,   // the coordinator is told, then it ends with a goodbye
  };
  void FailAll(const Error& error, Source source);
  // Events of a connection that is kept after a failure.
  void WatchFrame(const wire::Frame& frame);
  void StopWatching();
  std::string OpenCallsText() const;

  RankConfig config_;
  bool joining_ = false;
  bool left_ = false;
  struct ChannelState {
    uint64_t next_call = 0;
    int position = 0;  // of this rank in the channel
  };
  std::map<std::string, ChannelState> channels_;
  std::map<std::string, Call> calls_;          // open ones by channel
  std::map<uint64_t, CallToken> store_waits_;  // by request
  uint64_t next_request_ = 1;
  JobClock job_clock_;
  Liveness liveness_;  // of the coordinator, as rank 0
  std::optional<Error> failure_;
  bool watches_ = false;  // after a failure: the connection still tells of losses
  RankActions actions_;   // of the event under way
};

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_MACHINE_RANK_MACHINE_H_
